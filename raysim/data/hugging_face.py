"""Datasets of the Hugging Face hub as a run's data. Images and labels are read once, when a run starts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, overload

import numpy as np
from annotated_types import Ge, doc

from raysim.config.error_text import nearest, shorten, show
from raysim.data.class_order import describe_classes, in_class_order
from raysim.data.dataset import Array, Dataset, MissingData, Split
from raysim.data.decoding import decode_pictures
from raysim.data.pictures import WHITE, Background, EncodedImage
from raysim.data.split_names import TEST, VALIDATION, choose_test
from raysim.system.errors import ConfigError
from raysim.system.importing import import_extra


def hugging_face(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("its name on the hub, or a folder of files that load_dataset reads")],
    train: Annotated[str, doc("the split to train on, as load_dataset takes it: train[:90%] is a part")] = "train",
    test: Annotated[str | None, doc("the split to test on; null is test or, without one, validation")] = None,
    image: Annotated[str, doc("the column of the images")] = "image",
    label: Annotated[str, doc("the column of the labels")] = "label",
    client: Annotated[str | None, doc("the column of client ids, for partition=natural")] = None,
    size: Annotated[int, Ge(1), doc("height and width that the images are made")] = 32,
    grey: Annotated[bool, doc("whether the images become grey; else RGB")] = False,
    background: Background = WHITE,
) -> Dataset:
    """Images of a Hugging Face dataset, resized to `size` x `size` (the extra hugging_face).

    Labels that are texts are numbered in the order of image_folder's classes, and so are names of classes that
    load_dataset has sorted as texts. Other labels keep their numbers.

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

    rows = {"train": load("train", train)}
    known = [*(getattr(getattr(rows["train"], "info", None), "splits", None) or ())]
    testing = test or choose_test(known) or TEST
    rows["test"] = load("test", testing)
    y = {key: _labels(_column(of, "label", label), label) for key, of in rows.items()}
    if len({labels.dtype.kind == "U" for labels in y.values()}) > 1:
        raise ConfigError("dataset.label: found texts in one split and numbers in the other, allowed: one of the two")
    names: tuple[str, ...] | None = tuple(getattr(rows["train"].features[label], "names", ())) or None
    if names and sorted(names) == [*names]:  # load_dataset sorts folders' names as texts, also numbers
        given, names = names, tuple(in_class_order(names))
        y = {key: _renumber(labels, given, names) for key, labels in y.items()}
    if y["train"].dtype.kind == "U":
        names = tuple(in_class_order(y["train"].tolist()))
        if unknown := sorted({*y["test"].tolist()} - {*names}):
            raise ConfigError(f"dataset.test: found the label {show(unknown[0])}, allowed: labels of dataset.train")
        numbers = {name: number for number, name in enumerate(names)}
        y = {key: np.array([numbers[name] for name in labels.tolist()]) for key, labels in y.items()}
    for of in rows.values():
        _require_column(of, "image", image)
    pictures = [_Encoded(rows[key], image, wanted, datasets) for key, wanted in (("train", train), ("test", testing))]
    pixels = decode_pictures(*pictures, size=size, grey=grey, background=background)
    ids = None if client is None else np.array([*_column(rows["train"], "client", client)])
    classes = len(names) if names else 1 + int(max(labels.max() for labels in y.values()))
    splits = Split(pixels.train, y["train"], ids), Split(pixels.test, y["test"])
    notes = (*_describe_splits(known, train, testing), *([describe_classes(names)] if names else []), *pixels.notes)
    return Dataset(*splits, classes, names, notes=notes, doubts=pixels.doubts)


def _renumber(labels: Array, given: Sequence[str], names: Sequence[str]) -> Array:
    """Return labels as places in `names`, where they are places in `given`. Negative ones are no labels and stay."""
    places = np.array([names.index(name) for name in given])
    return np.where(labels < 0, labels, places[labels.clip(0, len(given) - 1)])


def _describe_splits(known: Sequence[str], train: str, test: str) -> Iterator[str]:
    """Yield notes on a split for validation that is tested on, and on splits that are left out."""
    used = {*re.findall(r"[^\W\d]\w*", f"{train}+{test}")}  # also of train[:90%]+validation
    if test in VALIDATION:
        yield f"tested on the split {test}"
    if unused := [name for name in known if name not in used]:
        yield f"left out the split{'s' * (len(unused) > 1)} {', '.join(unused)}"


def _require_column(rows: Any, key: str, name: str) -> None:
    """Refuse a column that a split does not have; `key` is the config's."""
    known = [*rows.features]
    if name not in known:
        raise ConfigError(f"dataset.{key}: found {show(name)}, allowed: one of {show(known)}{nearest(name, known)}")


def _column(rows: Any, key: str, name: str) -> Iterable[Any]:
    """Return the values of a column; `key` is the config's. Raises ConfigError if there is no such column."""
    _require_column(rows, key, name)
    found: Iterable[Any] = rows[name]
    return found


def _labels(values: Iterable[Any], name: str) -> Array:
    """Return labels as int64 [n] or texts [n]. Raises ConfigError for others."""
    labels = np.array([*values])
    if labels.ndim != 1 or labels.dtype.kind not in "biuU":
        first = show(labels[:1].tolist())
        raise ConfigError(f"dataset.label: found {show(name)} with {first}, allowed: whole numbers or texts")
    return labels if labels.dtype.kind == "U" else labels.astype(np.int64)


class _Encoded(Sequence[EncodedImage]):
    """The images of a split, still encoded. One is read at a time: photos may be much larger than the arrays."""

    def __init__(self, rows: Any, name: str, split: str, datasets: Any) -> None:
        feature = rows.features[name]
        if not isinstance(feature, datasets.Image):
            raise ConfigError(f"dataset.image: found {show(name)}, a column of {feature}, allowed: a column of images")
        self._rows = rows.select_columns([name]).cast_column(name, datasets.Image(decode=False))
        self._name, self._split = name, split

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, row: int) -> EncodedImage: ...

    @overload
    def __getitem__(self, row: slice) -> Sequence[EncodedImage]: ...

    def __getitem__(self, row: int | slice) -> EncodedImage | Sequence[EncodedImage]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        found = self._rows[row][self._name] or {}
        where, path = f"row {row} of {self._split}", found.get("path")
        source = found.get("bytes") or (Path(path) if path else None)
        if source is None:
            raise ConfigError(f"dataset.image: found nothing in {where}, column {show(self._name)}, allowed: an image")
        return EncodedImage(f"{where} ({path})" if path else where, source)
