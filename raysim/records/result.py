"""What a run came to: summary.json as an object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from raysim.system.errors import ConfigError


@dataclass(frozen=True)
class Result:
    """The keys of summary.json, and the directory that it lies in.

    `evaluation` maps a protocol (domain_il, class_il, task_il) to its accuracy matrix (a[t][i], fractions) and its
    metrics; bytes are the methods' payload, all clients together; seconds_per_round is a median, without evaluation;
    participation counts each client's updates, virtual_time is in virtual seconds, steps counts the gradient steps of
    all clients' local training, actors counts Ray's (the coordinator and the hosts; none where one process did it all;
    older raysims wrote none of the four); per_client, where evaluation.per_client asked
    for it, maps a protocol to the clients' accuracies and their mean, worst and std (see raysim.evaluation.per_client).
    """

    name: str
    seed: int
    methods: list[str]
    status: str
    clients: int
    tasks: int
    rounds: int
    updates: int
    evaluation: Mapping[str, Mapping[str, Any]]
    bytes_up: int
    bytes_down: int
    seconds: float
    seconds_per_round: float | None
    seconds_starting: float
    peak_memory_bytes: int
    recoveries: int
    rounds_recomputed: int
    model_sha256: str | None
    versions: Mapping[str, str | None]
    directory: Path
    participation: Sequence[int] = ()
    virtual_time: float | None = None
    steps: int | None = None
    actors: int | None = None
    per_client: Mapping[str, Mapping[str, Any]] | None = None


def load(directory: str | Path) -> Result:
    """Return the result of a run that ended.

    Raises:
        ConfigError: there is no summary.json, or not one of raysim's.
    """
    path = Path(directory) / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; allowed: the directory of a run that ended") from error
    except ValueError as error:
        raise ConfigError(f"{path}: {error}; allowed: a summary.json that raysim wrote") from error
    known = {field.name: field.default is MISSING for field in fields(Result) if field.name != "directory"}
    if not isinstance(summary, dict) or not {key for key, needed in known.items() if needed} <= set(summary):
        raise ConfigError(f"{path}: keys are missing; allowed: a summary.json that raysim wrote")
    return Result(**{key: summary[key] for key in known if key in summary}, directory=Path(directory))
