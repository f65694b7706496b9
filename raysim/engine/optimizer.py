"""Local optimizers on one flat vector, made anew for every training phase.

They call torch's functional optimizers. The classes torch.optim.SGD, Adam and AdamW compute the same bits, but import
torch's compiler with their first step: 2 s and 150 MB in every host.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from raysim.config.experiment import AdamConfig, AdamWConfig, SgdConfig


class LocalSgd:
    """Stochastic gradient descent with heavy-ball or Nesterov momentum and L2 weight decay."""

    def __init__(self, knobs: SgdConfig) -> None:
        self._knobs = knobs
        self._velocity: list[Tensor | None] = [None]

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Update the parameters [P] in place, given their gradient [P]."""
        sgd(
            [parameters],
            [gradient],
            self._velocity,
            foreach=False,
            fused=False,
            lr=lr,
            momentum=self._knobs.momentum,
            dampening=0.0,
            nesterov=self._knobs.nesterov,
            weight_decay=self._knobs.weight_decay,
            maximize=False,
        )


class LocalAdam:
    """Adam (Kingma & Ba, ICLR 2015, arXiv 1412.6980) and AdamW (Loshchilov & Hutter, ICLR 2019, arXiv 1711.05101).

    Adam adds the weight decay to the gradient, AdamW takes it off the parameters.
    """

    def __init__(self, knobs: AdamConfig | AdamWConfig) -> None:
        self._knobs = knobs
        self._steps = torch.tensor(0)
        self._moments: tuple[Tensor, Tensor] | None = None

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
            foreach=False,
            fused=False,
            decoupled_weight_decay=isinstance(self._knobs, AdamWConfig),
            amsgrad=False,
            lr=lr,
            beta1=self._knobs.betas[0],
            beta2=self._knobs.betas[1],
            eps=self._knobs.eps,
            weight_decay=self._knobs.weight_decay,
            maximize=False,
        )


Optimizer = LocalSgd | LocalAdam


def make_optimizer(knobs: SgdConfig | AdamConfig | AdamWConfig) -> Optimizer:
    """Return a new optimizer with the config's settings."""
    return LocalSgd(knobs) if isinstance(knobs, SgdConfig) else LocalAdam(knobs)
