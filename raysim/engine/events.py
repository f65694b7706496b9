"""Events of a running simulation, in this process or in a coordinator actor."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from torch import Tensor
from typing_extensions import TypedDict

from raysim.api.pictures import Picture
from raysim.evaluation.scoring import ClientSummary, Spread
from raysim.system.footprint import Peak

Accuracies = Mapping[str, Sequence[float]]
"""Protocol -> for each task, the fraction of correct predictions on its test set.

If `evaluation.model` is local, each value is the mean over the clients' personalized models.
"""


@dataclass(frozen=True)
class Started:
    """The first event: all hosts are ready."""

    evaluation: Accuracies | None  # the accuracies of the untrained model; None if the run resumes
    rounds: int  # the number of rounds of the whole run
    done: int = 0  # the number of rounds before the checkpoint from which the run resumes
    actors: int = 0  # the number of Ray actors: the coordinator and the hosts; 0 if one process does all
    machine: str | None = None  # the kinds of machines that compute


class Dispatched(NamedTuple):
    """One dispatch: the client received the model, trained unless it dropped out, and returned.

    The `fate` is "used" if the server applied the update. It is "discarded" if the update was too old, or of samples
    that were forgotten meanwhile. It is "unused" if the run ended before the server applied the update. It is "dropped"
    if the client dropped out.
    """

    client: int
    sent: float  # the virtual time at which it received the model, in seconds
    back: float  # the virtual time at which it returned, in seconds
    fate: Literal["used", "discarded", "unused", "dropped"]


class Forgotten(TypedDict):
    """What a request to forget did. Pairs are before and after it; None is undefined. Accuracies are fractions."""

    request: int
    """Its place in `clients.forget`, from 0."""
    round: int
    """The round after which it acted."""
    what: str
    """What it named, such as "client 7"."""
    samples: int
    """The samples that it named and that had arrived. A sample counts for the first request that names it."""
    to_come: int
    """Those that had not arrived, and are left out later."""
    clients: int
    """The clients that hold them."""
    exact: bool
    """Whether the model is the one of a run without them."""
    dropped: dict[str, int]
    """What was dropped, where methods train."""
    stays: list[str]
    """The methods, with their place, that have a state that was not changed."""
    accuracy_forgotten: list[float | None]
    """The tested model's accuracy on the samples that are forgotten."""
    accuracy_rest: list[float | None]
    """The same on the other training samples so far."""
    attack: list[float | None]
    """The AUC of a membership inference by the loss: 0.5 cannot tell forgotten samples from test samples."""
    seconds: float
    """The real duration, without measuring."""
    bytes_up: int
    """The bytes that clients sent for it."""
    bytes_down: int
    """The bytes that were sent to clients for it."""
    said: str
    """All that in plain words."""


@dataclass(frozen=True)
class RoundDone:
    """One server update. Bytes are the methods' payload. Bytes and steps are totals over all clients."""

    round: int  # the round, from 1
    tasks: Sequence[int]  # the tasks (from 1) of the samples on which the clients trained
    cohort: Sequence[int]  # the clients whose updates were applied
    loss: float | None  # the mean training loss
    bytes_up: int
    bytes_down: int
    seconds: float  # the real duration
    staleness: Sequence[int]  # for each client of the cohort: the age of its update, in server updates
    virtual_time: float  # virtual seconds since the run's start
    steps: int = 0  # the number of gradient steps
    idle_share: float | None = None  # the fraction of the virtual duration for which participating clients waited
    records: Mapping[str, float] = field(default_factory=dict)  # name -> the number that methods recorded
    pictures: Mapping[str, Picture] = field(
        default_factory=dict, compare=False
    )  # name -> the picture that methods recorded
    evaluation: Accuracies | None = None  # the accuracies, if the round ends with an evaluation
    spread: Mapping[str, Spread] | None = None  # protocol -> the spread over clients, if evaluation.model is local
    task_done: bool = False  # whether a row of the accuracy matrix was measured after this round
    so_far: int = 1  # the last task (from 1) that clients may have seen
    # The dispatches since the last server update; None unless `logging.dispatches`.
    dispatches: Sequence[Dispatched] | None = None
    memory: Sequence[Sequence[int]] | None = None  # how many samples memories hold, [tasks, classes]
    # Part of the work -> seconds, if `logging.profile`. Parts named "client: ..." are sums over all clients.
    profile: Mapping[str, float] | None = None
    forgotten: Sequence[Forgotten] | None = None  # the requests to forget that acted after the round, if there are any


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run between two rounds. The run can resume from it with any runner."""

    round: int  # the number of completed rounds
    server: bytes  # the saved state of the server, its halves and the schedule (see raysim.system.state)
    clients: Iterable[Mapping[int, bytes]]  # for each host: client -> its saved state
    peaks: Sequence[Peak] = ()  # the peak memory of each actor


@dataclass(frozen=True)
class Finished:
    """The last event."""

    state: Mapping[str, Tensor]  # the final model's state_dict
    interrupted: bool  # whether the run was stopped before its last round
    per_client: Mapping[str, ClientSummary] | None = None  # the clients' accuracies, if the config asks for them
    peaks: Sequence[Peak] = ()  # the peak memory of each actor


@dataclass(frozen=True)
class Notice:
    """A message for the user."""

    text: str


@dataclass(frozen=True)
class Caution(Notice):
    """A warning: what is allowed, but is likely a mistake."""


@dataclass(frozen=True)
class Waiting(Notice):
    """A message that the run is stalled. Its text says what the run waits for and, after a colon, what to look at."""


@dataclass(frozen=True)
class StartStep:
    """A short text that says what the run does before its first round."""

    text: str
    computes: bool = False  # whether the run has all its processes and computes, which may take any time
    share: float | None = None  # how much of it is done, if that is known


@dataclass(frozen=True)
class RolledBack:
    """A process was lost. The run resumes from its newest checkpoint and repeats the rounds after it."""

    why: str
    round: int  # the last round of the checkpoint


Event = Started | RoundDone | Checkpoint | Finished | Notice | StartStep | RolledBack
STOPPABLE = (Started, RoundDone)  # a callback may end the run at these events
OPTIONAL = (
    "evaluation",
    "spread",
    "dispatches",
    "memory",
    "profile",
    "forgotten",
)  # the last keys in rounds.jsonl, omitted if None


def line(event: RoundDone) -> dict[str, Any]:
    """Return a round's entry in rounds.jsonl. JSON has no NaN or infinity, so they become null."""
    omitted = (*OPTIONAL, "task_done", "pictures")
    record = {key: getattr(event, key) for key in RoundDone.__dataclass_fields__ if key not in omitted}
    record["loss"] = _finite(event.loss)
    record["records"] = {name: _finite(value) for name, value in event.records.items()}
    return record | {key: value for key in OPTIONAL if (value := getattr(event, key)) is not None}


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
