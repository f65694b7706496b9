"""Load a dataset: call its function and check the result."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from raysim.config import Config, load
from raysim.config.bundled import bundled_names
from raysim.config.component import Component
from raysim.config.error_text import show
from raysim.data import DATASETS
from raysim.data.columns import check_columns
from raysim.data.dataset import Array, Dataset, MissingData, Split, Unread, read_all
from raysim.objectives.objective import IGNORED
from raysim.system.capacity import require_memory
from raysim.system.custom_code import is_custom, place_of
from raysim.system.errors import ConfigError, locate_errors, single_line
from raysim.system.home import expand, find_home
from raysim.system.seeding import guard_globals

DEFAULT_ROOT = Path("~/.cache/raysim")
NO_HOME = Path(os.devnull) / "no-home"  # the root of a user without a home folder, in which nothing can be made
CLASS_BYTES = 1000  # least memory of a class or an id: its weights, their gradients and the like


def resolve_root(root: str | None) -> Path:
    """Return the folder of the datasets: `root`, else $RAYSIM_DATA, else ~/.cache/raysim (created if absent).

    Raises:
        ConfigError: `root` or $RAYSIM_DATA is set and is not a folder. Only the default is created.
    """
    key, path = choose_root(root)
    if key is None:
        with suppress(OSError):  # a read-only home matters only if a dataset is stored there
            path.mkdir(parents=True, exist_ok=True)
    elif not path.is_dir():
        raise ConfigError(f"{key}: there is no folder {path}; make it, or leave {key} out to use {DEFAULT_ROOT}")
    return path


def choose_root(root: str | None) -> tuple[str | None, Path]:
    """Return the folder of the datasets, which may not exist, and what sets it: a key, a variable or nothing."""
    if root is not None:
        return "dataset.root", expand("dataset.root", root).absolute()
    variable = os.environ.get("RAYSIM_DATA")
    if variable:
        return "RAYSIM_DATA", expand("RAYSIM_DATA", variable).absolute()
    return None, NO_HOME if find_home() is None else DEFAULT_ROOT.expanduser()


def load_dataset(
    function: Callable[..., Dataset], root: str | None, download: bool, keys: Mapping[str, Any]
) -> Dataset:
    """Call a dataset's `function` with its YAML `keys` and check the result.

    Raises:
        MissingData: the files are missing or cannot be read.
        ConfigError: the root is missing, or `check_dataset` refuses the result.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        instead = "a generator of its own with a fixed seed, such as np.random.default_rng(0)"
        guard = guard_globals(f"dataset {name}", None, ConfigError, instead) if is_custom(function) else nullcontext()
        with locate_errors(f"dataset {name}"), guard:
            folder = resolve_root(root)
            with _home_explained(folder):
                dataset = function(folder, download, **keys)
        checked = check_dataset(dataset, place_of(function) if is_custom(function) else name)
    except OSError as error:
        raise MissingData(f"dataset {name}: its files cannot be read: {error}"[:300]) from error
    notes, doubts = (tuple(map(single_line, lines)) for lines in (checked.notes, checked.doubts))
    return replace(checked, notes=notes, doubts=doubts)  # they have names of files and columns, with any characters


@contextmanager
def _home_explained(root: Path) -> Iterator[None]:
    """Say of a dataset without its files that there is no folder for them, as the user has no home folder."""
    try:
        yield
    except (OSError, MissingData) as error:
        if root != NO_HOME:
            raise
        words = "this user has no home folder for datasets; set dataset.root or RAYSIM_DATA to a folder"
        raise MissingData(f"{words} ({error})", getattr(error, "declared", None)) from error


def download(
    config: str | Path | Mapping[str, object] | Config, overrides: Sequence[str] | Mapping[str, object] = ()
) -> Iterator[str]:
    """Download what is missing of a config's datasets, and yield a line for each. Archives that are there are unpacked.

    A dataset's name that is no config's name stands for that dataset with its default keys.

    Raises:
        ConfigError: the config is wrong, or files are missing and could not be downloaded; none is there in part.
    """
    resolved = load(_one_dataset(config) if isinstance(config, str) and config in DATASETS else config, overrides)
    root = resolved.dataset.root
    for component in list_datasets(resolved):
        found = load_dataset(component.function(), root, True, component.keys())
        sizes = f"{len(found.train):,} training and {len(found.test):,} test samples"
        yield f"{component.title}: {sizes} in {resolve_root(root)}"


def list_datasets(config: Config) -> list[Component]:
    """Return the datasets of a run: of every domain, and the one without labels."""
    second = [] if config.dataset.unlabelled is None else [config.dataset.unlabelled]
    return [*(config.domains or [config.dataset]), *second]


def _one_dataset(name: str) -> str | dict[str, object]:
    """Return a config with this dataset, or the name if there is a config of this name."""
    if name in bundled_names() or os.path.exists(name):
        return name
    return {
        "name": name,
        "dataset": {"name": name},
        "scenario": {"kind": "class_incremental", "tasks": 1},
        "clients": {"count": 1},
        "model": {"name": "mlp"},
        "training": {"rounds_per_task": 1},
    }


def check_dataset(dataset: Dataset, name: str) -> Dataset:
    """Return `dataset` if it is valid. `name` is its name in errors.

    Raises:
        ConfigError: it is not a Dataset of two splits that agree in shape and dtype. Samples must be uint8, float32 or
            int64, and finite. Every sample needs a target, and a client id if there are any. Labels must be in
            0..classes-1 and ids in 0..vocabulary-1. Targets [N, L] may also be IGNORED. Class names, if given, must be
            str and match the classes in number.
    """
    if not isinstance(dataset, Dataset):
        raise ConfigError(f"dataset {name}: got {type(dataset).__name__}; return a raysim.data.dataset.Dataset")
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        arrays = () if not isinstance(split, Split) else (split.x, split.y, *[split.clients][split.clients is None :])
        if not arrays or not all(isinstance(array, np.ndarray | Unread) for array in arrays):
            kinds = ", ".join(type(array).__name__ for array in arrays or (split,))
            raise ConfigError(f"dataset {name}, {part} split: found {kinds}; use Split(x, y) of numpy arrays")
    if not isinstance(dataset.classes, int) or dataset.classes < 1:
        raise ConfigError(f"dataset {name}: classes is {dataset.classes!r}; it must be an int, at least 1")
    require_memory(dataset.classes * CLASS_BYTES, f"dataset {name}", f"{dataset.classes} classes")
    names = dataset.names
    if names is not None and not (isinstance(names, tuple | list) and all(isinstance(one, str) for one in names)):
        raise ConfigError(f"dataset {name}: names is {show(names)}; it must be None or a tuple of str")
    if names is not None and len(names) != dataset.classes:
        raise ConfigError(f"dataset {name}: {len(names)} names for {dataset.classes} classes; name each once")
    for part, split in (("train", dataset.train), ("test", dataset.test)):
        _check_split(split, f"dataset {name}, {part} split", dataset.classes)
    check_columns(dataset, name)
    train, test = dataset.train.x, dataset.test.x
    if train.shape[1:] != test.shape[1:] or train.dtype != test.dtype:
        raise ConfigError(
            f"dataset {name}: training samples are {train.dtype} {train.shape[1:]}, test samples are {test.dtype} "
            f"{test.shape[1:]}; they must be alike"
        )
    y, y_of_tests = dataset.train.y, dataset.test.y
    if y.shape[1:] != y_of_tests.shape[1:] or y.dtype != y_of_tests.dtype:
        raise ConfigError(
            f"dataset {name}: training targets are {y.dtype} {y.shape[1:]}, test targets are {y_of_tests.dtype} "
            f"{y_of_tests.shape[1:]}; they must be alike"
        )
    _check_categories(dataset, name)
    _check_arrays(dataset, name)
    return _check_ids(dataset, name) if train.dtype == np.int64 else dataset


def _check_arrays(dataset: Dataset, name: str) -> None:
    """Refuse rows of another length than the arrays', and ids that an array does not have."""
    total = sum(prod(shape) for _, shape, _ in dataset.arrays)
    for part, x in (("train", dataset.train.x), ("test", dataset.test.x)) if dataset.arrays else ():
        if x.ndim != 2 or x.shape[1] != total:
            raise ConfigError(f"dataset {name}, {part} split: x is {x.shape}; use [N, {total}] for these arrays")
        begin = 0
        for array, shape, ids in dataset.arrays:
            values, begin = read_all(x)[:, begin : begin + prod(shape)], begin + prod(shape)
            if ids is not None and not 0 <= values.min() <= values.max() < ids:
                found = f"found ids from {values.min()} to {values.max()} in {array}"
                raise ConfigError(f"dataset {name}, {part} split: {found}; allowed are 0..{ids - 1}")


def _check_categories(dataset: Dataset, name: str) -> None:
    """Refuse category ids that are not whole numbers below their number."""
    sizes = dataset.categories
    if not sizes:
        return
    for part, x in (("train", dataset.train.x), ("test", dataset.test.x)):
        if x.dtype != np.float32 or x.ndim != 2 or x.shape[1] < len(sizes):
            raise ConfigError(
                f"dataset {name}, {part} split: x is {x.dtype} of shape {x.shape}; use float32 of shape [N, D], with "
                f"ids of the {len(sizes)} categories in the last columns"
            )
        for size, ids in zip(sizes, read_all(x)[:, -len(sizes) :].T, strict=True):
            if ids.min() < 0 or ids.max() >= size or (ids != np.rint(ids)).any():
                found = f"ids from {ids.min():g} to {ids.max():g}"
                raise ConfigError(
                    f"dataset {name}, {part} split: found {found} of a category; use whole numbers from 0 to {size - 1}"
                )


def _check_ids(dataset: Dataset, name: str) -> Dataset:
    """Return a dataset of ids with its `vocabulary` set."""
    samples = (read_all(dataset.train.x), read_all(dataset.test.x))
    lowest, highest = min(int(x.min()) for x in samples), max(int(x.max()) for x in samples)
    ids = dataset.vocabulary or highest + 1
    if lowest < 0 or highest >= ids:
        raise ConfigError(f"dataset {name}: ids (int64) run from {lowest} to {highest}; allowed are 0..{ids - 1}")
    require_memory(ids * CLASS_BYTES, f"dataset {name}", f"{ids} ids")
    return replace(dataset, vocabulary=ids)


def _check_split(split: Split, where: str, classes: int) -> None:
    x, y = split.x, split.y
    if x.dtype not in (np.uint8, np.float32, np.int64):
        raise ConfigError(f"{where}: x is {x.dtype}; use uint8 (0..255), float32, or int64 for ids")
    if y.dtype not in (np.int64, np.float32) or y.ndim < 1 or 0 in y.shape[1:]:
        advice = "use int64 of shape [N], or int64 or float32 of shape [N, ...]"
        raise ConfigError(f"{where}: y is {y.dtype} of shape {y.shape}; {advice}")
    if x.ndim < 2 or 0 in x.shape[1:]:
        raise ConfigError(f"{where}: x has shape {x.shape}; use [N, features] or [N, C, H, W]")
    if len(x) != len(y):
        raise ConfigError(f"{where}: {len(x)} samples but {len(y)} labels; there must be one label per sample")
    if not len(y):
        raise ConfigError(f"{where}: no samples; at least one is needed")
    if y.dtype == np.float32:
        if not np.isfinite(y).all():
            raise ConfigError(f"{where}: y holds NaN or infinite values; every value must be finite")
    else:
        counted = y[y != IGNORED] if y.ndim == 2 else y  # which objectives ignore positions is not known here
        lowest, highest = counted.min(initial=classes), counted.max(initial=-1)
        if counted.size and (lowest < 0 or highest >= classes):
            raise ConfigError(f"{where}: labels run from {lowest} to {highest}; allowed are 0..{classes - 1}")
    if x.dtype == np.float32 and not np.isfinite(read_all(x)).all():
        raise ConfigError(f"{where}: x holds NaN or infinite values; every value must be finite")
    if split.clients is not None:
        check_clients(split.clients, f"{where}: clients", len(y))


def check_clients(clients: Array, where: str, samples: int) -> Array:
    """Return client ids if they are one integer or string per sample. Raises ConfigError."""
    if clients.dtype.kind not in "iuU" or clients.shape != (samples,):
        kind = f"{clients.dtype} of shape {clients.shape}"
        raise ConfigError(f"{where}: found {kind}; use whole numbers or strings of shape [{samples}], an id each")
    if clients.dtype.kind == "U" and (empty := np.flatnonzero(clients == "")).size:
        problem = f"{empty.size:,} samples without a client id, the first with index {empty[0]}"
        raise ConfigError(f"{where}: found {problem}; use a text that is not empty, or leave these samples out")
    return clients
