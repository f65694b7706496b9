"""With `training.logits: task`, the weights of other tasks' outputs stay as they are, as those of separate heads do.

Without a gradient, a vector's optimizer still moves them: by weight decay, or by momentum that it has kept.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from raysim.models.flat import FlatModel
from raysim.models.task_heads import inactive_parameters


class OtherHeads:
    """The rows of a model's weights and biases that make other tasks' logits.

    Args:
        model: the model, with the task's head selected.
        kept_out: a mask (bool [classes]) of the classes that training excludes, or None.
    """

    def __init__(self, model: FlatModel, kept_out: Tensor | None) -> None:
        self._model = model
        whole = torch.ones(1, dtype=torch.bool, device=model.device)
        self._rows = {name: whole for name in inactive_parameters(model.module) if name in model.layout}
        if kept_out is not None:
            self._rows |= dict.fromkeys(model.head, kept_out)

    @contextmanager
    def kept(self, parameters: Tensor, gradient: Tensor) -> Iterator[None]:
        """Put the rows of the parameters [P] that have no gradient [P] back after the step in this context.

        Distillation, for example, gives them a gradient.
        """
        gradients = self._model.named(gradient)
        views = self._model.named(parameters)
        before = {name: views[name].clone() for name in self._rows}
        yield
        for name, rows in self._rows.items():
            still = rows & (gradients[name].view(len(rows), -1) == 0).all(1)
            after = views[name].view(len(rows), -1)
            after.copy_(torch.where(still[:, None], before[name].view(len(rows), -1), after))
