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
    """A stream of the user's own."""

    what = "stream"


class Windows(Block):
    """Data arrive in windows of one size, whatever their task; nobody is told where a task ends."""

    window: Count
    """How many samples of its stream a client has at a time; its last may be fewer."""
    rounds_per_window: Count = 20
    """How many rounds a window lasts."""
    on_exhausted: Literal["drop", "repeat"] = "drop"
    """What a client does after its last window: leave, or keep that window."""
    stream: Annotated[OwnStream | None, Allowed("your own as package.module:function or null")] = None
    """A stream of your own, as package.module:function: function(client, start) iterates over a client's samples (x, y)
    from a position on; null is the data set's training samples."""
    windows: Count | None = None
    """How many windows of it are trained on; null where stream is."""

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistake of a stream without a length, or a length without a stream."""
        if (self.stream is None) != (self.windows is None):
            words = "found one of stream and windows, allowed: both or none; windows says how long a stream is read"
            yield Mistake(("windows" if self.windows is None else "stream",), words)


class Jitter(Block):
    """Every client changes its task somewhat earlier or later than the others."""

    rounds: Count
    """How many rounds, at most, a client's boundary lies before or after the usual."""


class Apart(Block):
    """Task boundaries that clients do not have at the same time."""

    alternatives: ClassVar = {("asynchronous", "jittered"): "{jittered: {rounds: 2}}"}

    asynchronous: Windows | None = None
    """Windows of so many samples, in which tasks begin and end; null where jittered is."""
    jittered: Jitter | None = None
    """Boundaries that differ by a few rounds; null where asynchronous is."""


class Moment(Block):
    """Clients to which something happens in a round."""

    round: Count
    """The round, from 1."""
    clients: Annotated[tuple[WholeNumber, ...], Field(strict=False, min_length=1)]
    """The clients' ids."""


Moments = Annotated[tuple[Moment, ...], Field(strict=False)]


class Arrivals(Block):
    """Clients that are not there from the start."""

    alternatives: ClassVar = dict.fromkeys([("first", "at"), ("per_task", "at")], "{first: 30, per_task: 10}")

    first: Count | None = None
    """How many clients are there in task 1; null where at is."""
    per_task: Count | None = None
    """How many more come with every later task."""
    at: Moments | None = None
    """From which round on clients are there, as in [{round: 41, clients: [3]}]; others from the start."""


class Clients(Block):
    """The clients."""

    count: Annotated[int, Field(ge=1, le=MOST_CLIENTS)]
    """How many clients there are, counting those that come later."""
    arrive: Arrivals | None = None
    """Who comes later; null is nobody."""
    leave: Moments = ()
    """From which round on clients are gone, as in [{round: 41, clients: [2]}]."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The probability that a client that was sent the model never trains on it."""


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
    """An update counts the same, however old its model."""

    kind: Literal["constant"]
    """s(a) = 1 at any age a."""


class Polynomial(Block):
    """An update counts less the older its model."""

    kind: Literal["polynomial"] = "polynomial"
    """s(a) = (1 + a)^-power at age a."""
    power: Annotated[float, Field(ge=0)] = 0.5
    """The exponent."""


class Hinge(Block):
    """An update counts less from an age on."""

    kind: Literal["hinge"]
    """s(a) = 1 up to age `after`, then 1 / (slope (a - after) + 1)."""
    slope: Positive = 10.0
    """How fast updates lose weight beyond that age."""
    after: WholeNumber = 4
    """The age up to which an update counts fully."""


Staleness = Annotated[NoDiscount | Polynomial | Hinge, Field(discriminator="kind"), assume("kind", "polynomial")]


class _Schedule(Block):
    kind: str
    speeds: Speeds = Constant()
    """How fast clients are, in virtual time."""
    bandwidth: Annotated[float, Field(ge=1)] | None = None
    """Bytes that a client sends or is sent in a virtual second; null is at once."""


class SynchronousSchedule(_Schedule):
    """The server waits for all clients of a round."""

    kind: Literal["synchronous"] = "synchronous"
    """When all clients of the round have replied."""


class AsynchronousSchedule(_Schedule):
    """The server takes updates as they come."""

    kind: Literal["asynchronous"]
    """When buffer_size clients have replied, whichever they are."""
    concurrency: Count = 10
    """How many clients train at a time; fewer where fewer are there."""
    buffer_size: Count = 5
    """How many updates make one update of the server's model; above 5, at most as many as there are clients."""
    mixing: Literal["deltas", "models"] = "deltas"
    """What is mixed into the model: clients' deltas (FedBuff), or their models (FedAsync)."""
    rate: Positive = 1.0
    """The server's rate: of the mean delta, or of the client's model."""
    staleness: Staleness = Polynomial()
    """How much an update counts by its age, the server updates since its model."""
    max_staleness: WholeNumber | None = None
    """The age above which an update is discarded; null is never."""


Schedule = Annotated[
    SynchronousSchedule | AsynchronousSchedule, Field(discriminator="kind"), assume("kind", "synchronous")
]
