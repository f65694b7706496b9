"""What a method knows of a run before it starts."""

from dataclasses import dataclass


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
