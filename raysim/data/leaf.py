"""LEAF's federated datasets as a run's data: texts, images and features with a user for each sample."""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Le, MaxLen, doc

from raysim.config.error_text import show
from raysim.config.signature import takes_keys_of
from raysim.data.class_order import describe_classes, in_class_order
from raysim.data.columns import as_texts
from raysim.data.dataset import Array, Dataset, MissingData, Split, channels_first
from raysim.data.decoding import decode_dataset
from raysim.data.image_files import SUFFIXES
from raysim.data.leaf_files import LeafSplit, read_leaf
from raysim.data.paths import RELATIVE, require_folder
from raysim.data.pictures import WHITE, Background
from raysim.data.tokens import FIRST_WORD, TokenKeys, index_texts
from raysim.system.errors import ConfigError
from raysim.system.home import expand

PADDING = "<PAD>"  # the token that fills LEAF's sequences of Reddit; raysim's padding is id 0
GROUP = "hierarchy"  # the column of what LEAF calls hierarchies, such as the play of a speaker

Sides = Annotated[int, Ge(1), Le(4096)]


@takes_keys_of(TokenKeys)
def leaf(
    root: Path,
    download: bool,
    *,
    path: Annotated[str, doc("the folder with LEAF's folders train and test; relative, it starts at dataset.root")],
    shape: Annotated[
        tuple[Sides, ...],
        MaxLen(3),
        doc("height, width and channels of x as lists of numbers: [28, 28] for FEMNIST; empty keeps features"),
    ] = (),
    images: Annotated[
        str | None, doc("the folder of the images, if x are file names (CelebA); relative, it starts at dataset.root")
    ] = None,
    size: Annotated[int, Ge(1), Le(4096), doc("height and width of these images, for any proportions")] = 32,
    grey: Annotated[bool, doc("whether these images become grey; else RGB")] = False,
    background: Background = WHITE,
    text: Annotated[
        Annotated[int, Ge(0)] | None, doc("the place of the text, if x are lists of fields: 4 for Sent140")
    ] = None,
    label: Annotated[str | None, doc("the key of the label, if y are objects: subreddit for Reddit")] = None,
    **keys: Any,
) -> Dataset:
    """LEAF's JSON (Caldas et al., 2018): texts as ids, images or features, with the user of each sample as client id.

    The folders train and test of `path` have one or more files with users, user_data {user: {x, y}}, and optionally
    num_samples and hierarchies. What x are decides what a sample is:

    - texts, or lists of tokens: ids as in text_jsonl, int64 [N, length]. The token <PAD> is left out.
    - lists of numbers: float32 features [N, D], or with `shape` images [N, C, H, W].
    - file names in the folder `images`: images as uint8, resized to `size` x `size`.

    Labels are whole numbers from 0, which stay as they are, or texts, which are numbered in order. Those of both splits
    count. The column hierarchy, for scenario.kind=by_column, is what the files call hierarchies.

    Raises:
        MissingData: the folder or an image is missing.
        ConfigError: see `read_leaf`. Also if x or y are of mixed or other kinds, an image cannot be read, or no
            training text has a token.
    """
    token_keys = TokenKeys(**keys)
    tokens = token_keys.splitter()
    folder = require_folder(root / expand("dataset.path", path))
    parts = read_leaf(folder)
    y, classes, names = _labels(parts, label)
    if images is not None:
        found = _decode(parts, y, root / expand("dataset.images", images), size, grey, background)
    elif isinstance(parts[0].x[0], np.ndarray):
        found = _numbers(parts, y, shape)
    elif shape:
        problem = f"found {show([*shape])}, and {show(parts[0].x[0])} ({parts[0].where(0, 'x')})"
        raise ConfigError(f"dataset.shape: {problem}, allowed: a shape for x as lists of numbers")
    else:
        _refuse_image_names(parts[0])
        texts = [_texts(part, text, token_keys) for part in parts]
        x, words, cut = index_texts(texts, _tokens_of(tokens, token_keys), token_keys, folder / "train")
        ids = FIRST_WORD + len(words)
        found = Dataset(Split(x[0], y[0]), Split(x[1], y[1]), 1, vocabulary=ids, words=words, notes=cut)
    train, test = (
        replace(split, clients=_as_texts(part, part.users), columns=_columns(part, parts))
        for split, part in zip((found.train, found.test), parts, strict=True)
    )
    notes = (*found.notes, *_describe_users(parts), *parts[0].notes, *parts[1].notes)
    named = (describe_classes(names),) if names is not None else ()
    doubts = (*found.doubts, *parts[0].doubts, *parts[1].doubts)
    return replace(found, train=train, test=test, classes=classes, names=names, notes=(*notes, *named), doubts=doubts)


def _labels(parts: Sequence[LeafSplit], key: str | None) -> tuple[list[Array], int, tuple[str, ...] | None]:
    """Return the labels of each part, int64 [n], the number of classes, and the classes' names if labels are texts."""
    values = [[_label(part, row, key) for row in range(len(part.y))] for part in parts]
    kind = type(values[0][0])
    for part, labels in zip(parts, values, strict=True):
        odd = next((row for row, label in enumerate(labels) if type(label) is not kind), None)
        if odd is not None:
            allowed = f"{'texts' if kind is str else 'whole numbers'}, as the first label"
            raise ConfigError(f"{part.where(odd, 'y')}: found {show(labels[odd])}, allowed: {allowed}")
    names = tuple(in_class_order(str(label) for labels in values for label in labels)) if kind is str else None
    numbers: dict[Any, int] = {name: number for number, name in enumerate(names or ())}
    y = [np.array([numbers.get(label, label) for label in labels], np.int64) for labels in values]
    return y, 1 + max(int(labels.max()) for labels in y), names


def _label(part: LeafSplit, row: int, key: str | None) -> int | str:
    """Return a label: a text that is not empty, or a whole number, which CelebA's files write as 1.0."""
    value = part.y[row]
    if key is not None and isinstance(value, dict):
        value = value.get(key)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str) and value:
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
        return value
    advice = "; dataset.label is its key in an object" if isinstance(part.y[row], dict) else ""
    found = show(part.y[row])
    raise ConfigError(f"{part.where(row, 'y')}: found {found}, allowed: a whole number from 0, or a text{advice}")


def _numbers(parts: Sequence[LeafSplit], y: Sequence[Array], shape: Sequence[int]) -> Dataset:
    """Return a dataset of features, or of images of the shape [height, width] or [height, width, channels]."""
    if len(shape) == 1 or (shape and math.prod(shape) != len(parts[0].x[0])):
        allowed = f"height and width, or these and channels, of {len(parts[0].x[0]):,} numbers"
        raise ConfigError(f"dataset.shape: found {show([*shape])}, allowed: {allowed}, or nothing to keep features")
    for part in parts:
        for row, value in enumerate(part.x):
            if not isinstance(value, np.ndarray) or len(value) != len(parts[0].x[0]):
                found = f"{len(value):,} numbers" if isinstance(value, np.ndarray) else show(value)
                allowed = f"{len(parts[0].x[0]):,} numbers, as the first sample has"
                raise ConfigError(f"{part.where(row, 'x')}: found {found}, allowed: {allowed}")
    x = [np.stack(part.x) for part in parts]
    x = [channels_first(values.reshape(len(values), *shape)) if shape else values for values in x]
    return Dataset(Split(x[0], y[0]), Split(x[1], y[1]), 1)


def _decode(
    parts: Sequence[LeafSplit], y: Sequence[Array], folder: Path, size: int, grey: bool, background: Background
) -> Dataset:
    """Return a dataset of the images that x names."""
    images = []
    for part, labels in zip(parts, y, strict=True):
        for row, name in enumerate(part.x):
            if not isinstance(name, str) or "\0" in name:
                raise ConfigError(f"{part.where(row, 'x')}: found {show(name)}, allowed: an image in {folder}")
            if not os.path.isfile(folder / name):
                raise MissingData(f"{part.where(row, 'x')}: there is no image {folder / name}; {RELATIVE}")
        images.append([(folder / name, int(label)) for name, label in zip(part.x, labels, strict=True)])
    return decode_dataset(images[0], images[1], 1, None, size=size, grey=grey, background=background)


def _refuse_image_names(part: LeafSplit) -> None:
    """Refuse names of images, as CelebA has, which would be read as texts."""
    first = part.x[0]
    if isinstance(first, str) and " " not in first and Path(first).suffix.lower() in SUFFIXES:
        problem = f"found null, and the image name {show(first)} ({part.where(0, 'x')})"
        raise ConfigError(f"dataset.images: {problem}, allowed: the folder of the images")


def _texts(part: LeafSplit, place: int | None, keys: TokenKeys) -> list[str | list[str]]:
    """Return the texts of a part, or lists of tokens, which may be divided into sequences."""
    return [_text(part, row, value, place, keys) for row, value in enumerate(part.x)]


def _text(part: LeafSplit, row: int, value: Any, place: int | None, keys: TokenKeys) -> str | list[str]:
    if place is not None and isinstance(value, list):
        value = value[place] if place < len(value) and isinstance(value[place], str) else None
    if isinstance(value, str):
        return value
    found = _flatten(value) if isinstance(value, list) and place is None else [None]
    if not all(isinstance(token, str) for token in found):
        allowed = "a text or a list of tokens" if place is None else f"a list with a text at {place} (dataset.text)"
        raise ConfigError(f"{part.where(row, 'x')}: found {show(part.x[row])}, allowed: {allowed}")
    spaced = next((token for token in found if any(letter.isspace() for letter in str(token))), None)
    if spaced is not None:
        advice = "for a list of fields, set dataset.text to the place of the text, such as 4 for Sent140"
        raise ConfigError(f"{part.where(row, 'x')}: found {show(spaced)}, allowed: tokens without spaces; {advice}")
    return [keys.normal(token) for token in found if token and token != PADDING]


def _flatten(value: list[Any]) -> list[Any]:
    """Return the elements of a list, and those of lists in it."""
    return [inner for outer in value for inner in (outer if isinstance(outer, list) else [outer])]


def _tokens_of(tokens: Callable[[str], list[str]], keys: TokenKeys) -> Callable[[str | list[str]], list[str]]:
    return lambda value: tokens(value) if isinstance(value, str) else value[: keys.length + 1]


def _columns(part: LeafSplit, parts: Sequence[LeafSplit]) -> dict[str, Array]:
    known = all(group is not None for one in parts for group in one.groups)
    return {GROUP: _as_texts(part, [str(group) for group in part.groups])} if known else {}


def _as_texts(part: LeafSplit, texts: Sequence[str]) -> Array:
    return as_texts(texts, lambda row: part.where(row, "x"))


def _describe_users(parts: Sequence[LeafSplit]) -> list[str]:
    """Return how many users there are, and how many have samples in one split only."""
    train, test = ({*part.users} for part in parts)
    notes = [f"{len(train | test):,} users"]
    for only, where in ((train - test, "training"), (test - train, "tests")):
        if only:
            notes.append(f"{len(only):,} of them in the {where} only, such as {show(min(only))}")
    return notes
