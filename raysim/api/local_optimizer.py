"""Optimizers on one flat vector: the model's, or that of an auxiliary network.

Adam calls torch's function. SGD is implemented here, which saves 10 us per step. The classes torch.optim.SGD, Adam and
AdamW compute the same bits. But their first step imports torch's compiler, which takes 2 s and 150 MB in every host.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam as torch_adam

PLAIN: Mapping[str, Any] = {"foreach": False, "fused": False, "maximize": False}
"""Settings of torch's function: loop over tensors, minimize."""


class LocalOptimizer(Protocol):
    """An optimizer.

    It may have an attribute `vectors`: how many vectors [P] it keeps, and how many more a step needs temporarily.

    >>> class SignSgd:
    ...     def step(self, parameters, gradient, lr):
    ...         parameters.sub_(gradient.sign(), alpha=lr)
    """

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Update the parameters [P] in place, given their gradient [P], which must not change.

        >>> optimizer, parameters = client.new_optimizer(), torch.ones(2)
        >>> optimizer.step(parameters, torch.tensor([1.0, 2.0]), lr=0.5)
        >>> parameters
        tensor([0.5000, 0.0000])
        """


class LocalSgd:
    """Stochastic gradient descent with heavy-ball or Nesterov momentum and L2 weight decay.

    >>> sgd = LocalSgd(momentum=0.9, nesterov=False, weight_decay=0.0)
    """

    def __init__(self, momentum: float, nesterov: bool, weight_decay: float) -> None:
        self._momentum, self._nesterov, self._weight_decay = momentum, nesterov, weight_decay
        self._velocity: list[Tensor | None] = [None]  # a list of one vector, as the checkpoints' format requires
        self.vectors = int(momentum > 0), (weight_decay > 0) + nesterov

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Update the parameters [P] in place, given their gradient [P].

        >>> parameters = torch.ones(2)
        >>> sgd.step(parameters, torch.tensor([1.0, 2.0]), lr=0.5)
        >>> parameters
        tensor([0.5000, 0.0000])
        """
        if self._weight_decay:
            gradient = gradient.add(parameters, alpha=self._weight_decay)
        if self._momentum:
            (velocity,) = self._velocity
            velocity = gradient.clone() if velocity is None else velocity.mul_(self._momentum).add_(gradient)
            self._velocity = [velocity]
            gradient = gradient.add(velocity, alpha=self._momentum) if self._nesterov else velocity
        parameters.add_(gradient, alpha=-lr)


class LocalAdam:
    """Adam (Kingma & Ba, ICLR 2015, arXiv 1412.6980) and AdamW (Loshchilov & Hutter, ICLR 2019, arXiv 1711.05101).

    Adam adds the weight decay to the gradient. AdamW subtracts it from the parameters.

    >>> adam = LocalAdam(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, decoupled=False)
    """

    def __init__(self, betas: tuple[float, float], eps: float, weight_decay: float, decoupled: bool) -> None:
        self._betas, self._eps, self._weight_decay, self._decoupled = betas, eps, weight_decay, decoupled
        self._steps = torch.tensor(0)
        self._moments: tuple[Tensor, Tensor] | None = None
        self.vectors = 2, 2 + (weight_decay > 0 and not decoupled)

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Update the parameters [P] in place, given their gradient [P].

        >>> parameters = torch.ones(2)
        >>> adam.step(parameters, torch.tensor([1.0, 2.0]), lr=0.5)
        >>> parameters
        tensor([0.5000, 0.5000])
        """
        if self._moments is None:
            self._moments = torch.zeros_like(gradient), torch.zeros_like(gradient)
        first, second = self._moments
        torch_adam(
            [parameters],
            [gradient],
            [first],
            [second],
            [],
            [self._steps],
            decoupled_weight_decay=self._decoupled,
            amsgrad=False,
            lr=lr,
            beta1=self._betas[0],
            beta2=self._betas[1],
            eps=self._eps,
            weight_decay=self._weight_decay,
            **PLAIN,
        )
