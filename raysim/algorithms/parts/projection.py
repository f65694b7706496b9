"""What becomes of a gradient that points against a reference: A-GEM's and Fed-A-GEM's projection, or something else.

The others are those of Fed-A-GEM's section 5.3.1 (Dai et al., TMLR 2024). There is no `if` on a tensor, which would
synchronise with the GPU.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

Refinement = Literal["project", "project_scale", "average", "rotate"]


def project(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return the nearest vector to `gradient` [P] that does not point against `reference` [P].

    g - <g, r> / <r, r> r if <g, r> < 0, else exactly g, also if r is zero or not finite. Chaudhry et al., ICLR 2019,
    eq. 11.
    """
    return refine(gradient, reference, "project", "conflict")


def refine(gradient: Tensor, reference: Tensor, how: Refinement, when: Literal["conflict", "always"]) -> Tensor:
    """Return the refinement of g [P] by r [P] if <g, r> < 0, or always; exactly g if r is zero or not finite."""
    inner, square = gradient.dot(reference), reference.dot(reference)
    wanted = (square > 0) & square.isfinite()
    if when == "conflict":
        wanted &= inner < 0
    return torch.where(wanted, REFINEMENTS[how](gradient, reference, inner / square), gradient)


def remove(gradient: Tensor, reference: Tensor, ratio: Tensor) -> Tensor:
    """Return g without its part along r, which is `ratio` r."""
    return gradient - ratio * reference


def remove_and_scale(gradient: Tensor, reference: Tensor, ratio: Tensor) -> Tensor:
    """Return g without its part along r, as long as g; 0 if nothing else is in g."""
    rest = remove(gradient, reference, ratio)
    return _as_long(gradient, rest, otherwise=rest)


def average_both(gradient: Tensor, reference: Tensor, ratio: Tensor) -> Tensor:
    """Return (g + r) / 2."""
    return (gradient + reference) / 2


def rotate(gradient: Tensor, reference: Tensor, ratio: Tensor) -> Tensor:
    """Return the direction of g + r, as long as g; g if it is -r."""
    return _as_long(gradient, gradient + reference, otherwise=gradient)


def _as_long(gradient: Tensor, direction: Tensor, otherwise: Tensor) -> Tensor:
    norm = direction.norm()
    return torch.where(norm > 0, gradient.norm() / norm * direction, otherwise)


REFINEMENTS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "project": remove,
    "project_scale": remove_and_scale,
    "average": average_both,
    "rotate": rotate,
}
"""By name: a function of g and r [P] and <g, r> / <r, r>."""
