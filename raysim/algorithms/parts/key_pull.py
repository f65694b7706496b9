"""The pull of the keys that choose prompts toward the queries of images: what Fed-L2P and Fed-DualPrompt share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from raysim.algorithms.parts.prompt_slots import DualPrompts, L2PPrompts, prompts_of, unfit_prompts
from raysim.api import ClientHalf, FlatModel, Method, Step


@dataclass(frozen=True, kw_only=True)
class KeyPull(Method):
    """FedAvg of prompts, with a term that pulls the chosen keys toward the queries. `kind` is the kind of prompts."""

    pull: float = 0.0

    neutral: ClassVar = {"pull": 0.0}
    kind: ClassVar[type[L2PPrompts | DualPrompts]]

    def head_parts(self) -> int:
        """Return 1; see `Client.features`."""
        return 1

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse a model without prompts of the kind."""
        return unfit_prompts(model, self.kind)

    class Client(ClientHalf):
        """Adds the pull term to the loss."""

        features: ClassVar = True  # so the step's pass is not a CUDA graph, which would not note queries
        method: KeyPull

        def batch(self, step: Step) -> None:
            """Listen to the step's own pass, which comes next. Other methods' passes must not replace its queries."""
            prompts_of(step.client.model, self.method.kind).listens = True

        def penalty(self, step: Step) -> Tensor:
            """Return -pull * (the sum of the cosines of an image's query and chosen keys), a mean over the batch."""
            if not self.method.pull:
                return step.loss.new_zeros(())
            return -self.method.pull * prompts_of(step.client.model, self.method.kind).pull()
