"""A run of the list: a config, and how it is carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Keys = dict[str, Any]

BASE: Mapping[str, Any] = {
    "name": "bits",
    "seed": 7,
    "dataset": {"name": "synthetic", "classes": 6, "shape": [1, 6, 6], "train": 144, "test": 48},
    "scenario": {"kind": "domain_incremental", "tasks": 2},
    "clients": {"count": 4},
    "model": {"name": "mlp", "hidden": [8], "dropout": 0.2},
    "training": {"rounds_per_task": 2, "batch_size": 6, "optimizer": {"lr": 0.1}},
    "memory": {"capacity": 8},
    "participation": {"count": 3},
    "logging": {"tensorboard": False},
}
"""The base of every run: 4 clients, 3 of them in a round, 2 tasks of 2 rounds, memories that overflow."""

DATA = "{data}"
"""In a config, the folder of the data that the tool writes."""


@dataclass(frozen=True)
class Run:
    """A run: dotted keys that replace those of BASE, and how it is carried out.

    Args:
        keys: dotted keys and their values; a value replaces a whole block.
        way: in one process; on Ray; or by the command line, as a process with a Ray of its own.
        cut_after: the round after which it is cut off, to be resumed from its newest checkpoint.
        evaluate: the finished model is evaluated again, with these keys.
    """

    keys: Keys = field(default_factory=dict)
    way: Literal["local", "ray", "command"] = "local"
    cut_after: int | None = None
    evaluate: Keys | None = None

    @property
    def on_ray(self) -> bool:
        """Whether it needs Ray."""
        return self.way != "local"

    def config(self) -> dict[str, Any]:
        """Return the config as a document."""
        document: dict[str, Any] = dict(BASE)
        for dotted, value in self.keys.items():
            *above, last = dotted.split(".")
            block = document
            for key in above:
                block[key] = dict(block.get(key) or {})
                block = block[key]
            block[last] = value
        return document


def leaves(value: object, at: tuple[str, ...] = ()) -> Iterator[tuple[str, object]]:
    """Yield the dotted keys of a document with their values, those of whole blocks too; N is a place in a list."""
    if at:
        yield ".".join(at), value
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from leaves(below, (*at, key))
    elif isinstance(value, list):
        for below in value:
            yield from leaves(below, (*at, "N"))


def alone(name: str, **hyperparameters: object) -> Keys:
    """Return the keys of a run with one method."""
    return {"methods": {name: hyperparameters}}


def classes(tasks: int = 2, **more: object) -> Keys:
    """Return the keys of a class-incremental scenario."""
    return {"scenario": {"kind": "class_incremental", "tasks": tasks, **more}}


def by_column(column: str, tasks: int = 2, **more: object) -> Keys:
    """Return the keys of tasks by a column."""
    return {"scenario": {"kind": "by_column", "column": column, "tasks": tasks, **more}}


def domains(tasks: int = 2, **more: object) -> Keys:
    """Return the keys of a domain-incremental scenario."""
    return {"scenario": {"kind": "domain_incremental", "tasks": tasks, **more}}
