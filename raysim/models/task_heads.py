"""Models that depend on the task: a head for each task on a common trunk, or parts such as pools of prompts.

Samples do not carry their task, so the caller selects the head and passes the task to these parts.
"""

from copy import deepcopy
from typing import Protocol, runtime_checkable

from torch import Tensor, nn


class TaskHeads(nn.Module):
    """A linear layer for each task, each with separate initial weights. `active` is the task in use."""

    def __init__(self, head: nn.Linear, tasks: int) -> None:
        super().__init__()
        self.active = 0
        self.heads = nn.ModuleList([head])
        for _ in range(tasks - 1):
            added = deepcopy(head)
            added.reset_parameters()
            self.heads.append(added)

    def forward(self, x: Tensor) -> Tensor:
        """Return the active task's logits [n, classes]."""
        logits: Tensor = self.heads[self.active](x)
        return logits


def select_head(module: nn.Module, task: int) -> None:
    """Select a task's head, if each task has one."""
    for heads in module.modules():
        if isinstance(heads, TaskHeads):
            heads.active = task


def inactive_parameters(module: nn.Module) -> set[str]:
    """Return the names of the parameters of the heads that are not selected."""
    lists = [part for part in module.modules() if isinstance(part, TaskHeads)]
    inactive = [head for part in lists for task, head in enumerate(part.heads) if task != part.active]
    parameters = {id(parameter) for head in inactive for parameter in head.parameters()}
    return {name for name, parameter in module.named_parameters() if id(parameter) in parameters}


@runtime_checkable
class TaskAware(Protocol):
    """A part of a model, such as a pool of prompts, with one entry for each task."""

    def at_task(self, task: int | None, so_far: int) -> None:
        """Prepare the next forward passes.

        Args:
            task: the task in training, from 0. None in evaluations, and for clients that do not know it.
            so_far: the number of tasks that have begun.
        """


def is_task_aware(module: nn.Module) -> bool:
    """Return whether a part of a model depends on the task."""
    return any(isinstance(part, TaskAware) for part in module.modules())


def tell_task(module: nn.Module, task: int | None, so_far: int) -> None:
    """Pass the task to all parts of a model that depend on it; see `TaskAware.at_task`."""
    for part in module.modules():
        if isinstance(part, TaskAware):
            part.at_task(task, so_far)
