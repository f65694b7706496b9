"""The result of a run: summary.json as an object, written and read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from raysim.system.errors import ConfigError
from raysim.system.files import convert_write_errors, write_whole


@dataclass(frozen=True, kw_only=True)
class Result:
    """The keys of summary.json in their order, and its directory.

    `evaluation` maps a protocol (domain_il, class_il, task_il) to its accuracy matrix (a[t][i], fractions) and its
    metrics; per_client, if evaluation.per_client asked for it, maps a protocol to the clients' accuracies and their
    mean, worst and std (see raysim.evaluation.scoring). Bytes are the methods' payload, all clients together; steps
    counts the gradient steps of all clients' local training, participation each client's updates; virtual_time is in
    virtual seconds; seconds_per_round is a median, without evaluation; actors counts Ray's (the coordinator and the
    hosts; none if one process did it all). Older versions wrote no steps, participation, virtual_time and actors.
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
    per_client: Mapping[str, Mapping[str, Any]] | None = None
    bytes_up: int
    bytes_down: int
    steps: int | None = None
    participation: Sequence[int] = ()
    virtual_time: float | None = None
    model_sha256: str | None
    seconds: float
    seconds_per_round: float | None
    seconds_starting: float
    peak_memory_bytes: int
    actors: int | None = None
    recoveries: int
    rounds_recomputed: int
    versions: Mapping[str, str | None]
    directory: Path


def write_result(result: Result) -> None:
    """Write summary.json into the result's directory. Raises RunError if it cannot be written."""
    summary = {key: value for key, value in vars(result).items() if key != "directory"}
    if result.per_client is None:
        del summary["per_client"]
    path = result.directory / "summary.json"
    with convert_write_errors(path, result.directory):
        write_whole(path, json.dumps(summary, indent=2, allow_nan=False) + "\n")


def load_result(directory: str | Path) -> Result:
    """Return the result of a run that ended.

    Raises:
        ConfigError: there is no summary.json, or raysim did not write it.
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
