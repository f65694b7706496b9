"""LEAF's FEMNIST and Shakespeare by name: their classes, whatever a part of them has."""

import json
from pathlib import Path
from typing import Any

import pytest

from raysim.data.dataset import MissingData
from raysim.data.leaf_sets import LETTERS, femnist, shakespeare
from raysim.data.loading import load_dataset
from raysim.system.errors import ConfigError


def write(folder: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    for part in ("train", "test"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
        content = {"users": [*users], "num_samples": [len(y) for _, y in users.values()], "user_data": data}
        (folder / part / "all.json").write_text(json.dumps(content))


def test_femnist_has_62_classes_and_images(tmp_path):
    write(tmp_path / "femnist" / "data", {"w1": ([[1.0] * 784, [0.5] * 784], [36, 9])})
    found = load_dataset(femnist, str(tmp_path), False, {})
    assert (found.shape, found.classes, found.train.y.tolist()) == ((1, 28, 28), 62, [36, 9])
    assert found.names is not None
    assert [found.names[label] for label in (0, 9, 10, 35, 36, 61)] == ["0", "9", "A", "Z", "a", "z"]
    write(tmp_path / "femnist" / "data", {"w1": ([[1.0] * 784], [62])})
    with pytest.raises(ConfigError, match="found the label 62, allowed: 0 to 61, as FEMNIST has"):
        load_dataset(femnist, str(tmp_path), False, {})


def test_shakespeare_has_the_80_characters_of_leaf(tmp_path):
    """LEAF's list begins with a line break, a blank and an exclamation mark; a is its 54th from 0."""
    assert (len(LETTERS), len({*LETTERS}), LETTERS.index("a")) == (80, 80, 53)
    texts = ["To be,\nor not " + "x" * 66, "b" * 80]
    write(tmp_path / "shakespeare" / "data", {"HAMLET": (texts, ["a", "!"])})
    found = load_dataset(shakespeare, str(tmp_path), False, {})
    assert (found.shape, found.classes, found.train.y.tolist()) == ((80,), 80, [53, 2])
    ids = found.train.x[0].tolist()
    assert (ids[0] == ids[1], ids[2] == ids[5], 0 in ids) == (False, False, False)  # T o; a blank, a comma; all 80
    assert ids[1] == ids[7]  # o
    write(tmp_path / "shakespeare" / "data", {"HAMLET": (texts, ["a", "~"])})
    with pytest.raises(ConfigError, match="found '~' as y, allowed: one of the 80 characters"):
        load_dataset(shakespeare, str(tmp_path), False, {})


@pytest.mark.parametrize("read", [femnist, shakespeare])
def test_what_is_missing_says_how_it_is_made(tmp_path, read):
    with pytest.raises(
        MissingData, match=r"in data/.* of https://github.com/TalwalkarLab/leaf, ./preprocess.sh -s niid"
    ):
        load_dataset(read, str(tmp_path), False, {})
