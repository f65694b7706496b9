"""`raysim.check`: the numbers of an estimate, with the lines that the command line prints."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Unpack

from raysim.config import Config, load
from raysim.config.bundled import warn_hidden
from raysim.config.error_text import shorten
from raysim.config.keywords import CallbackKeys, add_keywords
from raysim.launch.amounts import in_hours, in_units
from raysim.launch.check import estimate_lines
from raysim.system.errors import single_line


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Estimate(Mapping[str, str]):
    """What a run would start, send, compute and need. A number that is not known is None.

    `str` and notebooks show the table that `raysim check` prints. As a mapping it has this table's texts by their
    labels, such as `estimate["memory"]`.

    >>> estimate = raysim.check("quickstart", methods="er")
    >>> estimate.steps
    2700
    >>> estimate["steps"]
    '2,700 gradient steps'
    """

    name: str
    """The config's name."""
    train_samples: int
    """The training samples of the dataset."""
    test_samples: int
    """The samples of the dataset that the model is tested on."""
    tasks: int
    """The number of tasks."""
    clients: int
    """The number of clients."""
    parameters: int
    """The number of the model's trained parameters."""
    model_bytes: int
    """The bytes of the model as it is sent."""
    rounds: int
    """The number of server updates."""
    updates: int
    """The number of client updates."""
    steps: int
    """The gradient steps of all clients' local training."""
    bytes_up: int
    """The bytes that all clients send to the server: the methods' payload."""
    bytes_down: int
    """The bytes that the server sends to all clients: the methods' payload."""
    actors: int | None = None
    """The number of Ray actors, which are the coordinator and the hosts; None if it depends on the cluster's room."""
    memory_bytes: int | None = None
    """The memory of all processes on this machine; on a cluster, that of the fullest node. None without a cluster that
    answers."""
    host_memory_bytes: int | None = None
    """The memory of the largest host."""
    gpu_memory_bytes: int | None = None
    """The memory that the largest host takes of its GPU."""
    seconds: float | None = None
    """The duration on this machine with Ray, without its start. None for a cluster, and if data or GPUs are missing."""
    seconds_local: float | None = None
    """The same with `local`, which is one process without Ray."""
    lines: Mapping[str, str] = field(default_factory=dict)
    """The texts of the table by their labels."""

    def __getitem__(self, label: str) -> str:
        return self.lines[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __str__(self) -> str:
        return "\n".join(describe_line(label, text) for label, text in self.lines.items())

    def __repr__(self) -> str:
        known = [f"{self.clients:,} clients", f"{self.steps:,} steps", f"{in_units(self.bytes_up)} up"]
        if self.memory_bytes is not None:
            known.append(f"{in_units(self.memory_bytes)} of memory")
        if self.seconds is not None:
            known.append(in_hours(self.seconds))
        return f"<estimate of {shorten(self.name, 40)}: {', '.join(known)}>"

    def _repr_html_(self) -> str:
        rows = (f"<tr><th>{escape(label)}</th><td>{escape(text)}</td></tr>" for label, text in self.lines.items())
        return f"<table>{''.join(rows)}</table>"


def describe_line(label: str, text: str) -> str:
    """Return a line of the table."""
    return single_line(f"{label:<12} {text}")


def check_run(
    config: str | Path | Mapping[str, object] | Config,
    overrides: Sequence[str] | Mapping[str, object] = (),
    **keys: Unpack[CallbackKeys],
) -> Estimate:
    """Return what a run would start, send, compute and need: numbers, and the table of `raysim check`. Start nothing.

    >>> estimate = raysim.check("quickstart", clients={"count": 20})
    >>> estimate.clients, estimate.rounds, estimate.bytes_up
    (20, 30, 11544000)

    Args:
        config: a YAML file, a mapping or a config.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values.
        keys: blocks of the config, such as methods="er"; further overrides.

    Raises:
        ConfigError: as the run itself would.
        RunError: a rehearsal failed, as with a mistake in a custom method.
    """
    warn_hidden(config)
    resolved = load(config, add_keywords("check", overrides, keys))
    lines = [*estimate_lines(resolved)]
    numbers = {name: number for line in lines for name, number in line.numbers.items()}
    return Estimate(name=resolved.name, lines={line.label: line.text for line in lines}, **numbers)
