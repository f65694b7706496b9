"""The projection of a gradient that points against a reference, for A-GEM and Fed-A-GEM.

There is no `if` on a tensor, which would synchronize with the GPU.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

Refine = Callable[[Tensor, Tensor, Tensor], Tensor]
"""A function of g and r [P] and <g, r> / <r, r>."""


def project(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return the nearest vector to `gradient` [P] that does not point against `reference` [P].

    g - <g, r> / <r, r> r if <g, r> < 0, else exactly g, also if r is zero or not finite. Chaudhry et al., ICLR 2019,
    eq. 11.
    """
    return refine(gradient, reference, remove, "conflict")


def refine(gradient: Tensor, reference: Tensor, how: Refine, when: Literal["conflict", "always"]) -> Tensor:
    """Return how(g, r, ratio) if <g, r> < 0, or always; exactly g if r is zero or not finite. Both are [P]."""
    inner, square = gradient.dot(reference), reference.dot(reference)
    wanted = (square > 0) & square.isfinite()
    if when == "conflict":
        wanted = wanted & (inner < 0)  # not in place: under torch.vmap, r may be the same for all clients
    return torch.where(wanted, how(gradient, reference, inner / square), gradient)


def remove(gradient: Tensor, reference: Tensor, ratio: Tensor) -> Tensor:
    """Return g without its part along r, which is `ratio` r."""
    return gradient - ratio * reference
