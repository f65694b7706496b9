"""A head for each task over one trunk. A sample does not say its task, so which head answers is set from outside."""

from copy import deepcopy

from torch import Tensor, nn


class TaskHeads(nn.Module):
    """As many linear layers as tasks, each with its own initial weights; `active` is the task whose layer is passed."""

    def __init__(self, head: nn.Linear, tasks: int) -> None:
        super().__init__()
        self.active = 0
        self.heads = nn.ModuleList([head])
        for _ in range(tasks - 1):
            another = deepcopy(head)
            another.reset_parameters()
            self.heads.append(another)

    def forward(self, x: Tensor) -> Tensor:
        """Return the active task's logits [n, classes]."""
        logits: Tensor = self.heads[self.active](x)
        return logits


def turn_to(module: nn.Module, task: int) -> None:
    """Have a task's own head answer, where each task has one."""
    for heads in module.modules():
        if isinstance(heads, TaskHeads):
            heads.active = task
