"""Random files: each is a Dataset or refused in one line, and nothing else is raised.

The values are those that files of others have: numbers in odd writings, words for missing values, dates, quotes and
other types. Files are broken by cutting them, or by changing a byte.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raysim.data.dataset import Dataset
from raysim.data.leaf import leaf
from raysim.data.loading import load_dataset
from raysim.data.tables import csv
from raysim.data.text import text_jsonl
from raysim.system.errors import ConfigError

Draws = np.random.Generator
FEW = 70  # of each kind of file: some 200 in all
MANY = 2_000

CELLS = ["1", "2", "-3.5", "1e3", "1_0", "1e999", "0x1", "inf", "NaN", "NA", "", " ", "true", "x", "y", "2024-01-01"]
CELLS += [
    "2024-01-01T00:00Z",
    "30.03.2024",
    "\u0661",
    "é",
    "e\u0301",
    "a\0",
    "\U0001f600",
    '"q"',
    '"a,b"',
    '"a\nb"',
    '"',
]
HEADERS = ["a", "b", "c", "kind", "", "Unnamed: 0", "a b", "é"]
VALUES: list[Any] = [None, True, 0, 1, -1, 10**30, 0.5, 1.0, float("nan"), "", "a", "b c", "\ud800", "é", [], {}]
VALUES += [[1, 2], [[1], 2], ["a", "b"], {"k": 1}, "2024-01-01", "x" * 50]


def pick(draws: Draws, values: list[Any]) -> Any:
    return values[draws.integers(len(values))]


def mostly(draws: Draws, usual: Any, others: list[Any], often: float = 0.9) -> Any:
    """Return the usual value, or in one of ten cases another one: else no file would be read to its end."""
    return usual if draws.random() < often else pick(draws, others)


def random_csv(draws: Draws) -> tuple[bytes, dict[str, Any]]:
    names = (
        ["a", "b", "kind", "t"] if draws.random() < 0.7 else [pick(draws, HEADERS) for _ in range(draws.integers(6))]
    )
    lines = [",".join(names)]
    for _ in range(draws.integers(12)):
        usual = [str(draws.integers(3)), pick(draws, ["red", "blue"]), pick(draws, ["x", "y"]), "2024-01-01"]
        cells = [mostly(draws, usual[place % 4], CELLS, 0.98) for place in range(len(names))]
        lines.append(",".join(cells[: mostly(draws, len(names), [0, 1, 2], 0.98)]))
    keys: dict[str, Any] = {"target": "kind", "categories": ["b"], "time": "t", "client": None}
    for key in ("client", "time", "target"):
        keys[key] = mostly(draws, keys[key], HEADERS)
    for key in ("categories", "columns", "ignore"):
        keys[key] = mostly(draws, keys.get(key, []), [[], ["a"], ["b", "t"], ["kind"], [""], ["z"]])
    choices: list[tuple[str, list[Any]]] = [
        ("missing", ["mean", "refuse"]),
        ("target_kind", ["label", "number"]),
        ("time_format", ["%d.%m.%Y"]),
    ]
    choices += [("standardize", ["client", "none"]), ("missing_values", [[], ["x"]]), ("test", ["f"])]
    keys |= {key: pick(draws, values) for key, values in choices if draws.random() < 0.2}
    return pick(draws, ["\n", "\r\n"]).join(lines).encode(), keys


def random_lines(draws: Draws) -> tuple[bytes, dict[str, Any]]:
    lines = []
    for _ in range(draws.integers(12)):
        row = {
            "text": mostly(draws, pick(draws, ["a b", "สวัสดี c"]), VALUES),
            "label": mostly(draws, int(draws.integers(2)), VALUES),
            "split": mostly(draws, pick(draws, ["train", "train", "test", "val"]), VALUES),
            "user": mostly(draws, "u", VALUES),
        }
        kept = {key: value for key, value in row.items() if draws.random() < 0.97}
        lines.append(json.dumps(mostly(draws, kept, VALUES)))
    keys = {"client": "user", "columns": ["user"], "token": ".", "test": "f", "length": 2}
    return "\n".join(lines).encode(), {key: value for key, value in keys.items() if draws.random() < 0.3}


def random_leaf(draws: Draws) -> tuple[bytes, dict[str, Any]]:
    usual = pick(draws, ["a b", [1, 2], ["a", "b"], [["a"], ["b"]]])
    data: dict[str, Any] = {}
    for user in "uvw"[: draws.integers(4)]:
        count = int(draws.integers(4))
        x, y = [mostly(draws, usual, VALUES) for _ in range(count)], [mostly(draws, 1, VALUES) for _ in range(count)]
        data[user] = mostly(draws, {"x": x, "y": y}, VALUES)
    users = mostly(draws, [*data], [["u"], ["u", "u"], ["z"], [5], "u", None])
    document = {"users": users, "user_data": mostly(draws, data, VALUES)}
    counts = [len(found["x"]) if isinstance(found, dict) and "x" in found else 0 for found in data.values()]
    document |= {"num_samples": mostly(draws, counts, VALUES), "hierarchies": mostly(draws, [*data], VALUES)}
    kept = {key: value for key, value in document.items() if draws.random() < 0.97}
    keys = {"shape": [1, 2], "images": ".", "text": 0, "label": "k", "token": ".", "lower": False}
    given = {key: value for key, value in keys.items() if draws.random() < 0.1}
    return json.dumps(mostly(draws, kept, VALUES)).encode(), given


def broken(draws: Draws, content: bytes) -> bytes:
    """Return a file's content, in one of ten cases cut or with another byte."""
    place = int(draws.integers(len(content) + 1))
    kind = draws.random()
    if kind < 0.05:
        return content[:place]
    return content[:place] + bytes([draws.integers(256)]) + content[place + 1 :] if kind < 0.1 else content


def outcome(function: Callable[..., Dataset], folder: Path, keys: dict[str, Any]) -> str:
    """Return "read", or "refused" after a look at the message."""
    try:
        dataset = load_dataset(function, str(folder), False, keys)
    except ConfigError as error:
        message = str(error)
    else:
        assert isinstance(dataset, Dataset)
        assert all(line.isprintable() for line in (*dataset.notes, *dataset.doubts))
        return "read"
    assert message.isprintable()
    assert len(message) < 1000
    return "refused"


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
@pytest.mark.parametrize(("function", "make"), [(csv, random_csv), (text_jsonl, random_lines), (leaf, random_leaf)])
def test_a_random_file_is_a_dataset_or_refused(
    tmp_path: Path, function: Callable[..., Dataset], make: Callable[[Draws], tuple[bytes, dict[str, Any]]], count: int
) -> None:
    draws = np.random.default_rng(0)
    outcomes = set()
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
    for case in range(count):
        content, keys = make(draws)
        name = "f.gz" if case % 7 == 0 else "f"
        content = broken(draws, content)
        if function is leaf:
            (tmp_path / "train" / "f.json").write_bytes(content)
            (tmp_path / "test" / "f.json").write_bytes(broken(draws, content))
            keys["path"] = "."
        else:
            (tmp_path / "f").write_bytes(content)
            (tmp_path / "f.gz").write_bytes(gzip.compress(content))
            keys["path"] = name
        outcomes.add(outcome(function, tmp_path, keys))
    assert outcomes == {"read", "refused"}
