"""The tasks of a domain-incremental scenario: rotations or permutations of one data set, or data sets of their own; and
the training samples of every task that are held out to validate on.

A task is some rows of the data set and a map of their pixels, so that images are stored once for all tasks and a
transformed batch is one gather.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from raysim.data.dataset import Array, Dataset, Split, blank
from raysim.data.text import share_words
from raysim.system import seeding
from raysim.system.errors import ConfigError

Map = npt.NDArray[np.int32]

ROWS = 2**20  # rows of pixels resized at once

SCENARIOS: Mapping[str, str] = {
    "domain_incremental": "raysim.config.scenarios:DomainIncremental",
    "class_incremental": "raysim.config.scenarios:ClassIncremental",
}
"""Name in YAML (scenario.kind) -> its block. A user's own is f(dataset, tasks, generator, *, keys...) -> list[Task]."""


@dataclass(frozen=True, eq=False)
class Task:
    """One task of the stream.

    name: its name in reports. classes: the labels that exist in it, ascending.
    pixels: int32 [D], D = product of the sample's shape: output feature d shows input feature pixels[d], and 0 where
        that is -1; None shows the samples as they are.
    train, test: int32 rows of the data set's splits.
    """

    name: str
    classes: tuple[int, ...]
    pixels: Map | None
    train: npt.NDArray[np.int32]
    test: npt.NDArray[np.int32]


def rotations(dataset: Dataset, tasks: int, generator: np.random.Generator) -> list[Task]:
    """Domain-incremental: every task (the first too) rotates all images by its own angle, from U(0, 180) degrees.

    The pixels are those of torchvision's `rotate` on a PIL image: nearest neighbour, no expansion, fill 0 (the
    official code of Fed-A-GEM; torchvision's rotation of tensors gives others).

    Raises:
        ConfigError: the samples are not images (C, H, W), or are ids.
    """
    _refuse_ids(dataset, "rotation")
    if len(dataset.shape) != 3:
        raise ConfigError(
            f"scenario.shift: rotation needs images (C, H, W), the samples have shape {dataset.shape}; "
            "use permutation, or another data set"
        )
    angles = [float(generator.uniform(0, 180)) for _ in range(tasks)]
    return [_domain(dataset, f"rotation {angle:.1f}", rotation_map(dataset.shape, angle)) for angle in angles]


def permutations(dataset: Dataset, tasks: int, generator: np.random.Generator) -> list[Task]:
    """Domain-incremental: every task (the first too) has its own random order of the pixels of all samples.

    Images (C, H, W) have their H * W positions permuted, all channels alike; other samples all their features.

    Raises:
        ConfigError: the samples are ids.
    """
    _refuse_ids(dataset, "permutation")
    shape = dataset.shape
    channels, positions = (shape[0], shape[1] * shape[2]) if len(shape) == 3 else (1, int(np.prod(shape)))
    return [
        _domain(dataset, f"permutation {number}", _on_each_channel(generator.permutation(positions), channels))
        for number in range(1, tasks + 1)
    ]


def _refuse_ids(dataset: Dataset, shift: str) -> None:
    if dataset.vocabulary is not None:
        raise ConfigError(
            f"scenario.shift: found {shift} for samples that are ids, such as tokens of text, allowed: "
            "{domains: [...]}; or scenario.kind=class_incremental"
        )


def rotation_map(shape: tuple[int, ...], angle: float) -> Map:
    """Return the map (int32 [C * H * W]) that rotates images of `shape` (C, H, W) by `angle` degrees counter-clockwise.

    It is read off an image of pixel numbers that PIL has rotated, so it is exactly PIL's.
    """
    channels, height, width = shape
    numbers = np.arange(1, height * width + 1, dtype=np.int32).reshape(height, width)  # from 1: the fill is 0
    turned = Image.fromarray(numbers).rotate(angle, Image.Resampling.NEAREST, expand=False)
    return _on_each_channel(np.asarray(turned).reshape(-1) - 1, channels)


def _on_each_channel(positions: npt.NDArray[np.integer], channels: int) -> Map:
    """Return a map of H * W positions (-1: fill) as a map of C * H * W features."""
    starts = np.arange(channels)[:, None] * len(positions)
    return np.where(positions < 0, -1, starts + positions).reshape(-1).astype(np.int32)


def _domain(dataset: Dataset, name: str, pixels: Map) -> Task:
    train, test = (np.arange(len(split), dtype=np.int32) for split in (dataset.train, dataset.test))
    return Task(name, tuple(range(dataset.classes)), pixels, train, test)


def domains(named: Sequence[tuple[str, Dataset]], reference: int) -> tuple[Dataset, list[Task]]:
    """Join data sets over the same classes into one, and return it with one task for each, named like it.

    Images are resized to the height and width of named[reference] by PIL's bilinear filter; where some are grey and
    some RGB, the grey ones get three equal channels. Other samples must have the same shape in all data sets. Texts get
    one vocabulary: the first's words, then those that the second adds, and so on.

    Raises:
        ConfigError: their classes differ, or their samples cannot be made alike.
    """
    _check(named, reference)
    shapes = [found.shape for _, found in named]
    sets = share_words([found for _, found in named])
    missing = tuple(name for found in sets for name in found.missing)
    shape = shapes[reference]
    if len(set(shapes)) > 1:
        shape = (max(channels for channels, *_ in shapes), *shape[1:])
        sets = sets if missing else [_make_alike(found, shape[1:], shape[0]) for found in sets]
    valueless = shape if missing else None
    train, train_rows = _join([found.train for found in sets], valueless)
    test, test_rows = _join([found.test for found in sets], valueless)
    classes = sets[reference].classes
    tasks = [
        Task(name, tuple(range(classes)), None, own_train, own_test)
        for (name, _), own_train, own_test in zip(named, train_rows, test_rows, strict=True)
    ]
    vocabulary = max((found.vocabulary or 0 for found in sets), default=0) or None
    names, words = sets[reference].names, sets[reference].words
    return Dataset(train, test, classes, names, missing, vocabulary, words), tasks


def _check(named: Sequence[tuple[str, Dataset]], reference: int) -> None:
    first_name, first = named[reference]
    for name, found in named:
        where = f"scenario.shift.domains: {name} has"
        if found.names is not None and first.names is not None and found.names != first.names:
            only = min(set(found.names) ^ set(first.names))
            whose = name if only in found.names else first_name
            raise ConfigError(f"scenario.shift.domains: only {whose} has a class '{only}'; all must have the same ones")
        if found.classes != first.classes:
            raise ConfigError(
                f"{where} {found.classes} classes, {first_name} has {first.classes}; all must have the same ones"
            )
        if found.train.x.dtype != first.train.x.dtype:
            raise ConfigError(
                f"{where} samples of {found.train.x.dtype}, {first_name} of {first.train.x.dtype}; save all as uint8"
            )
        own, others = found.train.y, first.train.y
        if own.shape[1:] != others.shape[1:] or own.dtype != others.dtype:
            raise ConfigError(
                f"{where} targets of {own.dtype} {own.shape[1:]}, {first_name} of {others.dtype} {others.shape[1:]}; "
                "all must be alike"
            )
        if found.shape == first.shape:
            continue
        if len(found.shape) != 3 or len(first.shape) != 3:
            raise ConfigError(
                f"{where} samples of shape {found.shape}, {first_name} of {first.shape}; only images (C, H, W) can be "
                "made alike"
            )
        if found.shape[0] != first.shape[0] and {found.shape[0], first.shape[0]} != {1, 3}:
            raise ConfigError(
                f"{where} {found.shape[0]} channels, {first_name} has {first.shape[0]}; only grey (1) and RGB (3) can "
                "be made alike"
            )


def _make_alike(found: Dataset, size: tuple[int, ...], channels: int) -> Dataset:
    train, test = (
        replace(split, x=np.repeat(x, channels // x.shape[1], axis=1))
        for split in (found.train, found.test)
        for x in [resize(split.x, size)]
    )
    return replace(found, train=train, test=test)


def resize(images: Array, size: tuple[int, ...]) -> Array:
    """Return images [N, C, H, W] (uint8 or float32) as [N, C, *size], resized by PIL's bilinear filter.

    PIL resizes along the rows, rounds, then resizes along the columns. Two calls on many images stacked into one do the
    same, the second on their transposes. (PIL may start with the columns where the height shrinks and the width grows,
    which can make a difference of one grey level.)
    """
    height, width = size
    return _along_rows(_along_rows(images, width).swapaxes(2, 3), height).swapaxes(2, 3)


def _along_rows(images: Array, width: int) -> Array:
    """Return images [N, C, H, W] resized to [N, C, H, width]."""
    n, channels, height, before = images.shape
    if before == width:
        return images
    tall = np.ascontiguousarray(images).reshape(-1, before)
    parts = [
        np.asarray(Image.fromarray(part).resize((width, len(part)), Image.Resampling.BILINEAR))
        for part in (tall[start : start + ROWS] for start in range(0, len(tall), ROWS))
    ]
    return np.concatenate(parts).reshape(n, channels, height, width)


def _join(splits: Sequence[Split], shape: tuple[int, ...] | None) -> tuple[Split, list[npt.NDArray[np.int32]]]:
    """Return the splits one behind the other, and the rows of each; with a shape, its samples have no values."""
    sizes = [len(split) for split in splits]
    rows = np.split(np.arange(sum(sizes), dtype=np.int32), np.cumsum(sizes)[:-1])
    x = [split.x for split in splits]
    joined = np.concatenate(x) if shape is None else blank(sum(sizes), shape, x[0].dtype)
    clients = [split.clients for split in splits if split.clients is not None]
    whose = np.concatenate(clients) if len(clients) == len(splits) else None
    return Split(joined, np.concatenate([split.y for split in splits]), whose), rows


def hold_out(dataset: Dataset, tasks: Sequence[Task], fraction: float, seed: int) -> tuple[Dataset, list[Task]]:
    """Return the data set with a part of its training samples as the test split, and the same tasks over it.

    Of every task's training samples `fraction` (rounded, at least one) is drawn with the run's seed and taken out of
    training. A sample of several tasks, rotated say, is held out in all of them or in none. The true test split is
    dropped.

    Raises:
        ConfigError: a task has one training sample only.
    """
    held = np.zeros(len(dataset.train), dtype=bool)
    drawn = np.zeros(len(dataset.train), dtype=bool)
    for number, task in enumerate(tasks):
        rows = task.train[~drawn[task.train]]
        if len(task.train) < 2:
            raise ConfigError(
                f"evaluation.split: found validation, but task {number + 1} has one training sample, allowed: test"
            )
        if len(rows) > 1:
            count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
            held[seeding.generator(seed, "validation", number).permutation(rows)[:count]] = True
        drawn[rows] = True
    train, test = (dataset.train.take(part) for part in (~held, held))
    return replace(dataset, train=train, test=test), [_move(task, held) for task in tasks]


def _move(task: Task, held: npt.NDArray[np.bool_]) -> Task:
    """Return the task with its rows renumbered for the two new splits, which keep the order of the rows."""
    place = np.where(held, np.cumsum(held), np.cumsum(~held)) - 1
    train, test = (place[task.train[held[task.train] == part]].astype(np.int32) for part in (False, True))
    return replace(task, train=train, test=test)
