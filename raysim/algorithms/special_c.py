"""SPECIAL-C: SPECIAL's anchor at the clients, as a proximal step. Xu and Li, 2026, arXiv 2601.22274, Algorithm 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, doc
from torch import Tensor

from raysim.algorithms.special import GlobalRate, rate
from raysim.api import Broadcast, Client, ClientHalf, Delta, Method, Server, ServerHalf, Step


@dataclass(frozen=True, kw_only=True)
class SpecialC(Method):
    """SPECIAL-C: every client is pulled to the last task's final model (Xu and Li, 2026, arXiv 2601.22274)."""

    lam: Annotated[float, Ge(0), doc("lambda, Algorithm 2: the pull to the anchor")] = 0.25
    global_rate: Annotated[GlobalRate, doc("gamma_G, which the mean delta is multiplied by")] = "1/task"
    prox_every: Annotated[Literal["epoch", "step"], doc("when clients are pulled; epoch is as printed")] = "epoch"
    prox_scale: Annotated[Literal["1", "lr"], doc("s / lambda; lr by step solves the stated objective")] = "1"

    neutral: ClassVar = {"lam": 0.0, "global_rate": 1.0}
    needs: ClassVar = frozenset({"server_boundaries"})

    class Client(ClientHalf):
        """Applies prox(x) = (x + 2 s anchor) / (1 + 2 s) from task 2 on."""

        method: SpecialC
        anchored: bool = False

        def start(self, client: Client, message: bool) -> None:
            """Store whether there is an anchor yet."""
            self.anchored = message

        def observe(self, step: Step) -> None:
            """Contract towards the anchor, after the epoch or after every step."""
            if not self.anchored or not (step.ends_epoch or self.method.prox_every == "step"):
                return
            s = self.method.lam * (step.client.lr if self.method.prox_scale == "lr" else 1.0)
            parameters, anchor = step.client.model.parameters, step.client.from_server(self.name)
            # as a change, so that s = 0 changes no bit
            parameters.add_(anchor - parameters, alpha=2 * s / (1 + 2 * s))

    class Server(ServerHalf):
        """Broadcasts the anchor once per task, and scales the aggregate."""

        method: SpecialC
        task: int = 0
        anchor: Tensor | None = None

        def announce(self, server: Server) -> tuple[bool, Sequence[Broadcast]]:
            """Broadcast the model that ended the previous task."""
            if server.task != self.task:
                self.task, self.anchor = server.task, server.parameters
            if self.anchor is None:
                return False, ()
            return True, [Broadcast(self.name, self.task, self.anchor)]

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Return gamma_G times the mean over the cohort (line 16 says 1/M, but only N of M take part)."""
            gamma = rate(self.method.global_rate, server)
            return Delta(gamma * delta.parameters, gamma * delta.buffers)
