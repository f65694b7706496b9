"""Local optimizers on one flat vector, made anew for every training phase, and their learning rate.

The optimizers call torch's functional ones. The classes torch.optim.SGD, Adam and AdamW compute the same bits, but
import torch's compiler at their first step: 2 s and 150 MB in every host.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from raysim.config.experiment import AdamConfig, AdamWConfig, SgdConfig, Training
from raysim.config.schema import LARGEST_FLOAT32
from raysim.system.errors import RunError

PLAIN: Mapping[str, Any] = {"foreach": False, "fused": False, "maximize": False}
"""Settings of both optimizers: one tensor after the other, minimising."""


class LocalSgd:
    """Stochastic gradient descent with heavy-ball or Nesterov momentum and L2 weight decay.

    `vectors` is how many of the parameters' length it keeps, its velocity, and how many more a step takes.
    """

    def __init__(self, knobs: SgdConfig) -> None:
        self._knobs = knobs.model_dump(include={"momentum", "nesterov", "weight_decay"})
        self._velocity: list[Tensor | None] = [None]
        self.vectors = int(knobs.momentum > 0), (knobs.weight_decay > 0) + knobs.nesterov

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Update the parameters [P] in place, given their gradient [P]."""
        sgd([parameters], [gradient], self._velocity, lr=lr, dampening=0.0, **self._knobs, **PLAIN)


class LocalAdam:
    """Adam (Kingma & Ba, ICLR 2015, arXiv 1412.6980) and AdamW (Loshchilov & Hutter, ICLR 2019, arXiv 1711.05101).

    Adam adds the weight decay to the gradient, AdamW subtracts it from the parameters. `vectors` is how many of their
    length it keeps, its moments, and how many more a step takes.
    """

    def __init__(self, knobs: AdamConfig | AdamWConfig) -> None:
        self._knobs = knobs
        self._steps = torch.tensor(0)
        self._moments: tuple[Tensor, Tensor] | None = None
        self.vectors = 2, 2 + (knobs.weight_decay > 0 and not isinstance(knobs, AdamWConfig))

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Update the parameters [P] in place, given their gradient [P]."""
        if self._moments is None:
            self._moments = torch.zeros_like(gradient), torch.zeros_like(gradient)
        first, second = self._moments
        adam(
            [parameters],
            [gradient],
            [first],
            [second],
            [],
            [self._steps],
            decoupled_weight_decay=isinstance(self._knobs, AdamWConfig),
            amsgrad=False,
            lr=lr,
            beta1=self._knobs.betas[0],
            beta2=self._knobs.betas[1],
            eps=self._knobs.eps,
            weight_decay=self._knobs.weight_decay,
            **PLAIN,
        )


def make_optimizer(knobs: SgdConfig | AdamConfig | AdamWConfig) -> LocalSgd | LocalAdam:
    """Return a new optimizer with the config's settings."""
    return LocalSgd(knobs) if isinstance(knobs, SgdConfig) else LocalAdam(knobs)


def learning_rate(training: Training, round: int, task: int, began: int) -> float:
    """Return the learning rate of a round (from 1) of a task (from 0) that began after the round `began`.

    Raises:
        RunError: the learning rate is larger than any number in single precision.
    """
    decay = training.lr_decay
    rounds = round - 1 - (began if decay.restart else 0)
    try:
        lr = training.optimizer.lr * float(decay.per_round**rounds) * float(decay.per_task**task)
    except OverflowError:
        lr = math.inf
    if lr > LARGEST_FLOAT32:
        raise RunError(
            f"training.lr_decay: the learning rate of round {round} is over {LARGEST_FLOAT32:.2g}; lower per_round "
            "or per_task"
        )
    return lr
