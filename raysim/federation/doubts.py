"""Warnings about data that are allowed, but are likely a mistake."""

from collections.abc import Iterator

import numpy as np

from raysim.federation.federation import Federation
from raysim.objectives.classification import Classification

FIRST = 1000  # samples that are looked at
LARGEST = 16.0  # of a float image that a model can learn from as it is


def describe_doubts(federation: Federation) -> list[str]:
    """Return a warning for images that look unscaled, and for labels that look as if they began at 1."""
    return [] if federation.dataset.missing else [*_doubts(federation)]


def _doubts(federation: Federation) -> Iterator[str]:
    dataset = federation.dataset
    x = dataset.train.x[:FIRST]
    of_images = len(federation.shape) == 3 and not federation.raw_shape and federation.normalization is None
    if of_images and x.dtype == np.float32 and (largest := float(np.abs(x).max(initial=0))) > LARGEST:
        advice = "save uint8, which is divided by 255, or set dataset.normalize=standard"
        yield f"dataset: found images of floats up to {largest:.6g}, which are used as they are; {advice}"
    labels = [split.y for split in (dataset.train, dataset.test)]
    if isinstance(federation.objective, Classification) and not any((part == 0).any() for part in labels):
        yield f"dataset: found no sample with label 0 of {dataset.classes} classes; labels begin at 0, not at 1"
