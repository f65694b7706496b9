"""Events of a running simulation, in this process or in a coordinator actor."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from raysim.evaluation.per_client import Spread
from raysim.evaluation.scoring import ClientSummary
from raysim.system.footprint import Peak

Accuracies = Mapping[str, Sequence[float]]
"""By protocol: the fraction of correct predictions on each task's test set. A mean over clients, unless
`evaluation.model` is global."""


@dataclass(frozen=True)
class Started:
    """The first event: all hosts are ready."""

    evaluation: Accuracies | None
    """The accuracies of the untrained model. None if the run resumes."""
    rounds: int
    """The number of rounds of the whole run."""
    done: int = 0
    """The number of rounds before the checkpoint from which the run resumes."""
    actors: int = 0
    """The number of Ray actors: the coordinator and the hosts. 0 without Ray."""


class Dispatched(NamedTuple):
    """One client's trip: it received the model, trained, and returned."""

    client: int
    sent: float
    """The virtual time at which it received the model, in seconds."""
    back: float
    """The virtual time at which it returned, in seconds."""
    fate: Literal["used", "discarded", "unused", "dropped"]
    """Its update was used, discarded as too old, or unused at the run's end; or the client dropped out."""


@dataclass(frozen=True)
class RoundDone:
    """One server update. Bytes are the methods' payload. Bytes and steps are totals over all clients."""

    round: int
    """The round, from 1."""
    tasks: Sequence[int]
    """The tasks, from 1, whose samples were trained on."""
    cohort: Sequence[int]
    """The clients whose updates were applied."""
    loss: float | None
    """The mean training loss."""
    bytes_up: int
    bytes_down: int
    seconds: float
    """The real duration."""
    staleness: Sequence[int]
    """By client of the cohort: the age of its update, in server updates."""
    virtual_time: float
    """The virtual seconds since the run's start."""
    steps: int = 0
    """The number of gradient steps."""
    idle_share: float | None = None
    """The fraction of the round's virtual duration in which the participating clients waited."""
    records: Mapping[str, float] = field(default_factory=dict)
    """What the methods recorded, by name."""
    evaluation: Accuracies | None = None
    """The accuracies, if the round ends with an evaluation."""
    spread: Mapping[str, Spread] | None = None
    """By protocol: the spread over clients, unless `evaluation.model` is global."""
    task_done: bool = False
    """Whether a row of the accuracy matrix ends with this round."""
    so_far: int = 1
    """How many tasks, from the first, clients may have seen."""
    dispatches: Sequence[Dispatched] | None = None
    """The dispatches since the last server update, if `logging.dispatches`."""
    memory: Sequence[Sequence[int]] | None = None
    """How many samples all memories hold at an evaluation, [tasks, classes], if `logging.memory`."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two rounds. The run can resume from it with any runner."""

    round: int
    """The number of completed rounds."""
    server: bytes
    """The record of the simulation: the server, its halves and the schedule (see raysim.system.state)."""
    clients: Iterable[Mapping[int, bytes]]
    """By host: its clients' records, by id."""
    peaks: Sequence[Peak] = ()
    """The peak memory of each actor."""


@dataclass(frozen=True)
class Finished:
    """The last event."""

    state: Mapping[str, Tensor]
    """The final model's state_dict."""
    interrupted: bool
    """Whether the run was stopped before its last round."""
    per_client: Mapping[str, ClientSummary] | None = None
    """The clients' accuracies for summary.json, if the config asks for them."""
    peaks: Sequence[Peak] = ()
    """The peak memory of each actor."""


@dataclass(frozen=True)
class Notice:
    """A message for the user."""

    text: str


@dataclass(frozen=True)
class Waiting(Notice):
    """A message that the run is stalled: what it waits for and, after a colon, what to look at."""


@dataclass(frozen=True)
class Stage:
    """A short description of what a run is doing before its first round."""

    text: str


@dataclass(frozen=True)
class RolledBack:
    """A process was lost. The run resumes from its newest checkpoint and repeats the rounds since."""

    why: str
    round: int
    """The last round of the checkpoint."""


Event = Started | RoundDone | Checkpoint | Finished | Notice | Stage | RolledBack
STOPPABLE = (Started, RoundDone)  # a callback may end the run at these events
OPTIONAL = ("evaluation", "spread", "dispatches", "memory")  # the last keys in rounds.jsonl, omitted if None


def line(event: RoundDone) -> dict[str, Any]:
    """Return a round's entry in rounds.jsonl. JSON has no NaN or infinity, so they become null."""
    omitted = (*OPTIONAL, "task_done")
    record = {key: getattr(event, key) for key in RoundDone.__dataclass_fields__ if key not in omitted}
    record["loss"] = _finite(event.loss)
    record["records"] = {name: _finite(value) for name, value in event.records.items()}
    return record | {key: value for key in OPTIONAL if (value := getattr(event, key)) is not None}


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
