"""Loading a data set: its root folder, its checks, and the part of its training samples that is used."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from raysim.data.dataset import Dataset, Split, check_dataset
from raysim.system.errors import ConfigError

DEFAULT_ROOT = Path("~/.cache/raysim")


def resolve_root(root: str | None) -> Path:
    """Return the folder of the data sets: `root`, else $RAYSIM_DATA, else ~/.cache/raysim (made if absent).

    Raises:
        ConfigError: `root` or $RAYSIM_DATA is given and is not a folder; only the default is ever made.
    """
    given = [("dataset.root", root), ("RAYSIM_DATA", os.environ.get("RAYSIM_DATA") or None)]
    for key, value in given:
        if value is None:
            continue
        path = Path(value).expanduser().absolute()
        if not path.is_dir():
            raise ConfigError(f"{key}: there is no folder {path}; make it, or leave {key} out to use {DEFAULT_ROOT}")
        return path
    path = DEFAULT_ROOT.expanduser()
    with suppress(OSError):  # a home that cannot be written to is an error only for a set to be stored there
        path.mkdir(parents=True, exist_ok=True)
    return path


def load_dataset(
    function: Callable[..., Dataset], root: str | None, download: bool, keys: Mapping[str, Any]
) -> Dataset:
    """Call a data set's `function` with its YAML `keys` and check what it returns.

    Raises:
        ConfigError: the root or the files are missing or cannot be read, or the data break the rules of
            `check_dataset`.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        return check_dataset(function(resolve_root(root), download, **keys), name)
    except OSError as error:
        raise ConfigError(f"data set {name}: its files cannot be read: {error}"[:300]) from error


def subsample(dataset: Dataset, train_samples: int, generator: np.random.Generator) -> Dataset:
    """Return the data set with `train_samples` of its training samples, drawn without replacement; tests stay whole.

    Raises:
        ConfigError: it has fewer.
    """
    train = dataset.train
    if train_samples > len(train):
        raise ConfigError(f"dataset.train_samples: found {train_samples}, allowed: 1 to {len(train)}, which there are")
    rows = np.sort(generator.permutation(len(train))[:train_samples])
    return replace(dataset, train=Split(train.x[rows], train.y[rows]))
