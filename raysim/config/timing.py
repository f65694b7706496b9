"""The blocks of the config that say when: task boundaries, clients' arrivals and departures, server updates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from raysim.config.block import Allowed, Block, Count, Positive, WholeNumber, assume
from raysim.config.component import BareComponent
from raysim.config.document import Mistake

MOST_CLIENTS = 1_000_000


class OwnStream(BareComponent):
    """A custom stream."""

    what = "stream"


class Windows(Block):
    """Data arrive in windows of equal size. Clients do not know where a task ends."""

    window: Count
    """The samples that a client has at a time; the last window may have fewer."""
    rounds_per_window: Count = 20
    """The number of rounds of a window."""
    on_exhausted: Literal["drop", "repeat"] = "drop"
    """What a client does after its last window: leave (drop), or keep that window (repeat)."""
    stream: Annotated[OwnStream | None, Allowed("your own as package.module:function or null")] = None
    """A custom stream, package.module:function: function(client, start) iterates over a client's samples (x, y) from a
    position on; null is the dataset's training samples."""
    windows: Count | None = None
    """The number of the stream's windows to train on; null without a stream."""

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistake of a stream without windows, or windows without a stream."""
        if (self.stream is None) != (self.windows is None):
            words = "found one of stream and windows, allowed: both or none; windows says how long a stream is read"
            yield Mistake(("windows" if self.windows is None else "stream",), words)


class Jitter(Block):
    """Every client changes its task a few rounds earlier or later."""

    rounds: Count
    """The most rounds by which a client's boundary is shifted."""


class Apart(Block):
    """Task boundaries that differ between clients."""

    alternatives: ClassVar = {("asynchronous", "jittered"): "{jittered: {rounds: 2}}"}

    asynchronous: Windows | None = None
    """Windows of samples, within which tasks begin and end; null with jittered."""
    jittered: Jitter | None = None
    """Boundaries that are shifted by a few rounds; null with asynchronous."""


class Moment(Block):
    """Clients that arrive or leave in a round."""

    round: Count
    """The round, from 1."""
    clients: Annotated[tuple[WholeNumber, ...], Field(strict=False, min_length=1)]
    """The clients' ids."""


Moments = Annotated[tuple[Moment, ...], Field(strict=False)]


class Arrivals(Block):
    """Clients that arrive later."""

    alternatives: ClassVar = dict.fromkeys([("first", "at"), ("per_task", "at")], "{first: 30, per_task: 10}")

    first: Count | None = None
    """The number of clients in task 1; null with at."""
    per_task: Count | None = None
    """The number of clients that arrive with every later task."""
    at: Moments | None = None
    """The rounds in which clients arrive, as in [{round: 41, clients: [3]}]; others are there from the start."""


class Forget(Block):
    """A request to forget clients, classes or samples, after a round."""

    alternatives: ClassVar = {
        ("clients", "classes"): "{round: 40, clients: [7]}",
        ("clients", "samples"): "{round: 40, clients: [7]}",
        ("classes", "samples"): "{round: 60, classes: [5]}",
    }

    round: Count
    """The round after which the request acts."""
    clients: Annotated[tuple[WholeNumber, ...], Field(strict=False, min_length=1)] | None = None
    """The ids of clients that are forgotten and take no further part."""
    classes: Annotated[tuple[WholeNumber, ...], Field(strict=False, min_length=1)] | None = None
    """The numbers of classes that are forgotten, also in later data."""
    samples: str | None = None
    """The path of a file with a line client,position for each sample; the position is in the client's stream."""

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistake of a request that does not name exactly one kind."""
        named = [name for name in ("clients", "classes", "samples") if getattr(self, name) is not None]
        if len(named) != 1:
            found = " and ".join(named) or "none of them"
            yield Mistake((), f"found {found}, allowed: one of clients, classes and samples")


class Clients(Block):
    """The clients."""

    count: Annotated[int, Field(ge=1, le=MOST_CLIENTS)]
    """The number of clients, including those that arrive later."""
    arrive: Arrivals | None = None
    """The clients that arrive later; null is none."""
    leave: Moments = ()
    """The rounds from which clients are gone, as in [{round: 41, clients: [2]}]."""
    forget: Annotated[tuple[Forget, ...], Field(strict=False)] = ()
    """The requests to forget, as in [{round: 40, clients: [7]}, {round: 60, classes: [5]}]."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The probability that a client receives the model and does not train on it."""


class _Speeds(Block):
    kind: str
    seconds_per_sample: Positive = 0.001
    """Virtual seconds that a typical client trains on one sample."""


class Constant(_Speeds):
    """All clients are equally fast."""

    kind: Literal["constant"] = "constant"
    """All clients are equally fast."""


class LogNormal(_Speeds):
    """A client's slowness has a log-normal distribution of median 1."""

    kind: Literal["log_normal"]
    """Slowness is exp(sigma z), z normal."""
    sigma: Annotated[float, Field(gt=0, le=10)] = 1.0
    """The standard deviation of the slowness's logarithm."""


class Pareto(_Speeds):
    """A client's slowness has a Pareto distribution from 1 on: a few are very slow."""

    kind: Literal["pareto"]
    """Slowness exceeds s >= 1 with probability s^-shape."""
    shape: Annotated[float, Field(ge=0.1)] = 2.0
    """The distribution's exponent: the smaller, the slower stragglers."""


Speeds = Annotated[Constant | LogNormal | Pareto, Field(discriminator="kind"), assume("kind", "constant")]


class NoDiscount(Block):
    """An update has the same weight at any age."""

    kind: Literal["constant"]
    """s(a) = 1 at any age a."""


class Polynomial(Block):
    """An update's weight decreases with its age."""

    kind: Literal["polynomial"] = "polynomial"
    """s(a) = (1 + a)^-power at age a."""
    power: Annotated[float, Field(ge=0)] = 0.5
    """The exponent."""


class Hinge(Block):
    """An update's weight decreases from an age on."""

    kind: Literal["hinge"]
    """s(a) = 1 up to age `after`, then 1 / (slope (a - after) + 1)."""
    slope: Positive = 10.0
    """How fast the weight decreases beyond that age."""
    after: WholeNumber = 4
    """The age up to which an update has its full weight."""


Staleness = Annotated[NoDiscount | Polynomial | Hinge, Field(discriminator="kind"), assume("kind", "polynomial")]


class _Schedule(Block):
    kind: str
    speeds: Speeds = Constant()
    """The speed of the clients in virtual time."""
    bandwidth: Annotated[float, Field(ge=1)] | None = None
    """The bytes that a client sends or receives in a virtual second; null is unlimited."""


class SynchronousSchedule(_Schedule):
    """The server waits for all clients of a round."""

    kind: Literal["synchronous"] = "synchronous"
    """When all clients of the round have replied."""


class AsynchronousSchedule(_Schedule):
    """The server applies updates as they arrive."""

    kind: Literal["asynchronous"]
    """When any buffer_size clients have replied."""
    concurrency: Count = 10
    """The number of clients that train at a time; fewer if fewer are present."""
    buffer_size: Count = 5
    """The number of client updates in a server update; above 5, at most the number of clients."""
    mixing: Literal["deltas", "models"] = "deltas"
    """What the server mixes into its model: clients' deltas (FedBuff), or their models (FedAsync)."""
    rate: Positive = 1.0
    """The server's learning rate for the mean delta, or the weight of a client's model."""
    staleness: Staleness = Polynomial()
    """The weight of an update by its age, which is the number of server updates since its model."""
    max_staleness: WholeNumber | None = None
    """The age above which an update is discarded; null is unlimited."""


Schedule = Annotated[
    SynchronousSchedule | AsynchronousSchedule, Field(discriminator="kind"), assume("kind", "synchronous")
]
