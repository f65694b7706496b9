"""The tasks of a domain-incremental scenario (rotations, permutations, or one dataset per task), and validation splits.

A task is a set of rows of the dataset and a map of their pixels. Images are therefore stored once for all tasks, and a
transformed batch is one gather.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from PIL import Image

from raysim.data.dataset import Array, Dataset, Split, Unread, blank
from raysim.data.text import share_words
from raysim.system import seeding
from raysim.system.errors import ConfigError

Map = npt.NDArray[np.int32]

ROWS = 2**20  # rows of pixels resized at once

SCENARIOS: Mapping[str, str] = {
    "domain_incremental": "raysim.config.scenarios:DomainIncremental",
    "class_incremental": "raysim.config.scenarios:ClassIncremental",
    "by_column": "raysim.config.scenarios:ByColumn",
}
"""Name in YAML (scenario.kind) -> its block. A custom one is f(dataset, tasks, generator, *, keys...) -> list[Task]."""


@dataclass(frozen=True, eq=False)
class Task:
    """One task of the stream."""

    name: str
    """The name in reports."""
    classes: tuple[int, ...]
    """The task's labels, ascending."""
    pixels: Map | None
    """int32 [D]: output feature d is input feature pixels[d], or 0 if that is -1. None leaves samples unchanged."""
    train: npt.NDArray[np.int32]
    """Rows of the dataset's training split."""
    test: npt.NDArray[np.int32]
    """Rows of the dataset's test split."""


def rotations(dataset: Dataset, tasks: int, generator: np.random.Generator) -> list[Task]:
    """Domain-incremental: every task (the first too) rotates all images by a separate angle from U(0, 180) degrees.

    The pixels equal torchvision's `rotate` of a PIL image: nearest neighbor, no expansion, fill 0. The official code of
    Fed-A-GEM uses it; torchvision's rotation of tensors gives other pixels.

    Raises:
        ConfigError: the samples are not images (C, H, W), or are ids.
    """
    _refuse_ids(dataset, "rotation")
    if len(dataset.shape) != 3:
        raise ConfigError(
            f"scenario.shift: rotation needs images (C, H, W), the samples have shape {dataset.shape}; "
            "use permutation, or another dataset"
        )
    angles = [float(generator.uniform(0, 180)) for _ in range(tasks)]
    return [_domain(dataset, f"rotation {angle:.1f}", rotation_map(dataset.shape, angle)) for angle in angles]


def permutations(dataset: Dataset, tasks: int, generator: np.random.Generator) -> list[Task]:
    """Domain-incremental: every task (the first too) permutes the pixels of all samples by a separate random order.

    The H * W positions of images (C, H, W) are permuted alike in all channels, other samples' features all.

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
    if dataset.categories:
        raise ConfigError(
            f"scenario.shift: found {shift} for a table with categories, whose columns cannot change places, allowed: "
            "scenario.kind=by_column or class_incremental"
        )
    if dataset.vocabulary is not None:
        raise ConfigError(
            f"scenario.shift: found {shift} for samples that are ids, such as tokens of text, allowed: "
            "{domains: [...]}; or scenario.kind=class_incremental"
        )


def rotation_map(shape: tuple[int, ...], angle: float) -> Map:
    """Return the map (int32 [C * H * W]) that rotates images of `shape` (C, H, W) by `angle` degrees counter-clockwise.

    PIL rotates an image of pixel numbers, so the map is exactly PIL's.
    """
    channels, height, width = shape
    numbers = np.arange(1, height * width + 1, dtype=np.int32).reshape(height, width)  # from 1: the fill is 0
    rotated = Image.fromarray(numbers).rotate(angle, Image.Resampling.NEAREST, expand=False)
    return _on_each_channel(np.asarray(rotated).reshape(-1) - 1, channels)


def _on_each_channel(positions: npt.NDArray[np.integer], channels: int) -> Map:
    """Return a map of H * W positions (-1: fill) as a map of C * H * W features."""
    starts = np.arange(channels)[:, None] * len(positions)
    return np.where(positions < 0, -1, starts + positions).reshape(-1).astype(np.int32)


def _domain(dataset: Dataset, name: str, pixels: Map) -> Task:
    train, test = (np.arange(len(split), dtype=np.int32) for split in (dataset.train, dataset.test))
    return Task(name, tuple(range(dataset.classes)), pixels, train, test)


def domains(named: Sequence[tuple[str, Dataset]], reference: int) -> tuple[Dataset, list[Task]]:
    """Join datasets over the same classes. Return the joint dataset and a task for each, with the dataset's name.

    PIL's bilinear filter resizes images to the height and width of named[reference]. In a mix of gray and RGB, gray
    images get three equal channels. Other samples must have the same shape in all datasets. Texts get one vocabulary:
    the first dataset's words, then the words that the second adds, and so on.

    Raises:
        ConfigError: the classes differ, or the samples cannot be converted to one shape.
    """
    _check_domains(named, reference)
    shapes = [dataset.shape for _, dataset in named]
    sets = share_words([dataset for _, dataset in named])
    missing = tuple(name for dataset in sets for name in dataset.missing)
    shape = shapes[reference]
    if len(set(shapes)) > 1:
        shape = (max(channels for channels, *_ in shapes), *shape[1:])
        sets = sets if missing else [_convert(dataset, shape[1:], shape[0]) for dataset in sets]
    placeholder_shape = shape if missing else None
    train, train_rows = _join([dataset.train for dataset in sets], placeholder_shape)
    test, test_rows = _join([dataset.test for dataset in sets], placeholder_shape)
    classes = sets[reference].classes
    tasks = [
        Task(name, tuple(range(classes)), None, rows_of_train, rows_of_test)
        for (name, _), rows_of_train, rows_of_test in zip(named, train_rows, test_rows, strict=True)
    ]
    vocabulary = max((dataset.vocabulary or 0 for dataset in sets), default=0) or None
    notes, doubts = (
        tuple(f"{name}: {line}" for (name, _), lines in zip(named, of_sets, strict=True) for line in lines)
        for of_sets in ([dataset.notes for dataset in sets], [dataset.doubts for dataset in sets])
    )
    joined = replace(sets[reference], train=train, test=test, missing=missing, vocabulary=vocabulary)
    return replace(joined, notes=notes, doubts=doubts), tasks


def _check_domains(named: Sequence[tuple[str, Dataset]], reference: int) -> None:
    first_name, first = named[reference]
    for name, other in named:
        where = f"scenario.shift.domains: {name} has"
        if other.categories:
            raise ConfigError(
                f"{where} categories, whose ids differ between tables; join the tables, and use scenario.kind=by_column"
            )
        if other.tokenizer != first.tokenizer or other.arrays != first.arrays:
            raise ConfigError(
                f"{where} texts of another tokenizer or length than {first_name}; give all the same dataset.tokenizer, "
                "length and token_types"
            )
        if other.names is not None and first.names is not None and other.names != first.names:
            if {*other.names} == {*first.names}:
                raise ConfigError(f"{where} the classes of {first_name} in another order; all must have the same order")
            odd = min(set(other.names) ^ set(first.names))
            owner = name if odd in other.names else first_name
            raise ConfigError(f"scenario.shift.domains: only {owner} has a class '{odd}'; all must have the same ones")
        if other.classes != first.classes:
            raise ConfigError(
                f"{where} {other.classes} classes, {first_name} has {first.classes}; all must have the same ones"
            )
        if other.train.x.dtype != first.train.x.dtype:
            raise ConfigError(
                f"{where} samples of {other.train.x.dtype}, {first_name} of {first.train.x.dtype}; save all as uint8"
            )
        y, first_y = other.train.y, first.train.y
        if y.shape[1:] != first_y.shape[1:] or y.dtype != first_y.dtype:
            raise ConfigError(
                f"{where} targets of {y.dtype} {y.shape[1:]}, {first_name} of {first_y.dtype} {first_y.shape[1:]}; "
                "all must be alike"
            )
        if other.shape == first.shape:
            continue
        if len(other.shape) != 3 or len(first.shape) != 3:
            raise ConfigError(
                f"{where} samples of shape {other.shape}, {first_name} of {first.shape}; only images (C, H, W) can be "
                "made alike"
            )
        if other.shape[0] != first.shape[0] and {other.shape[0], first.shape[0]} != {1, 3}:
            raise ConfigError(
                f"{where} {other.shape[0]} channels, {first_name} has {first.shape[0]}; only grey (1) and RGB (3) can "
                "be made alike"
            )


def _convert(dataset: Dataset, size: tuple[int, ...], channels: int) -> Dataset:
    train, test = (
        replace(split, x=np.repeat(x, channels // x.shape[1], axis=1))
        for split in (dataset.train, dataset.test)
        for x in [resize(_in_memory(split.x), size)]
    )
    return replace(dataset, train=train, test=test)


def _in_memory(x: Array | Unread) -> Array:
    """Return samples that can be changed. Raises ConfigError: they are read from files as they are needed."""
    if isinstance(x, Unread):
        found = f"found images of {' x '.join(map(str, x.shape[1:]))} that are read as they are needed (load: disk)"
        raise ConfigError(f"scenario.shift.domains: {found}, allowed: the same size and grey for all datasets")
    return x


def resize(images: Array, size: tuple[int, ...]) -> Array:
    """Return images [N, C, H, W] (uint8 or float32) as [N, C, *size], resized by PIL's bilinear filter.

    PIL resizes along the rows, rounds, then resizes along the columns. Two calls on a stack of images do the same, the
    second on transposes. (PIL may start with the columns if the height shrinks and the width grows. Then a pixel can
    differ by one gray level.)
    """
    height, width = size
    return _resize_rows(_resize_rows(images, width).swapaxes(2, 3), height).swapaxes(2, 3)


def _resize_rows(images: Array, width: int) -> Array:
    """Return images [N, C, H, W] resized to [N, C, H, width]."""
    n, channels, height, before = images.shape
    if before == width:
        return images
    rows = np.ascontiguousarray(images).reshape(-1, before)
    parts = [
        np.asarray(Image.fromarray(part).resize((width, len(part)), Image.Resampling.BILINEAR))
        for part in (rows[start : start + ROWS] for start in range(0, len(rows), ROWS))
    ]
    return np.concatenate(parts).reshape(n, channels, height, width)


def _join(splits: Sequence[Split], shape: tuple[int, ...] | None) -> tuple[Split, list[npt.NDArray[np.int32]]]:
    """Return the splits concatenated, and the rows of each. With a `shape`, the samples are placeholders of it.

    Columns are kept that all splits have, with values of one kind.
    """
    sizes = [len(split) for split in splits]
    rows = np.split(np.arange(sum(sizes), dtype=np.int32), np.cumsum(sizes)[:-1])
    joined = (
        _join_samples([split.x for split in splits]) if shape is None else blank(sum(sizes), shape, splits[0].x.dtype)
    )
    clients = [split.clients for split in splits if split.clients is not None]
    client_ids = np.concatenate(clients) if len(clients) == len(splits) else None
    shared = {
        name: np.concatenate([split.columns[name] for split in splits])
        for name in splits[0].columns
        if all(name in split.columns for split in splits)
        and len({split.columns[name].dtype.kind for split in splits}) == 1
    }
    return Split(joined, np.concatenate([split.y for split in splits]), client_ids, shared), rows


def _join_samples(x: Sequence[Array | Unread]) -> Array | Unread:
    unread, arrays = [one for one in x if isinstance(one, Unread)], [one for one in x if not isinstance(one, Unread)]
    if unread and arrays:
        found = f"found load: disk for {len(unread)} of {len(x)} datasets (null chooses by size)"
        raise ConfigError(f"scenario.shift.domains: {found}, allowed: the same for all")
    return unread[0].join(unread[1:]) if unread else np.concatenate(arrays)


def hold_out(dataset: Dataset, tasks: Sequence[Task], fraction: float, seed: int) -> tuple[Dataset, list[Task]]:
    """Return the dataset with a part of its training samples as the test split, and the same tasks over it.

    `fraction` of each task's training samples (rounded, at least one) is drawn with the run's seed and removed from
    training. A sample of several tasks (as with rotations) is held out in all of them or in none. The real test split
    is dropped.

    Raises:
        ConfigError: a task has only one training sample, or its samples are all held out or none is.
    """
    is_held = np.zeros(len(dataset.train), dtype=bool)
    is_drawn = np.zeros(len(dataset.train), dtype=bool)
    for number, task in enumerate(tasks):
        rows = task.train[~is_drawn[task.train]]
        if len(task.train) < 2:
            raise ConfigError(
                f"evaluation.split: found validation, but task {number + 1} has one training sample, allowed: test"
            )
        if len(rows) > 1:
            count = min(max(1, round(fraction * len(rows))), len(rows) - 1)
            is_held[seeding.generator(seed, "validation", number).permutation(rows)[:count]] = True
        is_drawn[rows] = True
    for number, task in enumerate(tasks):  # tasks may share samples
        if not 0 < is_held[task.train].sum() < len(task.train):
            words = f"found validation, for which all or no samples of task {number + 1} are held out with other tasks'"
            raise ConfigError(f"evaluation.split: {words}, allowed: test, or another evaluation.validation_fraction")
    train, test = (dataset.train.take(part) for part in (~is_held, is_held))
    return replace(dataset, train=train, test=test), [_renumber(task, is_held) for task in tasks]


def _renumber(task: Task, held: npt.NDArray[np.bool_]) -> Task:
    """Return the task with its rows renumbered for the two new splits. Both keep the order of the rows."""
    place = np.where(held, np.cumsum(held), np.cumsum(~held)) - 1
    train, test = (place[task.train[held[task.train] == part]].astype(np.int32) for part in (False, True))
    return replace(task, train=train, test=test)
