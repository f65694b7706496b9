"""What a method is told of a run before it starts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """What a method can know of a run before it starts: the clients' learning rate, numbers of clients and tasks.

    `classes` and `positions` are the objective's: see raysim.objectives.Objective.
    """

    lr: float
    clients: int
    tasks: int
    class_incremental: bool
    classes: bool = True
    positions: bool = False
