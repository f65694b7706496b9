"""A-GEM: no step points against the gradient on the client's memory. Chaudhry et al., ICLR 2019, arXiv 1812.00420."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, doc
from torch import Tensor

from raysim.algorithms.parts import replay
from raysim.algorithms.parts.projection import project
from raysim.api import ClientHalf, MemoryUse, Method, Step


@dataclass(frozen=True, kw_only=True)
class AGem(Method):
    """A-GEM: project on each client's memory gradient (Chaudhry et al., ICLR 2019, arXiv 1812.00420)."""

    sample_size: Annotated[int, Ge(1), doc("memory samples of a step's reference gradient")] = 32

    needs: ClassVar = frozenset({"earlier_logits"})
    memory: ClassVar = MemoryUse()

    class Client(ClientHalf):
        """Projects every step's gradient, eq. 11."""

        method: AGem

        def gradient(self, step: Step, gradient: Tensor) -> Tensor:
            """Compare with the gradient on a fresh draw from the memory."""
            entries = replay.draw_entries(step.client, self.method.sample_size, self.name)
            if entries is None:
                return gradient
            return project(gradient, replay.gradient_on(step.client, entries, self.name))
