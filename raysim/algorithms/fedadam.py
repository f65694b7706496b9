"""FedAdam: Adam on the server, the mean delta being its gradient. Reddi et al., ICLR 2021, arXiv 2003.00295."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt, Lt, doc
from torch import Tensor

from raysim.api import Delta, Method, Server, ServerHalf


@dataclass(frozen=True, kw_only=True)
class FedAdam(Method):
    """FedAdam: Adam on the server (Reddi et al., ICLR 2021, arXiv 2003.00295)."""

    lr: Annotated[float, Gt(0), doc("eta, the server's rate")] = 0.002
    beta1: Annotated[float, Ge(0), Lt(1), doc("decay of the first moment")] = 0.9
    beta2: Annotated[float, Ge(0), Lt(1), doc("decay of the second moment")] = 0.99
    tau: Annotated[float, Gt(0), doc("adaptivity: what is added to the second moment's root")] = 1e-3

    class Server(ServerHalf):
        """Algorithm 2, without bias correction, v_0 = tau^2; BatchNorm's statistics are averaged as usual."""

        method: FedAdam
        first: Tensor | None = None
        second: Tensor | None = None

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Return eta m / (sqrt(v) + tau)."""
            method, d = self.method, delta.parameters
            if self.first is None or self.second is None:
                self.first, self.second = torch.zeros_like(d), torch.full_like(d, method.tau**2)
            self.first = method.beta1 * self.first + (1 - method.beta1) * d
            self.second = self.second_moment(self.second, d * d)
            return Delta(method.lr * self.first / (self.second.sqrt() + method.tau), delta.buffers)

        def second_moment(self, second: Tensor, square: Tensor) -> Tensor:
            """Return the new second moment."""
            return self.method.beta2 * second + (1 - self.method.beta2) * square
