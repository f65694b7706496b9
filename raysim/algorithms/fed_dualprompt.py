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

from raysim.algorithms.parts.key_pull import KeyPull
from raysim.algorithms.parts.prompt_slots import DualPrompts


@dataclass(frozen=True, kw_only=True)
class FedDualPrompt(KeyPull):
    """Fed-DualPrompt: trains prefixes of attention, for all tasks and for each task (Wang et al., ECCV 2022)."""

    pull: Annotated[float, Ge(0), doc("lambda: weight of the cosine of a query and the key of its task")] = 1.0

    needs: ClassVar = frozenset({"boundaries", "one_head"})
    kind: ClassVar = DualPrompts
