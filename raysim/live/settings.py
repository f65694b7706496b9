"""The settings in which runs differ."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LONGEST = 200  # characters of a value
MOST_KEYS = 60  # in which runs differ
DEEPEST = 8  # blocks within blocks
TOO_DEEP = "..."  # stands for lists and blocks in each other that no config of raysim's has

Settings = Mapping[str, str]


def flatten(config: Mapping[str, Any]) -> Settings:
    """Return a config's values by key, such as training.optimizer.lr, as one line of JSON each."""
    return dict(_pairs("", config, DEEPEST))


def find_differing(runs: Sequence[Settings]) -> list[str]:
    """Return the keys that some runs have and others lack, or that have more than one value."""
    values: defaultdict[str, set[str]] = defaultdict(set)
    having: defaultdict[str, int] = defaultdict(int)
    for run in runs:
        for key, value in run.items():
            values[key].add(value)
            having[key] += 1
    return [key for key, found in values.items() if len(found) > 1 or having[key] < len(runs)]


def _pairs(prefix: str, value: Any, deepest: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value and deepest:
        for key, inner in value.items():
            yield from _pairs(f"{prefix}.{key}" if prefix else str(key), inner, deepest - 1)
    else:
        yield prefix[:LONGEST], (value if isinstance(value, str) else _write(value))[:LONGEST]


def _write(value: Any) -> str:
    try:
        return json.dumps(value, default=str, ensure_ascii=False)
    except RecursionError:
        return TOO_DEEP
