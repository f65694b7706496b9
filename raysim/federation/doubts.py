"""Warnings about data that are allowed, but are likely a mistake."""

from collections.abc import Iterator

import numpy as np

from raysim.config.error_text import show
from raysim.federation.federation import Federation
from raysim.objectives.classification import Classification

FIRST = 1000  # samples that are looked at
LARGEST = 16.0  # of a float image that a model can learn from as it is


def describe_doubts(federation: Federation) -> list[str]:
    """Return warnings: those of the loader, and for unscaled images, untrained classes and tasks of one class."""
    of_data = [] if federation.dataset.missing else [*_doubts(federation)]
    return [*federation.dataset.doubts, *of_data, *_doubts_of_tasks(federation)]


def _doubts(federation: Federation) -> Iterator[str]:
    dataset = federation.dataset
    x = dataset.train.x
    of_images = len(federation.shape) == 3 and not federation.raw_shape and federation.normalization is None
    if of_images and x.dtype == np.float32 and (largest := float(np.abs(x[:FIRST]).max(initial=0))) > LARGEST:
        advice = "save uint8, which is divided by 255, or set dataset.normalize=standard"
        yield f"dataset: found images of floats up to {largest:.6g}, which are used as they are; {advice}"
    if len(federation.shape) == 3 and not federation.raw_shape and x.shape[-1] in (1, 3) and min(x.shape[1:3]) > 4:
        high, wide, channels = x.shape[1:]
        advice = f"if these are {high} x {wide} pixels, save [N, {channels}, {high}, {wide}]"
        yield f"dataset: found {high} channels of {wide} x {channels} pixels, as channels come first; {advice}"
    if not isinstance(federation.objective, Classification):
        return
    trained, tested = (np.bincount(split.y, minlength=dataset.classes) for split in (dataset.train, dataset.test))
    absent = np.flatnonzero(trained == 0).tolist()
    if not trained[0] and not tested[0]:
        yield f"dataset: found no sample with label 0 of {dataset.classes} classes; labels begin at 0, not at 1"
    elif absent:
        tests = f", but with {tested[absent].sum():,} test samples" * bool(tested[absent].any())
        problem = f"{len(absent)} of {dataset.classes} classes without training samples, {show(absent)}{tests}"
        yield f"dataset: found {problem}; no model learns them; add samples, or number the labels without gaps"


def _doubts_of_tasks(federation: Federation) -> Iterator[str]:
    single = sum(len(task.classes) == 1 for task in federation.tasks)
    if single and "task_il" in federation.protocols:
        problem = f"found {single} of {len(federation.tasks)} tasks with one class"
        yield f"scenario.tasks: {problem}, so their task-IL accuracy is always 100%; have fewer tasks, or read class-IL"
