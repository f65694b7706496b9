"""Local optimizers on one flat vector, fresh for every training phase.

They compute what torch.optim.SGD and torch.optim.Adam compute (a test compares them). torch's own are not used because
their first step imports torch's compiler: 1.7 s and 150 MB in every host, as measured with torch 2.15.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from raysim.config.experiment import AdamConfig as AdamKnobs
from raysim.config.experiment import SgdConfig as SgdKnobs


class Optimizer(Protocol):
    """Changes the parameters [P] in place, given the gradient [P]."""

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Take one step."""


class Sgd:
    """Stochastic gradient descent with (heavy-ball) momentum and L2 weight decay."""

    def __init__(self, knobs: SgdKnobs) -> None:
        self._knobs = knobs
        self._velocity: Tensor | None = None

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Take one step: v = momentum * v + g, w -= lr * v."""
        if self._knobs.weight_decay:
            gradient = gradient.add(parameters, alpha=self._knobs.weight_decay)
        if self._knobs.momentum:
            if self._velocity is None:
                self._velocity = gradient.clone()
            else:
                self._velocity.mul_(self._knobs.momentum).add_(gradient)
            gradient = self._velocity
        parameters.add_(gradient, alpha=-lr)


class Adam:
    """Adam (Kingma & Ba, ICLR 2015, arXiv 1412.6980) with L2 weight decay in the gradient."""

    def __init__(self, knobs: AdamKnobs) -> None:
        self._knobs = knobs
        self._steps = 0
        self._first: Tensor | None = None
        self._second: Tensor | None = None

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Take one step with bias-corrected moments."""
        beta1, beta2 = self._knobs.betas
        if self._knobs.weight_decay:
            gradient = gradient.add(parameters, alpha=self._knobs.weight_decay)
        if self._first is None or self._second is None:
            self._first, self._second = torch.zeros_like(gradient), torch.zeros_like(gradient)
        self._steps += 1
        self._first.lerp_(gradient, 1 - beta1)
        self._second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        scale = (1 - beta2**self._steps) ** 0.5
        denominator = self._second.sqrt().div_(scale).add_(self._knobs.eps)
        parameters.addcdiv_(self._first, denominator, value=-lr / (1 - beta1**self._steps))


def fresh(knobs: SgdKnobs | AdamKnobs) -> Optimizer:
    """Make a new optimizer as the config says."""
    return Adam(knobs) if isinstance(knobs, AdamKnobs) else Sgd(knobs)
