"""The config's local optimizers, by name. Each phase makes a new one, which may inherit the last one's attributes."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Annotated, ClassVar

import torch
from annotated_types import doc
from pydantic import AfterValidator, ValidationInfo
from torch import Tensor

from raysim.api.local_optimizer import LocalAdam, LocalOptimizer, LocalSgd
from raysim.config.block import BelowOne, NotNegative, Positive
from raysim.config.experiment import Optimizer
from raysim.system.custom_code import place_of
from raysim.system.errors import RunError
from raysim.system.state import describe_foreign

OPTIMIZERS: Mapping[str, str] = {
    "sgd": "raysim.engine.optimizer:Sgd",
    "adam": "raysim.engine.optimizer:Adam",
    "adamw": "raysim.engine.optimizer:AdamW",
}
"""Name in YAML -> `module:class`. The class receives the keys except `lr`, which every step receives."""

USUAL_VECTORS = 2, 2  # the default if an optimizer has no attribute `vectors`: Adam's numbers


def _check_nesterov(nesterov: bool, info: ValidationInfo) -> bool:
    """Refuse Nesterov momentum without momentum."""
    if nesterov and not info.data.get("key_momentum", 1.0):  # missing if momentum itself is invalid
        raise ValueError("allowed with a momentum above 0 only")
    return nesterov


class Sgd(LocalSgd):
    """Stochastic gradient descent."""

    default_lr: ClassVar = 0.01

    def __init__(
        self,
        *,
        momentum: Annotated[
            BelowOne, doc("the momentum; local training resets it, unless training.keep_optimizer")
        ] = 0.0,
        nesterov: Annotated[
            bool, AfterValidator(_check_nesterov), doc("Nesterov momentum; needs momentum above 0")
        ] = False,
        weight_decay: Annotated[NotNegative, doc("the L2 penalty")] = 0.0,
    ) -> None:
        super().__init__(momentum, nesterov, weight_decay)


class Adam(LocalAdam):
    """Adam (Kingma and Ba, ICLR 2015). Local training resets its moments, unless training.keep_optimizer."""

    default_lr: ClassVar = 0.001

    def __init__(
        self,
        *,
        betas: Annotated[tuple[BelowOne, BelowOne], doc("the decay of the two moments")] = (0.9, 0.999),
        eps: Annotated[Positive, doc("added to the denominator")] = 1e-8,
        weight_decay: Annotated[NotNegative, doc("the L2 penalty")] = 0.0,
    ) -> None:
        super().__init__(betas, eps, weight_decay, decoupled=False)


class AdamW(LocalAdam):
    """AdamW: Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019)."""

    default_lr: ClassVar = 0.001

    def __init__(
        self,
        *,
        betas: Annotated[tuple[BelowOne, BelowOne], doc("the decay of the two moments")] = (0.9, 0.999),
        eps: Annotated[Positive, doc("added to the denominator")] = 1e-8,
        weight_decay: Annotated[
            NotNegative, doc("the decoupled decay: a step subtracts lr * weight_decay * parameters")
        ] = 0.01,
    ) -> None:
        super().__init__(betas, eps, weight_decay, decoupled=True)


class ScaledOptimizer:
    """An optimizer for each run of parameters with the same factor of the learning rate.

    Args:
        settings: the config's optimizer.
        layout: the shapes of the parameters by name.
        scales: the factors by patterns for names, as `training.lr_scales`. The first pattern that matches counts.
    """

    def __init__(self, settings: Optimizer, layout: Mapping[str, torch.Size], scales: Mapping[str, float]) -> None:
        self._parts: list[tuple[int, float, LocalOptimizer]] = []  # length, factor, optimizer
        factors = (next((scales[p] for p in scales if fnmatchcase(name, p)), 1.0) for name in layout)
        pairs = [(factor, shape.numel()) for factor, shape in zip(factors, layout.values(), strict=True)]
        for factor, run in groupby(pairs, key=lambda pair: pair[0]):
            self._parts.append((sum(size for _, size in run), factor, settings.make()))

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        """Update the parameters [P] in place, given their gradient [P]."""
        sizes = [size for size, _, _ in self._parts]
        parts = zip(self._parts, parameters.split(sizes), gradient.split(sizes), strict=True)
        for (_, factor, optimizer), own, slope in parts:
            optimizer.step(own, slope, factor * lr)


def vectors_of(settings: Optimizer) -> tuple[int, int]:
    """Return how many vectors [P] an optimizer keeps, and how many more a step needs temporarily."""
    vectors: tuple[int, int] = getattr(settings.make(), "vectors", USUAL_VECTORS)
    return vectors


def try_optimizer(settings: Optimizer, kept: bool = False) -> None:
    """Have an optimizer take two steps on three parameters, before a run starts.

    Raises:
        RunError: the optimizer has no valid step, changed no parameter or more than the parameters, or made them
            infinite. Or it is `kept` for the next phase, and a checkpoint cannot hold one of its attributes.
    """
    who = f"training.optimizer: {place_of(settings.function())}"
    optimizer = settings.make()
    if not callable(getattr(optimizer, "step", None)):
        raise RunError(f"{who} made {type(optimizer).__name__}, allowed: an object with step(parameters, gradient, lr)")
    parameters, gradient = torch.ones(3), torch.tensor([0.5, -1.0, 0.25])
    vectors = getattr(optimizer, "vectors", USUAL_VECTORS)
    if not isinstance(vectors, tuple) or len(vectors) != 2 or not all(isinstance(n, int) and n >= 0 for n in vectors):
        raise RunError(f"{who} has vectors {vectors!r:.60}, allowed: two whole numbers >= 0, kept and temporary")
    step: Callable[..., object] = optimizer.step
    for _ in range(2):
        returned = step(parameters, gradient, settings.lr)
        if returned is not None:
            raise RunError(
                f"{who} has a step that returned {type(returned).__name__}, allowed: parameters changed in place"
            )
    if parameters.shape != (3,) or not bool(parameters.isfinite().all()):
        raise RunError(
            f"{who} changed the test parameters [1, 1, 1] to {parameters.tolist()}, allowed: three finite "
            "numbers, changed in place"
        )
    if gradient.tolist() != [0.5, -1.0, 0.25]:
        raise RunError(f"{who} changed the gradient, allowed: the parameters alone, in place")
    if settings.lr and bool((parameters == 1).all()):
        raise RunError(f"{who} changed none of the test parameters, allowed: parameters changed in place, as by add_()")
    for name, value in vars(optimizer).items() if kept else ():
        foreign = describe_foreign(value)
        if foreign is not None:
            words = f"has an attribute {name} with {foreign}"
            raise RunError(f"{who} {words}; or set training.keep_optimizer=false")
