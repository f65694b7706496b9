"""LEAF's FEMNIST and Shakespeare by name, with the classes and shapes that the literature uses."""

import string
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import doc

from raysim.config.error_text import show
from raysim.data.dataset import Dataset, MissingData
from raysim.data.leaf import leaf
from raysim.data.paths import RELATIVE
from raysim.system.errors import ConfigError
from raysim.system.home import expand

DIGITS_AND_LETTERS = (*string.digits, *string.ascii_uppercase, *string.ascii_lowercase)
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The characters of LEAF's Shakespeare, in its order: models/utils/language_utils.py."""
SHAKESPEARE = 80  # characters of a sample
SITE = "https://github.com/TalwalkarLab/leaf"

Path_ = Annotated[str, doc("the folder with LEAF's folders train and test; relative, it starts at dataset.root")]


def femnist(root: Path, download: bool, *, path: Path_ = "femnist/data") -> Dataset:
    """FEMNIST 28 x 28, 62 classes, a client for each writer, from LEAF's JSON (Caldas et al., 2018).

    Labels are 0 to 9, then A to Z, then a to z. Paper is white: 1, ink is 0. The split is the one of LEAF's script, 0.9
    of a writer's samples by default. It depends on `--spltseed`; without it, the time is the seed.

    Raises:
        MissingData: the folder is missing.
        ConfigError: see `leaf`; or a label is above 61.
    """
    _require(root, path, "femnist", "-s niid --sf 0.05 -t sample --spltseed 1")
    found = leaf(root, False, path=path, shape=(28, 28))
    if found.classes > len(DIGITS_AND_LETTERS):
        problem = f"found the label {found.classes - 1}, allowed: 0 to {len(DIGITS_AND_LETTERS) - 1}"
        raise ConfigError(f"dataset.path: {problem}, as FEMNIST has")
    return replace(found, classes=len(DIGITS_AND_LETTERS), names=DIGITS_AND_LETTERS)


def shakespeare(root: Path, download: bool, *, path: Path_ = "shakespeare/data") -> Dataset:
    """Shakespeare's next character after 80, 80 classes, a client for each role: LEAF's JSON (Caldas et al., 2018).

    Labels are the places of characters in LEAF's list of 80. The split is sequential in each role.

    Raises:
        MissingData: the folder is missing.
        ConfigError: see `leaf`; or a character is not one of LEAF's.
    """
    _require(root, path, "shakespeare", "-s niid --sf 0.2 -t sample")
    found = leaf(root, False, path=path, token="(?s).", lower=False, length=SHAKESPEARE)
    numbers = {letter: number for number, letter in enumerate(LETTERS)}
    odd = next((name for name in found.names or () if name not in numbers), None)
    if odd is not None or found.names is None:
        problem = f"found {'whole numbers' if odd is None else show(odd)} as y"
        raise ConfigError(f"dataset.path: {problem}, allowed: one of the {len(LETTERS)} characters of LEAF's list")
    table = np.array([numbers[name] for name in found.names])
    train, test = (replace(split, y=table[split.y]) for split in (found.train, found.test))
    return replace(found, train=train, test=test, classes=len(LETTERS), names=tuple(LETTERS))


def _require(root: Path, path: str, name: str, arguments: str) -> None:
    """Refuse a missing folder: say how LEAF's script makes it. Raises MissingData."""
    folder = root / expand("dataset.path", path)
    if not folder.is_dir():
        made = f"in data/{name} of {SITE}, ./preprocess.sh {arguments} makes the folder data"
        raise MissingData(f"dataset.path: there is no folder {folder}; {made}; put it there; {RELATIVE}")
