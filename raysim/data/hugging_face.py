"""Datasets of the Hugging Face hub as a run's data. Images and labels are read once, when a run starts."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, doc
from PIL import Image

from raysim.config.error_text import nearest, shorten, show
from raysim.data.dataset import Array, Dataset, MissingData, Split, channels_first
from raysim.data.decoding import resize
from raysim.system.errors import ConfigError
from raysim.system.importing import import_extra


def hugging_face(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("its name on the hub, or a folder of files that load_dataset reads")],
    train: Annotated[str, doc("the split to train on, as load_dataset takes it: train[:90%] is a part")] = "train",
    test: Annotated[str, doc("the split to test on")] = "test",
    image: Annotated[str, doc("the column of the images")] = "image",
    label: Annotated[str, doc("the column of the labels")] = "label",
    client: Annotated[str | None, doc("the column of client ids, for partition=natural")] = None,
    size: Annotated[int, Ge(1), doc("height and width that the images are made")] = 32,
    grey: Annotated[bool, doc("whether the images become grey; else RGB")] = False,
) -> Dataset:
    """Images of a Hugging Face dataset, resized to `size` x `size` (the extra hugging_face).

    Raises:
        MissingData: the dataset cannot be read.
        ConfigError: there is no such split or column, or it has no images, labels or client ids.
    """
    datasets = import_extra("datasets", "hugging_face")

    where, cache = datasets.DownloadConfig(local_files_only=not download), root / "hugging_face"

    def load(key: str, wanted: str) -> Any:
        try:
            return datasets.load_dataset(path, split=wanted, cache_dir=str(cache), download_config=where)
        except OSError as error:  # also without a network
            problem = f"found {show(path)}, which is not in {cache} and cannot be read ({shorten(str(error))})"
            advice = "copy that folder from a machine with a network, or set dataset.path to a folder of the files"
            raise MissingData(f"dataset.path: {problem}; {advice}") from error
        except ValueError as error:  # as for a split that it does not have
            raise ConfigError(f"dataset.{key}: found {show(wanted)} of {show(path)}: {shorten(str(error))}") from error

    rows = {key: load(key, wanted) for key, wanted in (("train", train), ("test", test))}
    y = {key: _labels(_column(of, "label", label), label) for key, of in rows.items()}
    if len({labels.dtype.kind == "U" for labels in y.values()}) > 1:
        raise ConfigError("dataset.label: found texts in one split and numbers in the other, allowed: one of the two")
    names: tuple[str, ...] | None = tuple(getattr(rows["train"].features[label], "names", ())) or None
    if y["train"].dtype.kind == "U":  # texts are numbered in sorted order
        names = tuple(np.unique(y["train"]).tolist())
        if unknown := sorted({*y["test"].tolist()} - {*names}):
            raise ConfigError(f"dataset.test: found the label {show(unknown[0])}, allowed: labels of dataset.train")
        y = {key: np.searchsorted(names, labels) for key, labels in y.items()}
    x = {key: _pixels(_column(of, "image", image), image, size, grey) for key, of in rows.items()}
    ids = None if client is None else np.array([*_column(rows["train"], "client", client)])
    classes = len(names) if names else 1 + int(max(labels.max() for labels in y.values()))
    return Dataset(Split(x["train"], y["train"], ids), Split(x["test"], y["test"]), classes, names)


def _column(rows: Any, key: str, name: str) -> Iterable[Any]:
    """Return the values of a column, which may be decoded one by one; `key` is the config's.

    Raises:
        ConfigError: there is no such column.
    """
    known = [*rows.features]
    if name not in known:
        raise ConfigError(f"dataset.{key}: found {show(name)}, allowed: one of {show(known)}{nearest(name, known)}")
    found: Iterable[Any] = rows[name]
    return found


def _labels(values: Iterable[Any], name: str) -> Array:
    """Return labels as int64 [n] or texts [n]. Raises ConfigError for others."""
    labels = np.array([*values])
    if labels.ndim != 1 or labels.dtype.kind not in "biuU":
        first = show(labels[:1].tolist())
        raise ConfigError(f"dataset.label: found {show(name)} with {first}, allowed: whole numbers or texts")
    return labels if labels.dtype.kind == "U" else labels.astype(np.int64)


def _pixels(values: Iterable[Any], name: str, size: int, grey: bool) -> Array:
    """Return images as uint8 [n, 1 or 3, size, size]. Raises ConfigError if the column has none.

    One is decoded at a time: photos may be much larger than `size`.
    """
    images = []
    for shown in values:
        if not isinstance(shown, Image.Image):
            raise ConfigError(f"dataset.image: found {show(name)} with {type(shown).__name__}, allowed: images")
        images.append(np.asarray(resize(shown, size, grey)))
    return channels_first(np.stack(images))
