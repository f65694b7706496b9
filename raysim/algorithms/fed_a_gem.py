"""Fed-A-GEM: no client's step may point against the clients' mean memory gradient. Dai et al., TMLR 2024.

It combines with other methods: list it last, because it projects the gradient that the earlier methods return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, doc
from torch import Tensor

from raysim.algorithms.parts import replay
from raysim.algorithms.parts.projection import Refine, refine, remove
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    Delta,
    GradientRequests,
    MemoryUse,
    Method,
    Plan,
    Request,
    Server,
    ServerHalf,
    Setting,
    Step,
    Term,
    Terms,
)

Refinement = Literal["project", "project_scale", "average", "rotate"]


@dataclass(frozen=True, kw_only=True)
class FedAGem(Method):
    """Fed-A-GEM: project every step on the mean memory gradient of the cohort's clients (Dai et al., TMLR 2024)."""

    sample_size: Annotated[int, Ge(1), doc("m in Algorithm 3: memory samples of a client's reference gradient")] = 32
    every: Annotated[int, Ge(1), doc("the reference is used in every k-th round")] = 1
    reference: Annotated[Literal["cohort", "with_update"], doc("with_update: for asynchronous schedules")] = "cohort"
    refinement: Annotated[Refinement, doc("what refines a gradient, section 5.3.1; project is Fed-A-GEM")] = "project"
    when: Annotated[Literal["conflict", "always"], doc("refine against the reference, or always")] = "conflict"
    rate: Annotated[float, Gt(0), Le(1), doc("p, Table 12: the fraction of such steps that are refined, drawn")] = 1.0
    aggregation: Annotated[Literal["mean", "cosine"], doc("cosine: by likeness to the reference, Table 2")] = "mean"

    needs: ClassVar = frozenset({"earlier_logits"})
    instead: ClassVar = {"barrier": "reference=with_update"}
    memory: ClassVar = MemoryUse()
    replies: ClassVar = {"memory_gradient": "mean", "likeness": "by_client"}

    def refusal(self, setting: Setting) -> str | None:
        """Refuse weights by cosine with a reference that comes with the update."""
        if self.aggregation == "cosine" and self.reference == "with_update":
            return "found aggregation=cosine with reference=with_update, allowed: with reference=cohort, or mean"
        return None

    def waits(self) -> bool:
        """The cohort's reference is requested once the new model is made."""
        return self.reference == "cohort"

    class Client(ClientHalf):
        """Projects every step's gradient on the global reference, Algorithm 1."""

        vectorises: ClassVar = True
        method: FedAGem
        used: bool = False
        sent: Tensor | None = None

        def start(self, client: Client, message: bool) -> None:
            """Store whether this round projects; if `with_update`, take the memory gradient at the received model."""
            self.used = message
            # regardless of `every`: it is not known here which server step the update will be part of
            if self.method.reference == "with_update":
                self.sent = self._gradient(client)

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Project if the inner product is negative, or refine the gradient as the hyperparameters say."""
            method = self.method
            if not self.used or (method.rate < 1 and step.client.generator(self.name).random() >= method.rate):
                return gradient
            # Differs from the paper's `<= 0`, which gives 0/0 for a reference of zero; otherwise equal.
            return refine(gradient, step.client.from_server(self.name), REFINEMENTS[method.refinement], method.when)

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send the memory gradient with the update, or the update times its similarity, as configured."""
            sent, self.sent = self.sent, None
            terms = {} if sent is None else {"memory_gradient": Term(sent)}
            if self.method.aggregation == "cosine" and self.used:
                likeness = compare(-delta.parameters, client.from_server(self.name))
                delta, terms["likeness"] = Delta(likeness * delta.parameters, delta.buffers), Term(likeness)
            return delta, terms

        def memory_gradient(self, client: Client, message: None) -> GradientRequests:
            """Send the gradient on the memory at the new model; a client with an empty memory sends nothing."""
            entries = replay.draw_entries(client, self.method.sample_size, self.name)
            if entries is None:
                return {}
            gradient = yield replay.to_batch(client, entries)
            return {"memory_gradient": Term(gradient)}

        def _gradient(self, client: Client) -> Tensor | None:
            entries = replay.draw_entries(client, self.method.sample_size, self.name)
            return None if entries is None else replay.gradient_on(client, entries, self.name)

    class Server(ServerHalf):
        """Keeps the reference, the mean of the memory gradients at the newest model, by the cohort's shares."""

        method: FedAGem
        reference: Tensor | None = None
        version: int = 0

        def announce(self, server: Server) -> tuple[bool, Sequence[Broadcast]]:
            """Broadcast the reference."""
            if self.reference is None or server.round % self.method.every:
                return False, ()
            return True, [Broadcast(self.name, self.version, self.reference)]

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Store the reference that came with the updates; divide by the sum of the similarity weights."""
            if self.method.reference == "with_update":
                self._keep(reply)
            if "likeness" not in reply:
                return delta
            total = torch.stack([server.shares[client] * one for client, one in reply["likeness"].items()]).sum()
            # statistics are averaged; if no update is similar to the reference the model stays
            return Delta(torch.where(total > 0, delta.parameters / total, 0.0), delta.buffers)

        def conclude(self, server: Server) -> Plan:
            """Request the cohort's memory gradients at the new model; the next round that projects uses them."""
            if self.method.reference == "cohort" and (server.round + 1) % self.method.every == 0:
                self._keep((yield Request("memory_gradient")))

        def _keep(self, reply: Mapping[str, Any]) -> None:
            self.reference = reply.get("memory_gradient")
            self.version += 1


def compare(update: Tensor, reference: Tensor) -> Tensor:
    """Return s = max(0, cos(update, reference)), 0 if one of them is 0."""
    # The paper gives no formula, and names FLTrust (Cao et al., NDSS 2021), whose trust score this is.
    lengths = update.norm() * reference.norm()
    return torch.where(lengths > 0, update.dot(reference) / lengths, 0.0).clamp(min=0)


def remove_and_scale(gradient: Tensor, reference: Tensor, ratio: Tensor) -> Tensor:
    """Return g without its part along r, rescaled to the norm of g; 0 if g is parallel to r."""
    rest = remove(gradient, reference, ratio)
    return _as_long(gradient, rest, otherwise=rest)


def average_both(gradient: Tensor, reference: Tensor, ratio: Tensor) -> Tensor:
    """Return (g + r) / 2."""
    return (gradient + reference) / 2


def rotate(gradient: Tensor, reference: Tensor, ratio: Tensor) -> Tensor:
    """Return g + r, rescaled to the norm of g; g if g + r is zero."""
    return _as_long(gradient, gradient + reference, otherwise=gradient)


def _as_long(gradient: Tensor, direction: Tensor, otherwise: Tensor) -> Tensor:
    norm = direction.norm()
    return torch.where(norm > 0, gradient.norm() / norm * direction, otherwise)


REFINEMENTS: Mapping[str, Refine] = {
    "project": remove,
    "project_scale": remove_and_scale,
    "average": average_both,
    "rotate": rotate,
}
"""Section 5.3.1, by name."""
