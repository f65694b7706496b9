"""SPECIAL: the server pulls each aggregate to the model that ended the last task. Xu and Li, 2026, arXiv 2601.22274."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, doc
from torch import Tensor

from raysim.api import Delta, Method, Server, ServerHalf

GlobalRate = Literal["1/task"] | Annotated[float, Ge(0)]


@dataclass(frozen=True, kw_only=True)
class Special(Method):
    """SPECIAL: a server-side anchor at the last task's final model, no memory (Xu and Li, 2026, arXiv 2601.22274)."""

    lam: Annotated[float, Ge(0), doc("lambda, eq. 5: the pull to the anchor")] = 0.25
    global_rate: Annotated[GlobalRate, doc("gamma_G, the mean delta's factor; 1/i in task i in the paper")] = "1/task"
    anchor_buffers: Annotated[bool, doc("BatchNorm's statistics on the weights' point; not in the paper")] = True

    # lambda = 0 alone is not FedAvg: the rate 1/i remains
    neutral: ClassVar = {"lam": 0.0, "global_rate": 1.0}
    needs: ClassVar = frozenset({"server_boundaries"})

    class Server(ServerHalf):
        """Blends the aggregate with the anchor, eq. 6."""

        method: Special
        task: int = 0
        anchor: Tensor | None = None
        anchored_buffers: Tensor | None = None

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Return (gamma Delta + lambda (anchor - theta)) / (1 + lambda): eq. 6 as a change, exact at lambda = 0."""
            if server.task != self.task:  # theta is still the model that ended the previous task
                self.task, self.anchor, self.anchored_buffers = server.task, server.parameters, server.buffers
            gamma = rate(self.method.global_rate, server)
            parameters = self._blend(gamma * delta.parameters, self.anchor, server.parameters)
            if not self.method.anchor_buffers:
                return Delta(parameters, delta.buffers)
            return Delta(parameters, self._blend(gamma * delta.buffers, self.anchored_buffers, server.buffers))

        def _blend(self, scaled: Tensor, anchor: Tensor | None, now: Tensor) -> Tensor:
            if anchor is None:  # task 1
                return scaled
            lam = self.method.lam
            return (scaled + lam * (anchor - now)) / (1 + lam)


def rate(global_rate: GlobalRate, server: Server) -> float:
    """Return gamma_G of this task."""
    return 1 / (server.task + 1) if isinstance(global_rate, str) else global_rate
