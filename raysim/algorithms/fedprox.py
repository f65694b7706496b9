"""FedProx: each client's loss is pulled towards the model it was sent. Li et al., MLSys 2020, arXiv 1812.06127."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, doc
from torch import Tensor

from raysim.api import ClientHalf, Method, Step


@dataclass(frozen=True, kw_only=True)
class FedProx(Method):
    """FedProx: loss + mu/2 ||w - w_sent||^2 at every client (Li et al., MLSys 2020, arXiv 1812.06127)."""

    mu: Annotated[float, Ge(0), doc("strength of the pull to the model that was sent, eq. 2")] = 0.01

    neutral: ClassVar = {"mu": 0.0}

    class Client(ClientHalf):
        """Adds the proximal term's gradient, mu (w - w_sent)."""

        vectorises: ClassVar = True
        method: FedProx

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Add the gradient of the proximal term, in closed form, so that autograd needs no graph for it."""
            client = step.client
            return gradient.add_(client.model.parameters - client.received, alpha=self.method.mu)
