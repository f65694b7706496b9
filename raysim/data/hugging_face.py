"""Datasets of the Hugging Face hub as a run's data. Samples and labels are read once, when a run starts."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, overload

import numpy as np
from annotated_types import Ge, doc

from raysim.config.error_text import nearest, shorten, show
from raysim.config.signature import takes_keys_of
from raysim.data.class_order import describe_classes, in_class_order
from raysim.data.columns import as_column
from raysim.data.dataset import Array, Dataset, MissingData, Split
from raysim.data.decoding import decode_pictures
from raysim.data.json_lines import LabeledTexts, Texts
from raysim.data.pictures import WHITE, Background, EncodedImage
from raysim.data.split_names import TEST, VALIDATION, choose_test
from raysim.data.text_targets import TextKeys, make_text_dataset
from raysim.system.errors import ConfigError
from raysim.system.importing import import_extra

IMAGE, SIZE = "image", 32
FIRST_WITHOUT_SCRIPTS = 4  # the major version of datasets


@takes_keys_of(TextKeys)
def hugging_face(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("its name on the hub, or a folder of files that load_dataset reads")],
    train: Annotated[str, doc("the split to train on, as load_dataset takes it: train[:90%] is a part")] = "train",
    test: Annotated[str | None, doc("the split to test on; null is test or, without one, validation")] = None,
    image: Annotated[str, doc("the column of the images")] = IMAGE,
    text: Annotated[str | None, doc("the column of the texts, in place of images")] = None,
    label: Annotated[
        str | None, doc("the column of the labels; null reads none, of texts with target=next_token")
    ] = "label",
    client: Annotated[str | None, doc("the column of client ids, for partition=natural")] = None,
    columns: Annotated[tuple[str, ...], doc("further columns, for scenario.kind=by_column and partition.by")] = (),
    size: Annotated[int, Ge(1), doc("height and width that the images are made")] = SIZE,
    grey: Annotated[bool, doc("whether the images become grey; else RGB")] = False,
    background: Background = WHITE,
    **keys: Any,
) -> Dataset:
    """Images or texts of a Hugging Face dataset (the extra hugging_face).

    Images are resized to `size` x `size`. With `text`, samples are texts, and become ids as in text_jsonl.

    Labels that are texts are numbered in the order of image_folder's classes, and so are names of classes that
    load_dataset has sorted as texts. Other labels keep their numbers.

    Raises:
        MissingData: the dataset cannot be read.
        ConfigError: there is no such split or column, or it has no images, texts, labels or client ids. Also if a key
            is set that is for the other kind of samples, and see text_jsonl.
    """
    text_keys = TextKeys(**keys)
    of_images = {
        "image": (image, IMAGE),
        "size": (size, SIZE),
        "grey": (grey, False),
        "background": (background, WHITE),
    }
    of_texts = {one.name: (getattr(text_keys, one.name), one.default) for one in fields(text_keys)}
    _refuse_others(of_texts if text is None else of_images, "without" if text is None else "with")
    text_keys.check()
    if label is None and (text is None or text_keys.target == "label"):
        raise ConfigError(
            "dataset.label: found null, allowed: a column; or dataset.text with dataset.target=next_token, which needs "
            "no labels"
        )
    datasets = import_extra("datasets", "hugging_face")
    if int(datasets.__version__.partition(".")[0]) < FIRST_WITHOUT_SCRIPTS:
        raise ConfigError(
            f"the package datasets has version {datasets.__version__}, allowed: {FIRST_WITHOUT_SCRIPTS} or newer, as "
            "older ones execute scripts of a hub; pip install 'raysim-cfl[hugging_face]'"
        )

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
    names: tuple[str, ...] | None = None
    y = {key: np.zeros(len(of), np.int64) for key, of in rows.items()}
    if label is not None:
        y, names = _read_labels(rows, label)
    classes = len(names) if names else 1 + int(max(labels.max() for labels in y.values()))
    ids = None if client is None else np.array([*_column(rows["train"], "client", client)])
    further = {key: _columns(of, columns, {"train": train, "test": testing}[key]) for key, of in rows.items()}
    said = tuple(_describe_splits(known, train, testing))
    if text is not None:
        found = LabeledTexts(
            Texts(_texts(rows["train"], text, train), y["train"], ids, further["train"]),
            Texts(_texts(rows["test"], text, testing), y["test"], None, further["test"]),
            names or tuple(range(classes)),
            said,
        )
        return make_text_dataset(found, text_keys, label, path)
    for of in rows.values():
        _require_column(of, "image", image)
    pictures = [_Encoded(rows[key], image, wanted, datasets) for key, wanted in (("train", train), ("test", testing))]
    pixels = decode_pictures(*pictures, size=size, grey=grey, background=background)
    splits = (
        Split(pixels.train, y["train"], ids, further["train"]),
        Split(pixels.test, y["test"], columns=further["test"]),
    )
    notes = (*said, *([describe_classes(names)] if names else []), *pixels.notes)
    return Dataset(*splits, classes, names, notes=notes, doubts=pixels.doubts)


def _read_labels(rows: Mapping[str, Any], label: str) -> tuple[dict[str, Array], tuple[str, ...] | None]:
    """Return the labels of the splits train and test as int64 [n], and the names of the classes if they have some."""
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
    return y, names


def _refuse_others(keys: Mapping[str, tuple[object, object]], how: str) -> None:
    """Refuse keys, each with its value and default, that are for the other kind of samples."""
    for name, (value, default) in keys.items():
        if value != default:
            raise ConfigError(f"dataset.{name}: found {show(value)}, allowed: {show(default)} {how} dataset.text")


def _texts(rows: Any, name: str, split: str) -> list[str]:
    """Return the texts of a split. Raises ConfigError for what is no text."""
    values = [*_column(rows, "text", name)]
    odd = next((row for row, value in enumerate(values) if not isinstance(value, str)), None)
    if odd is not None:
        where = f"row {odd} of {split}, column {show(name)}"
        raise ConfigError(f"dataset.text: found {show(values[odd])} in {where}, allowed: a text")
    return values


def _name_value(split: str, column: str, row: int) -> str:
    """Return the beginning of an error about a column's value."""
    return f"dataset.columns: row {row} of {split}, column {show(column)}"


def _columns(rows: Any, names: Sequence[str], split: str) -> dict[str, Array]:
    """Return further columns of a split."""
    found = {}
    for name in names:
        values = [*_column(rows, "columns", name)]
        found[name] = as_column(values, partial(_name_value, split, name))
    return found


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
