"""FedAvgM: momentum on the server. Hsu, Qi and Brown, 2019, arXiv 1909.06335."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Gt, Lt, doc
from torch import Tensor

from raysim.api import Delta, Method, Server, ServerHalf


@dataclass(frozen=True, kw_only=True)
class FedAvgM(Method):
    """FedAvgM: the server's update has momentum (Hsu, Qi and Brown, 2019, arXiv 1909.06335)."""

    beta: Annotated[float, Ge(0), Lt(1), doc("the momentum's decay")] = 0.3
    lr: Annotated[float, Gt(0), doc("the server's rate")] = 1.0

    neutral: ClassVar = {"beta": 0.0, "lr": 1.0}

    class Server(ServerHalf):
        """m = beta m + d, w += lr m; BatchNorm's statistics are averaged as usual."""

        method: FedAvgM
        momentum: Tensor | None = None

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Return lr times the momentum."""
            d = delta.parameters
            self.momentum = d if self.momentum is None else self.method.beta * self.momentum + d
            return Delta(self.method.lr * self.momentum, delta.buffers)
