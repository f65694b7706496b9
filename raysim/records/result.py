"""The result of a run: summary.json as an object, written and read."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from pathlib import Path
from shlex import quote
from typing import ClassVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError

from raysim.config.error_text import describe_unknown, shorten
from raysim.config.written_by import describe_other_version
from raysim.engine.events import Forgotten
from raysim.evaluation.accuracy_matrix import ProtocolMetrics, complete, describe_mean, grade, metric_of, protocol_label
from raysim.evaluation.scoring import ClientSummary
from raysim.system.colors import choose_text_color, mix_sequence
from raysim.system.errors import ConfigError
from raysim.system.files import convert_write_errors, is_locked, read_whole, write_whole

# keys of summary.json, and the values that it leaves out
IF_ASKED_FOR = {
    "top_k": 1,
    "clients_together": 1,
    "tested": "global",
    "per_client": None,
    "forgotten": [],
    "stopped_by": None,
    "problem": None,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """The result of a run: the keys of its summary.json, and its directory.

    A key that an older version of raysim did not write has its default.

    >>> result = raysim.run("quickstart", methods="er", local=True)
    >>> result.status, result.clients, result.tasks
    ('done', 5, 3)
    >>> round(result.accuracy(), 2)
    0.82
    >>> round(result.evaluation["domain_il"]["backward_transfer"], 2)
    -0.09
    """

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    name: str
    """The config's name."""
    seed: int
    """The config's seed."""
    methods: list[str]
    """The methods' names in their order; empty for FedAvg."""
    clients_together: int = 1
    """The number of clients that a host trained at a time as one program; see training.vectorise. 1 is one at a time:
    the same run with another number from 2 has the same bits on a CPU, and one with 1 has others."""
    status: str
    """How the run ended: done, failed or interrupted."""
    problem: str | None = None
    """Why the run failed, in one line; None if it did not."""
    stopped_by: str | None = None
    """The callback that ended the run before its last round."""
    clients: int
    """The number of clients."""
    tasks: int
    """The number of tasks."""
    rounds: int
    """The number of server updates, which are the lines of rounds.jsonl."""
    updates: int
    """The number of client updates that the server applied."""
    top_k: int = 1
    """A prediction counts as correct if the label is among the top_k most likely classes."""
    tested: str = "global"
    """The tested models, which is evaluation.model: global, local or global_per_client. Unless it is global, accuracies
    are means over clients."""
    evaluation: Mapping[str, ProtocolMetrics]
    """By protocol (domain_il, class_il, class_il_seen, task_il): the accuracy matrix `a[t][i]` and its metrics, as
    fractions."""
    test_samples: Sequence[int] = ()
    """The number of test samples of each task."""
    per_client: Mapping[str, ClientSummary] | None = None
    """By protocol: the clients' accuracies with their mean, worst and standard deviation, if the config asks for it."""
    forgotten: list[Forgotten] = field(default_factory=list)
    """What each request to forget did, in their order: see `clients.forget`."""
    bytes_up: int
    """The bytes that all clients sent to the server: the methods' payload."""
    bytes_down: int
    """The bytes that the server sent to all clients: the methods' payload."""
    steps: int | None = None
    """The gradient steps of all clients' local training."""
    participation: Sequence[int] = ()
    """By client: the number of its updates."""
    virtual_time: float | None = None
    """The virtual seconds that the run takes under an asynchronous schedule."""
    model_sha256: str | None
    """The hash of the final model's tensors; equal for runs that are equal to the last bit."""
    seconds: float
    """The real duration of the run."""
    seconds_per_round: float | None
    """The median of the rounds' durations, without evaluation and checkpoints."""
    seconds_starting: float
    """The duration of the start, before the first round."""
    peak_memory_bytes: int
    """The largest memory of all of the run's processes together, sampled each second."""
    actors: int | None = None
    """The number of Ray actors, which are the coordinator and the hosts; 0 if one process did everything."""
    recoveries: int
    """How often the run returned to a checkpoint, since a process was lost."""
    rounds_recomputed: int
    """The number of rounds that recoveries computed again."""
    versions: Mapping[str, str | None]
    """The versions of Python, torch, Ray and raysim, the git commit, and what else decides the run's bits.

    raysim.records.identity lists the names, such as `data`, `weights` and `machine`. A run that resumed with another
    code or machine has both texts, joined by ", then "."""
    directory: Path = Path()
    """The run's directory."""

    def accuracy(self, protocol: str | None = None) -> float | None:
        """Return the average accuracy over the finished tasks after the last of them, as a fraction.

        A run that was stopped early, see `stopped_by`, has fewer tasks.

        >>> result = raysim.run("quickstart", methods="er", local=True)
        >>> round(result.accuracy(), 2)
        0.82
        >>> result.accuracy("domain_il") == result.accuracy()
        True

        Args:
            protocol: domain_il, class_il, class_il_seen or task_il; by default the first in `evaluation`.
        """
        found = self._metrics(protocol)
        return None if found is None else found["average_accuracy"]

    def forgetting(self, protocol: str | None = None) -> float | None:
        """Return the forgetting, as a fraction; None if it is undefined, as with one task.

        >>> result = raysim.run("quickstart", methods="er", local=True)
        >>> round(result.forgetting(), 2)
        0.09

        Args:
            protocol: domain_il, class_il, class_il_seen or task_il; by default the first in `evaluation`.
        """
        found = self._metrics(protocol)
        return None if found is None else found["forgetting"]

    @property
    def matrix(self) -> np.ndarray:
        """The accuracy matrix `a[t][i]` of the first protocol: on task i's test set after task t, as fractions.

        >>> result = raysim.run("quickstart", methods="er", local=True)
        >>> result.matrix.shape
        (3, 3)
        >>> round(float(result.matrix[-1].mean()), 2)
        0.82
        """
        found = self._metrics(None)
        return np.array([] if found is None else found["accuracy"], dtype=float)

    def completed(self, samples: Sequence[int] | None = None) -> "Result":
        """Return the result with the metrics that an older version of raysim did not write, as far as known.

        >>> result = raysim.run("quickstart", methods="er", local=True)
        >>> result.completed([364, 364, 364]) == result
        True

        Args:
            samples: the number of test samples of each task, or numbers in proportion; None if unknown.
        """
        evaluation = {protocol: complete(values, samples) for protocol, values in self.evaluation.items()}
        return replace(self, evaluation=evaluation)

    def _metrics(self, protocol: str | None) -> ProtocolMetrics | None:
        if protocol is None:
            return next(iter(self.evaluation.values()), None)
        if protocol not in self.evaluation:
            raise ConfigError(describe_unknown("protocol", protocol, self.evaluation))
        return self.evaluation[protocol]

    def __repr__(self) -> str:
        """Return the result in one line of at most 200 characters. `vars(result)` has all of it."""
        parts = [f"{shorten(self.name, 40)}, seed {self.seed}: {shorten(' + '.join(self.methods), 40) or 'FedAvg'}"]
        parts.append(self.status)
        for protocol, values in [*self.evaluation.items()][:1]:
            if (mean := values["average_accuracy"]) is not None:
                parts.append(describe_mean(protocol, mean, metric_of(values), self.top_k))
        folder = str(self.directory)
        return f"<result of {', '.join(parts)}; {folder if len(folder) <= 60 else '...' + folder[-57:]}>"

    def _repr_html_(self) -> str:
        """Return the result for notebooks: by protocol the accuracy matrix in colors, and the metrics."""
        methods = " + ".join(self.methods) or "FedAvg"
        status = self.status if self.problem is None else f"{self.status}: {self.problem}"
        lines = [f"<p><b>{escape(self.name)}</b>, seed {self.seed}: {escape(methods)} ({escape(status)})</p>"]
        for protocol, values in self.evaluation.items():
            lines += _protocol_as_html(protocol_label(protocol, self.top_k, self.tested), values)
        return "\n".join([*lines, f"<p>{escape(str(self.directory))}</p>"])


def _protocol_as_html(label: str, values: ProtocolMetrics) -> Iterator[str]:
    metric, matrix = metric_of(values), values["accuracy"]
    tasks = "".join(f"<th>{task}</th>" for task in range(1, len(matrix[0]) + 1 if matrix else 1))
    yield f"<table><caption>{escape(metric.title)}, {escape(label)}: rows after a task, columns on a task</caption>"
    yield f"<tr><th></th>{tasks}</tr>"
    for t, (row, grades) in enumerate(zip(matrix, grade(matrix, metric), strict=True), 1):
        cells = (_cell_as_html(metric.figure(value), share) for value, share in zip(row, grades, strict=True))
        yield f"<tr><th>{t}</th>{''.join(cells)}</tr>"
    yield "</table>"
    numbers = {
        f"average {metric.name}": values["average_accuracy"],
        "forgetting": values["forgetting"],
        "backward transfer": values["backward_transfer"],
        "forward transfer": values["forward_transfer"],
        f"average incremental {metric.name}": values.get("average_incremental_accuracy"),
        f"{metric.name} over all samples": values.get("final_accuracy"),
    }
    said = (f"{escape(name)} {metric.figure(value)}" for name, value in numbers.items() if value is not None)
    yield f"<p>{', '.join(said)}</p>"


def _cell_as_html(figure: str, share: float) -> str:
    return f'<td style="color: {choose_text_color(share)}; background: rgb{mix_sequence(share)}">{figure}</td>'


def write_result(result: Result) -> None:
    """Write summary.json into the result's directory. Raises RunError if it cannot be written."""
    path = result.directory / "summary.json"
    with convert_write_errors(path, result.directory):
        left_out = [key for key, unsaid in IF_ASKED_FOR.items() if getattr(result, key) == unsaid]
        summary = {k: v for k, v in vars(result).items() if k != "directory" and k not in left_out}
        write_whole(path, json.dumps(summary, indent=2, allow_nan=False) + "\n")


def load_result(directory: str | Path) -> Result:
    """Return the result of a run that ended.

    >>> result = raysim.run("quickstart", methods="er", local=True)
    >>> raysim.load(result.directory).accuracy() == result.accuracy()
    True

    Raises:
        ConfigError: there is no summary.json, as the run is under way or was killed, or raysim did not write it.
    """
    path = Path(directory) / "summary.json"
    try:
        found = _schema().validate_json(read_whole(path), strict=True)
    except OSError as error:
        if (path.parent / "rounds.jsonl").exists() and isinstance(error, FileNotFoundError):
            raise ConfigError(describe_unfinished(path.parent)) from None
        raise ConfigError(f"{path}: {error.strerror}; allowed: the directory of a run that ended") from error
    except ValidationError as error:
        allowed = describe_other_version(path.parent) or "allowed: a summary.json that raysim wrote"
        raise ConfigError(f"{path}: {first_problem(error)}; {allowed}") from error
    return replace(found, directory=Path(directory)).completed()


@cache
def _schema() -> TypeAdapter[Result]:
    return TypeAdapter(Result)  # to make it takes longer than to read a summary


def describe_unfinished(directory: Path) -> str:
    """Return whether a run without a summary.json is running or was killed, in one line.

    A process that is killed writes no summary, but its lock on the directory ends with it.
    """
    if is_locked(directory):
        return f"{directory}: no summary.json yet: the run is under way"
    resume = f"with --trust if it has custom components: raysim run --resume --out {quote(str(directory))}"
    return f"{directory}: no summary.json: the run was killed; resume it, {resume}"


def first_problem(error: ValidationError) -> str:
    """Return where the first error of a file is, in dotted keys, and what it is."""
    first = error.errors(include_url=False)[0]
    keys = ".".join(str(key) for key in first["loc"])
    message = first["msg"][:1].lower() + first["msg"][1:]
    return f"{keys}: {message}" if keys else message
