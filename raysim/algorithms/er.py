"""ER: each step trains on its batch and on one from the memory. Chaudhry et al., 2019, arXiv 1902.10486."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, doc

from raysim.algorithms.parts import replay
from raysim.api import ClientHalf, MemoryUse, Method, Step


@dataclass(frozen=True, kw_only=True)
class Er(Method):
    """ER: one mean loss over the batch and a replayed one (Chaudhry et al., 2019, arXiv 1902.10486)."""

    sample_size: Annotated[int | None, Ge(1), doc("replayed samples of a step; null is the batch size")] = None

    needs: ClassVar = frozenset({"earlier_logits"})
    memory: ClassVar = MemoryUse()

    class Client(ClientHalf):
        """Adds replayed rows to every batch; one forward pass and one BatchNorm batch over both."""

        vectorises: ClassVar = True
        method: Er

        def batch(self, step: Step) -> None:
            """Add `sample_size` rows, drawn without replacement."""
            entries = replay.draw_entries(step.client, self.method.sample_size or len(step.positions), self.name)
            if entries is not None:
                x, y = replay.to_batch(step.client, entries)
                step.x, step.y = torch.cat([step.x, x]), torch.cat([step.y, y])
