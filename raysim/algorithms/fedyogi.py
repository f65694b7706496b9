"""FedYogi: FedAdam with Yogi's second moment. Reddi et al., ICLR 2021, arXiv 2003.00295."""

from dataclasses import dataclass

import torch
from torch import Tensor

from raysim.algorithms.fedadam import FedAdam


@dataclass(frozen=True, kw_only=True)
class FedYogi(FedAdam):
    """FedYogi: Yogi on the server (Reddi et al., ICLR 2021, arXiv 2003.00295)."""

    class Server(FedAdam.Server):
        """FedAdam's server side with Yogi's second moment."""

        def second_moment(self, second: Tensor, square: Tensor) -> Tensor:
            """Return v - (1 - beta2) d^2 sign(v - d^2)."""
            return second - (1 - self.method.beta2) * square * torch.sign(second - square)
