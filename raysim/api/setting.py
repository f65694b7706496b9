"""What a method knows of a run before it starts, and what it may need of it."""

from dataclasses import dataclass
from typing import Literal

Need = Literal[
    "boundaries",
    "server_boundaries",
    "barrier",
    "plain_sgd",
    "undecayed_sgd",
    "unclipped",
    "earlier_logits",
    "unlabelled",
    "one_head",
    "one_order",
    "classes",
    "sample_gradients",
]
"""The needs that a method can declare. `_NEEDS` and `check_fit` in raysim/engine/compatibility.py explain each."""


@dataclass(frozen=True)
class Setting:
    """What a method knows of a run before it starts; see `Method.refusal`.

    >>> Setting(lr=0.1, clients=3, tasks=2, class_incremental=False).classes
    True
    """

    lr: float
    """The clients' learning rate."""
    clients: int
    """The number of clients."""
    tasks: int
    """The number of tasks."""
    class_incremental: bool
    """Whether tasks differ in their classes."""
    classes: bool = True
    """Whether the objective has classes; see raysim.objectives.Objective."""
    positions: bool = False
    """Whether the model's outputs have a position axis, as in next-token prediction."""
    samples: int | None = None
    """The training samples of all clients and tasks. None as long as the data are not known."""
    class_names: bool | None = None
    """Whether the dataset has names of its classes. None as long as the data are not known."""
