"""DER and DER++: replayed samples should keep their stored logits. Buzzega et al., NeurIPS 2020, arXiv 2004.07211."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, doc
from torch import Tensor
from torch.nn import functional

from raysim.algorithms.parts import replay
from raysim.api import ClientHalf, MemoryUse, Method, Step


@dataclass(frozen=True, kw_only=True)
class Der(Method):
    """DER (DER++ with beta > 0): distill the memory's logits (Buzzega et al., NeurIPS 2020, arXiv 2004.07211)."""

    alpha: Annotated[float, Ge(0), doc("weight of the distance between logits, eq. 6")] = 1.0
    beta: Annotated[float, Ge(0), doc("weight of the replayed labels' loss, DER++, eq. 7")] = 0.0
    sample_size: Annotated[int, Ge(1), doc("memory samples of each term, drawn for each step")] = 32

    needs: ClassVar = frozenset({"earlier_logits"})
    neutral: ClassVar = {"alpha": 0.0, "beta": 0.0}
    memory: ClassVar = MemoryUse(fills=("arrival",), logits=True)

    class Client(ClientHalf):
        """Adds both terms; each draws its own replay batch."""

        method: Der

        def penalty(self, step: Step) -> Tensor:
            """Return alpha * MSE(logits, stored) + beta * CE(logits, labels)."""
            return self._distance(step) + self._replayed_loss(step)

        def _distance(self, step: Step) -> Tensor:
            client, alpha = step.client, self.method.alpha
            # At weight 0 the forward pass is skipped: in train mode it would change BatchNorm's statistics.
            entries = replay.draw_entries(client, self.method.sample_size, self.name) if alpha else None
            if entries is None or entries.logits is None:
                return step.loss.new_zeros(())
            x, _ = replay.to_batch(client, entries)
            with client.rng_scope(self.name):
                # Differs from the paper's sum over classes: the published alphas are for the mean in the authors' code.
                return alpha * functional.mse_loss(client.model(x), entries.logits)

        def _replayed_loss(self, step: Step) -> Tensor:
            client, beta = step.client, self.method.beta
            entries = replay.draw_entries(client, self.method.sample_size, self.name) if beta else None
            if entries is None:
                return step.loss.new_zeros(())
            x, y = replay.to_batch(client, entries)
            with client.rng_scope(self.name):
                return beta * client.loss(client.model(x), y)
