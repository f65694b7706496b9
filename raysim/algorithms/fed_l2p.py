"""Fed-L2P: FedAvg of prompts from a pool, with their keys, on a frozen transformer. L2P: Wang et al., CVPR 2022.

"Learning to prompt for continual learning", arXiv 2112.08654. The model chooses prompts for each image by its query.
The loss pulls the keys of the chosen prompts toward the query, so that similar images share prompts. Prompts, keys and
head are averaged as FedAvg averages a model. Nothing else is trained or sent.

The federated method is a baseline of Fed-A-GEM (Dai et al., TMLR 2024) and of LoRM (Salami et al., ICLR 2025). The code
of LoRM computes the pull and drops it. Its keys have no gradient and keep their initial values (pull=0). The default is
that of the PyTorch port of L2P. The paper has 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, doc
from torch import Tensor

from raysim.algorithms.parts.prompt_slots import L2PPrompts, prompts_of, unfit_prompts
from raysim.api import ClientHalf, FlatModel, Method, Step


@dataclass(frozen=True, kw_only=True)
class FedL2P(Method):
    """Fed-L2P: trains prompts from a pool that each image chooses from by keys (Wang et al., CVPR 2022)."""

    pull: Annotated[float, Ge(0), doc("lambda: weight of the cosines of a query and its chosen keys")] = 0.1

    neutral: ClassVar = {"pull": 0.0}
    needs: ClassVar = frozenset({"one_head"})

    def head_parts(self) -> int:
        """Return 1; see `Client.features`."""
        return 1

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse a model without a pool of prompts."""
        return unfit_prompts(model, L2PPrompts)

    class Client(ClientHalf):
        """Adds the pull term to the loss."""

        features: ClassVar = True  # so the step's pass is not a CUDA graph, which would not note queries
        method: FedL2P

        def batch(self, step: Step) -> None:
            """Listen to the step's own pass, which comes next. Other methods' passes must not replace its queries."""
            prompts_of(step.client.model, L2PPrompts).listens = True

        def penalty(self, step: Step) -> Tensor:
            """Return -pull * (the sum of the cosines of an image's query and chosen keys), a mean over the batch."""
            if not self.method.pull:
                return step.loss.new_zeros(())
            return -self.method.pull * prompts_of(step.client.model, L2PPrompts).pull()
