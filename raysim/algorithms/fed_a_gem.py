"""Fed-A-GEM: no client's step may point against the clients' mean memory gradient. Dai et al., TMLR 2024.

An add-on to other methods: list it last, as it projects the gradient that the methods before it return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge
from torch import Tensor

from raysim.algorithms.parts import replay
from raysim.algorithms.parts.projection import project
from raysim.api import (
    Ask,
    Client,
    ClientHalf,
    Delta,
    MemoryUse,
    Method,
    Plan,
    Post,
    Server,
    ServerHalf,
    Step,
    Term,
    Terms,
)


@dataclass(frozen=True, kw_only=True)
class FedAGem(Method):
    """Fed-A-GEM: project every step on the mean memory gradient of the cohort's clients (Dai et al., TMLR 2024)."""

    sample_size: Annotated[int, Ge(1)] = 32  # m in Algorithm 1: memory samples of a client's reference gradient
    every: Annotated[int, Ge(1)] = 1  # the reference is used in every k-th round
    reference: Literal["cohort", "with_update"] = "cohort"  # with_update: for asynchronous schedules; not the paper's

    needs: ClassVar = frozenset({"earlier_logits"})
    instead: ClassVar = {"barrier": "reference=with_update"}
    memory: ClassVar = MemoryUse()
    replies: ClassVar = {"memory_gradient": "mean"}

    def waits(self) -> bool:
        """The cohort's reference is requested once the new model is made."""
        return self.reference == "cohort"

    class Client(ClientHalf):
        """Projects every step's gradient on the global reference, Algorithm 1."""

        knobs: FedAGem
        used: bool = False
        sent: Tensor | None = None

        def start(self, client: Client, mail: bool) -> None:
            """Store whether this round projects; with_update takes the memory gradient at the model that was sent."""
            self.used = mail
            # regardless of `every`: it is not known here which server step the update will be part of
            if self.knobs.reference == "with_update":
                self.sent = self._gradient(client)

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Project if the inner product is negative."""
            # Differs from the paper's `<= 0`, which gives 0/0 for a reference of zero; otherwise equal.
            return project(gradient, step.client.post(self.name)) if self.used else gradient

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send the memory gradient with the update, if the knobs say so."""
            sent, self.sent = self.sent, None
            return delta, {} if sent is None else {"memory_gradient": Term(sent)}

        def memory_gradient(self, client: Client, mail: None) -> Terms:
            """Send the gradient on the memory at the new model; a client with an empty memory sends nothing."""
            gradient = self._gradient(client)
            return {} if gradient is None else {"memory_gradient": Term(gradient)}

        def _gradient(self, client: Client) -> Tensor | None:
            entries = replay.draw_entries(client, self.knobs.sample_size, self.name)
            return None if entries is None else replay.gradient_on(client, entries, self.name)

    class Server(ServerHalf):
        """Keeps the reference, the mean of the memory gradients at the newest model, by the cohort's shares."""

        knobs: FedAGem
        reference: Tensor | None = None
        version: int = 0

        def announce(self, server: Server) -> tuple[bool, Sequence[Post]]:
            """Post the reference."""
            if self.reference is None or server.round % self.knobs.every:
                return False, ()
            return True, [Post(self.name, self.version, self.reference)]

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Store the reference that was sent with the updates."""
            if self.knobs.reference == "with_update":
                self._keep(reply)
            return delta

        def conclude(self, server: Server) -> Plan:
            """Ask the same cohort for its memory gradients at the new model; the next round that projects uses them."""
            if self.knobs.reference == "cohort" and (server.round + 1) % self.knobs.every == 0:
                self._keep((yield Ask("memory_gradient")))

        def _keep(self, reply: Mapping[str, Any]) -> None:
            self.reference = reply.get("memory_gradient")
            self.version += 1
