"""A head for each task on a common trunk. Samples do not carry their task, so the caller selects the head."""

from copy import deepcopy

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
