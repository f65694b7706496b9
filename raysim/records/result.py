"""The result of a run: summary.json as an object, written and read."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from raysim.evaluation.metrics import ProtocolMetrics
from raysim.evaluation.scoring import ClientSummary
from raysim.system.errors import ConfigError
from raysim.system.files import convert_write_errors, is_locked, read_whole, write_whole

# keys of summary.json, and the values that it leaves out
IF_ASKED_FOR = {"top_k": 1, "tested": "global", "per_client": None, "stopped_by": None}


@dataclass(frozen=True, kw_only=True)
class Result:
    """The keys of summary.json in their order, and its directory.

    `evaluation` maps a protocol (domain_il, class_il, task_il) to its accuracy matrix (fractions) and its
    metrics; per_client, if evaluation.per_client asked for it, maps a protocol to the clients' accuracies and their
    mean, worst and std (see raysim.evaluation.scoring). Where top_k is above 1, these are top-k accuracies. `tested` is
    evaluation.model: where it is not global, accuracies are means over clients, and there is always per_client. Bytes
    are the methods' payload, all clients together; steps counts the gradient steps of all clients' local training,
    participation each client's updates; virtual_time is in virtual seconds; seconds_per_round is a median, without
    evaluation; stopped_by is the callback that ended the run before its last round; actors counts Ray's (the
    coordinator and the hosts; none if one process did it all). Older versions wrote no steps, participation,
    virtual_time and actors, and a key `killed`, which is not read.
    """

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    name: str
    seed: int
    methods: list[str]
    status: str
    stopped_by: str | None = None
    clients: int
    tasks: int
    rounds: int
    updates: int
    top_k: int = 1
    tested: str = "global"
    evaluation: Mapping[str, ProtocolMetrics]
    per_client: Mapping[str, ClientSummary] | None = None
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
    directory: Path = Path()


def write_result(result: Result) -> None:
    """Write summary.json into the result's directory. Raises RunError if it cannot be written."""
    path = result.directory / "summary.json"
    with convert_write_errors(path, result.directory):
        left_out = [key for key, unsaid in IF_ASKED_FOR.items() if getattr(result, key) == unsaid]
        summary = {k: v for k, v in vars(result).items() if k != "directory" and k not in left_out}
        write_whole(path, json.dumps(summary, indent=2, allow_nan=False) + "\n")


def load_result(directory: str | Path) -> Result:
    """Return the result of a run that ended.

    Raises:
        ConfigError: there is no summary.json, as the run is under way or was killed, or raysim did not write it.
    """
    path = Path(directory) / "summary.json"
    try:
        found = TypeAdapter(Result).validate_json(read_whole(path), strict=True)
    except OSError as error:
        if (path.parent / "rounds.jsonl").exists() and isinstance(error, FileNotFoundError):
            raise ConfigError(describe_unfinished(path.parent)) from None
        raise ConfigError(f"{path}: {error.strerror}; allowed: the directory of a run that ended") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {first_problem(error)}; allowed: a summary.json that raysim wrote") from error
    return replace(found, directory=Path(directory))


def describe_unfinished(directory: Path) -> str:
    """Return whether a run without a summary.json is running or was killed, in one line.

    A process that is killed writes no summary, but its lock on the directory ends with it.
    """
    if is_locked(directory):
        return f"{directory}: no summary.json yet: the run is under way"
    return f"{directory}: no summary.json: the run was killed; resume it with raysim run --resume --out {directory}"


def first_problem(error: ValidationError) -> str:
    """Return where the first error of a file is, in dotted keys, and what it is."""
    first = error.errors(include_url=False)[0]
    keys = ".".join(str(key) for key in first["loc"])
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"{keys}: {message}" if keys else message
