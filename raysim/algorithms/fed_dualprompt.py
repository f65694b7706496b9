"""Fed-DualPrompt: FedAvg of prefixes of all tasks and of each task, on a frozen transformer. Wang et al., ECCV 2022.

"DualPrompt: complementary prompting for rehearsal-free continual learning", arXiv 2204.04799. In training, all images
of a task have the task's prefixes. In evaluation each image has those with the nearest key. The loss pulls a task's key
toward the queries of its images. Prefixes, keys and head are averaged as FedAvg averages a model.

The federated method is a baseline of LoRM (Salami et al., ICLR 2025). The code of LoRM computes the pull and drops it:
pull=0. Its keys keep their initial values, so evaluation chooses prefixes by random keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, doc
from torch import Tensor

from raysim.algorithms.parts.prompt_slots import DualPrompts, prompts_of, unfit_prompts
from raysim.api import ClientHalf, FlatModel, Method, Step


@dataclass(frozen=True, kw_only=True)
class FedDualPrompt(Method):
    """Fed-DualPrompt: trains prefixes of attention, for all tasks and for each task (Wang et al., ECCV 2022)."""

    pull: Annotated[float, Ge(0), doc("lambda: weight of the cosine of a query and the key of its task")] = 1.0

    neutral: ClassVar = {"pull": 0.0}
    needs: ClassVar = frozenset({"boundaries", "one_head"})

    def head_parts(self) -> int:
        """Return 1; see `Client.features`."""
        return 1

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse a model without prefixes of each task."""
        return unfit_prompts(model, DualPrompts)

    class Client(ClientHalf):
        """Adds the pull term to the loss."""

        features: ClassVar = True  # so the step's pass is not a CUDA graph, which would not note queries
        method: FedDualPrompt

        def batch(self, step: Step) -> None:
            """Listen to the step's own pass, which comes next. Other methods' passes must not replace its queries."""
            prompts_of(step.client.model, DualPrompts).listens = True

        def penalty(self, step: Step) -> Tensor:
            """Return -pull * (the cosine of an image's query and the key of the task), a mean over the batch."""
            if not self.method.pull:
                return step.loss.new_zeros(())
            return -self.method.pull * prompts_of(step.client.model, DualPrompts).pull()
