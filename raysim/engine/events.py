"""Events of a simulation while it runs, the same whether it runs in this process or in a coordinator actor."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor

from raysim.evaluation.per_client import Spread
from raysim.evaluation.scoring import ClientSummary
from raysim.system.footprint import Peak

Accuracies = Mapping[str, Sequence[float]]
"""By protocol: the fraction of correct predictions on every task's test set; with another evaluation.model than global
the clients' mean of it."""


@dataclass(frozen=True)
class Started:
    """The first event: all hosts are ready, and the run's number of rounds is known.

    A run from the start begins with the evaluation of the untrained model; one that resumes from a checkpoint does not,
    and has done `done` rounds. `actors` counts Ray's: the coordinator and the hosts, none if one process does it all.
    """

    evaluation: Accuracies | None
    rounds: int
    done: int = 0
    actors: int = 0


class Dispatched(NamedTuple):
    """A client that was sent the model: from when until when it was away, in virtual seconds, and what came of it.

    Its update was used, or discarded as too old, or unused as the run ended before; dropped: it never trained.
    """

    client: int
    sent: float
    back: float
    fate: Literal["used", "discarded", "unused", "dropped"]


@dataclass(frozen=True)
class RoundDone:
    """One server update. Rounds and tasks count from 1; bytes (the methods' payload) and gradient steps are totals over
    all clients.

    `task_done` says whether a row of the accuracy matrix ends with it, `so_far` how many tasks, from the first, may
    have been seen by then. `spread` is over the clients, by protocol, where evaluation.model is not global. `memory` is
    how many samples all memories hold at an evaluation, [tasks, classes]; it and `dispatches`, those since the last
    server update, are None unless `logging` asks for them.
    """

    round: int
    tasks: Sequence[int]
    cohort: Sequence[int]
    loss: float | None
    bytes_up: int
    bytes_down: int
    seconds: float
    staleness: Sequence[int]
    virtual_time: float
    steps: int = 0
    idle_share: float | None = None
    records: Mapping[str, float] = field(default_factory=dict)
    evaluation: Accuracies | None = None
    spread: Mapping[str, Spread] | None = None
    task_done: bool = False
    so_far: int = 1
    dispatches: Sequence[Dispatched] | None = None
    memory: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two rounds: all that is needed to resume from here, under any runner.

    `server` is the record of the server, its halves and the schedule, `clients` are the clients' records by id, host by
    host (see raysim.system.state); `round` rounds are done. `peaks` is the peak memory of the actors.
    """

    round: int
    server: bytes
    clients: Iterable[Mapping[int, bytes]]
    peaks: Sequence[Peak] = ()


@dataclass(frozen=True)
class Finished:
    """The last event: the final model, and whether the run was stopped before its last round.

    `per_client` is summary.json's entry on the clients' accuracies, if evaluation.per_client asks for it; `peaks` is
    the peak memory of the actors.
    """

    state: Mapping[str, Tensor]
    interrupted: bool
    per_client: Mapping[str, ClientSummary] | None = None
    peaks: Sequence[Peak] = ()


@dataclass(frozen=True)
class Notice:
    """A line of text for the user."""

    text: str


@dataclass(frozen=True)
class Waiting(Notice):
    """A line that says what is waited for in vain and, after a colon, what to look at."""


@dataclass(frozen=True)
class Stage:
    """What a run is doing before its first round, in a few words."""

    text: str


@dataclass(frozen=True)
class RolledBack:
    """A process was lost, and the run has gone back to its newest checkpoint, after `round`; its later rounds follow
    once more.
    """

    why: str
    round: int


Event = Started | RoundDone | Checkpoint | Finished | Notice | Stage | RolledBack
STOPPABLE = (Started, RoundDone)  # events with which a callback may end the run
# fields that a round's line ends with, unless they are None
IF_THERE = ("evaluation", "spread", "dispatches", "memory")


def line(event: RoundDone) -> dict[str, Any]:
    """Return a round's entry in rounds.jsonl; numbers that are not finite, which JSON lacks, become null."""
    left_out = (*IF_THERE, "task_done")
    record = {key: getattr(event, key) for key in RoundDone.__dataclass_fields__ if key not in left_out}
    record["loss"] = _finite(event.loss)
    record["records"] = {name: _finite(value) for name, value in event.records.items()}
    return record | {key: found for key in IF_THERE if (found := getattr(event, key)) is not None}


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
