"""What config.yaml, clients.json, summary.json and sweep.yaml say, as far as the page shows it.

No custom code is imported. PyTorch is imported only for the metric of an objective other than classification: a page
should take little of a machine on which others compute.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from raysim.config.lookup import only_named_by, resolve
from raysim.config.scenarios import MOST_TASKS
from raysim.config.timing import MOST_CLIENTS
from raysim.config.yaml_text import read_yaml
from raysim.live.contained import read_below
from raysim.live.round_line import as_number
from raysim.live.settings import Settings, flatten
from raysim.system.errors import ConfigError

# as raysim.records and raysim.sweeps call them, which import PyTorch
CONFIG, ROUNDS, CLIENTS, SWEEP_FILE = "config.yaml", "rounds.jsonl", "clients.json", "sweep.yaml"
LONGEST = 200  # characters of a name that are shown
LONGEST_PROBLEM = 1000  # characters of the line that says why a run failed
JUNK = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError)
METRICS = ("average_incremental_accuracy", "backward_transfer", "forward_transfer")
ACCURACY = {"name": "accuracy", "unit": "%", "higher_is_better": True}


@dataclass(frozen=True)
class RunFacts:
    """What is known of a run before its first round.

    Attributes:
        ends: the rounds after which a row of the accuracy matrix is measured; None if that is unknown.
        shown_clients: those that the page shows the trips of.
        at_tasks: by client: pairs of a round and the client's task from then on; empty if all are at the run's task.
        settings: all values of its config, by key.
    """

    name: str
    seed: int
    methods: str
    schedule: str
    tasks: int
    clients: int
    in_step: bool
    metric: Mapping[str, Any]
    dispatches: bool
    memory: bool
    ends: Sequence[int] | None
    shown_clients: Sequence[int]
    at_tasks: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    settings: Settings = field(default_factory=dict)


def read_facts(directory: Path, root: Path) -> RunFacts:
    """Return what the files of a run's start say. Links that lead out of `root` are not followed.

    Raises:
        ConfigError: config.yaml is missing or not raysim's.
    """
    path = directory / CONFIG
    values = _read_yaml(path, root)
    try:
        return _find_facts(values, _read_clients(directory, root))
    except JUNK:
        raise ConfigError(f"{path}: found no config of a run") from None


def read_summary(directory: Path, root: Path) -> Mapping[str, Any] | None:
    """Return summary.json's values; None if there is none, as the run is under way or was killed."""
    try:
        values = json.loads(read_below(root, directory / "summary.json"), parse_constant=lambda name: None)
        return dict(values) if isinstance(dict(values)["status"], str) else None
    except (OSError, *JUNK):
        return None


def read_sweep(directory: Path) -> list[str]:
    """Return the folders of a sweep's runs. Raises ConfigError if sweep.yaml is missing or not raysim's."""
    path = directory / SWEEP_FILE
    runs = _read_yaml(path, directory).get("runs")
    if not isinstance(runs, dict) or not all(isinstance(folder, str) for folder in runs):
        raise ConfigError(f"{path}: runs: found no runs, allowed: a file that a sweep wrote")
    return [*runs]


def _read_yaml(path: Path, root: Path) -> Mapping[str, Any]:
    try:
        return read_yaml(path, read_below(root, path)).values
    except OSError as error:
        raise ConfigError(f"{path}: the file cannot be read: {error.strerror or error}") from None


def shorten_summary(summary: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return what the page shows of a summary."""
    if summary is None:
        return None
    try:
        metrics = {
            str(protocol): {key: number for key in METRICS if (number := as_number(values.get(key))) is not None}
            for protocol, values in summary.get("evaluation", {}).items()
        }
    except JUNK:
        metrics = {}
    shown = {"stopped_by": LONGEST, "problem": LONGEST_PROBLEM}
    texts = {key: str(summary[key])[:most] for key, most in shown.items() if summary.get(key) is not None}
    return {**dict.fromkeys(shown), **texts, "evaluation": metrics}


def _find_facts(values: Mapping[str, Any], held: Mapping[str, Any]) -> RunFacts:
    scenario, training, schedule, logging = (_block(values, k) for k in ("scenario", "training", "schedule", "logging"))
    tasks, clients = int(scenario["tasks"]), int(values["clients"]["count"])
    if not (1 <= tasks <= MOST_TASKS and 1 <= clients <= MOST_CLIENTS):
        raise ValueError("found no run's tasks and clients")
    boundaries = scenario.get("boundaries")
    windows = isinstance(boundaries, dict) and boundaries.get("asynchronous") is not None  # jittered ones have null
    ends = [int(end) for end in held.get("rows", ())] or None
    per_task = training.get("rounds_per_task")
    if ends is None and not windows and per_task is not None:
        ends = [int(per_task) * task for task in range(1, tasks + 1)]
    at_tasks = {
        int(client): [(int(round), int(task)) for round, task in changes]
        for client, changes in zip(held.get("clients", ()), held.get("at_tasks", ()), strict=False)
    }
    return RunFacts(
        name=str(values["name"])[:LONGEST],
        seed=int(values.get("seed") or 0),
        methods=(" + ".join(map(str, values.get("methods") or {})) or "FedAvg")[:LONGEST],
        schedule=_describe(schedule),
        tasks=tasks,
        clients=clients,
        in_step=not windows and scenario.get("order", "same") == "same",
        metric=_find_metric(values.get("objective", "classification")),
        dispatches=bool(logging.get("dispatches")),
        memory=bool(logging.get("memory")),
        ends=ends,
        shown_clients=[*at_tasks] or range(clients),
        at_tasks=at_tasks,
        settings=flatten(values),
    )


def _describe(schedule: Mapping[str, Any]) -> str:
    if schedule.get("kind") != "asynchronous":
        return ""
    return f"asynchronous, {schedule.get('concurrency')} at a time, buffer of {schedule.get('buffer_size')}"[:LONGEST]


def _find_metric(objective: Any) -> Mapping[str, Any]:
    """Return the metric of an objective of raysim's. Custom code is not imported, so its metric has no name."""
    if objective == "classification":
        return ACCURACY
    try:
        name, keys = (objective, {}) if isinstance(objective, str) else _named(objective)
        with only_named_by():
            metric = resolve("objective", name)(**keys).metric
        return {"name": metric.name, "unit": metric.unit, "higher_is_better": metric.higher_is_better}
    except (ConfigError, *JUNK):
        return {"name": "metric", "unit": "", "higher_is_better": True}


def _named(objective: Any) -> tuple[str, Mapping[str, Any]]:
    return str(objective["name"]), {key: value for key, value in objective.items() if key != "name"}


def _block(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], values.get(key) or {})


def _read_clients(directory: Path, root: Path) -> Mapping[str, Any]:
    """Return clients.json; empty if there is none, as for custom streams."""
    try:
        return dict(json.loads(read_below(root, directory / CLIENTS)))
    except (OSError, *JUNK):
        return {}
