"""A client's personalized model, and the step that pulls it to another model: what Ditto and Re-Fed share."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from raysim.api import FlatModel

Vectors = tuple[Tensor, ...]
"""A model, or a part of it, as a client keeps it: parameters, float buffers, integer buffers."""


@contextmanager
def in_place_of(model: FlatModel, own: Vectors) -> Iterator[None]:
    """Replace the current model by the client's personalized model; restore it afterwards, bit for bit."""
    _exchange(model, own)
    try:
        yield
    finally:
        _exchange(model, own)


def _exchange(model: FlatModel, own: Vectors) -> None:
    for mine, others in zip(model.vectors, own, strict=True):
        kept = mine.clone()
        mine.copy_(others)
        others.copy_(kept)


def step_with_pull(v: Tensor, gradient: Tensor, w: Tensor, lr: float, pull: float) -> None:
    """Take a step on loss + pull/2 ||v - w||^2 in place: v -= lr (gradient + pull (v - w)).

    If lr * pull >= 1 the pull is taken at the new v instead of the old, with the same fixed point and always stable.
    """
    if lr * pull < 1:
        v.sub_(gradient + pull * (v - w), alpha=lr)
    else:
        v.sub_(gradient - pull * w, alpha=lr).div_(1 + lr * pull)
