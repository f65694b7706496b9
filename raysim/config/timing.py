"""The blocks of the config that say when: task boundaries, clients' arrivals and departures, server updates."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from raysim.config.block import Block, Count, Positive, WholeNumber, assume
from raysim.config.key_schema import Allowed
from raysim.config.lookup import check_name
from raysim.config.refusal import explain, validation_error

MOST_CLIENTS = 1_000_000


class Windows(Block):
    """Data arrive in windows of one size, whatever their task; nobody is told where a task ends."""

    window: Count = Field(description="How many samples of its stream a client has at a time; its last may be fewer.")
    rounds_per_window: Count = Field(default=20, description="How many rounds a window lasts.")
    on_exhausted: Literal["drop", "repeat"] = Field(
        default="drop", description="What a client does after its last window: leave, or keep that window."
    )
    stream: Annotated[str | None, Allowed("your own as package.module:function or null")] = Field(
        default=None,
        description="A stream of your own, as package.module:function: function(client, start) iterates over a "
        "client's samples (x, y) from a position on; null is the data set's training samples.",
    )
    windows: Count | None = Field(
        default=None, description="How many windows of it are trained on; null where stream is."
    )

    @field_validator("stream")
    @classmethod
    def _found(cls, name: str | None) -> str | None:
        return None if name is None else check_name("stream", name)

    @model_validator(mode="after")
    def _both_or_none(self) -> Windows:
        if (self.stream is None) != (self.windows is None):
            words = "found one of stream and windows, allowed: both or none; windows says how long a stream is read"
            raise validation_error(explain(("windows" if self.windows is None else "stream",), words))
        return self


class Jitter(Block):
    """Every client changes its task somewhat earlier or later than the others."""

    rounds: Count = Field(description="How many rounds, at most, a client's boundary lies before or after the usual.")


class Apart(Block):
    """Task boundaries that clients do not have at the same time."""

    alternatives: ClassVar = {("asynchronous", "jittered"): "{jittered: {rounds: 2}}"}
    asynchronous: Windows | None = Field(
        default=None, description="Windows of so many samples, in which tasks begin and end; null where jittered is."
    )
    jittered: Jitter | None = Field(
        default=None, description="Boundaries that differ by a few rounds; null where asynchronous is."
    )


class Moment(Block):
    """Clients to which something happens in a round."""

    round: Count = Field(description="The round, from 1.")
    clients: Annotated[tuple[WholeNumber, ...], Field(strict=False, min_length=1)] = Field(
        description="The clients' ids."
    )


Moments = Annotated[tuple[Moment, ...], Field(strict=False)]


class Arrivals(Block):
    """Clients that are not there from the start."""

    alternatives: ClassVar = dict.fromkeys([("first", "at"), ("per_task", "at")], "{first: 30, per_task: 10}")
    first: Count | None = Field(default=None, description="How many clients are there in task 1; null where at is.")
    per_task: Count | None = Field(default=None, description="How many more come with every later task.")
    at: Moments | None = Field(
        default=None,
        description="From which round on clients are there, as in [{round: 41, clients: [3]}]; others from the start.",
    )


class Clients(Block):
    """The clients."""

    count: Annotated[int, Field(ge=1, le=MOST_CLIENTS)] = Field(
        description="How many clients there are, counting those that come later."
    )
    arrive: Arrivals | None = Field(default=None, description="Who comes later; null is nobody.")
    leave: Moments = Field(
        default=(), description="From which round on clients are gone, as in [{round: 41, clients: [2]}]."
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="The probability that a client that was sent the model never trains on it."
    )


class _Speeds(Block):
    kind: str
    seconds_per_sample: Positive = Field(
        default=0.001, description="Virtual seconds that a typical client trains on one sample."
    )


class Constant(_Speeds):
    """All clients are equally fast."""

    kind: Literal["constant"] = Field(default="constant", description="All clients are equally fast.")


class LogNormal(_Speeds):
    """A client's slowness has a log-normal distribution of median 1."""

    kind: Literal["log_normal"] = Field(description="Slowness is exp(sigma z), z normal.")
    sigma: Annotated[float, Field(gt=0, le=10)] = Field(
        default=1.0, description="The standard deviation of the slowness's logarithm."
    )


class Pareto(_Speeds):
    """A client's slowness has a Pareto distribution from 1 on: a few are very slow."""

    kind: Literal["pareto"] = Field(description="Slowness exceeds s >= 1 with probability s^-shape.")
    shape: Annotated[float, Field(ge=0.1)] = Field(
        default=2.0, description="The distribution's exponent: the smaller, the slower stragglers."
    )


Speeds = Annotated[Constant | LogNormal | Pareto, Field(discriminator="kind"), assume("kind", "constant")]


class NoDiscount(Block):
    """An update counts the same, however old its model."""

    kind: Literal["constant"] = Field(description="s(a) = 1 at any age a.")


class Polynomial(Block):
    """An update counts less the older its model."""

    kind: Literal["polynomial"] = Field(default="polynomial", description="s(a) = (1 + a)^-power at age a.")
    power: Annotated[float, Field(ge=0)] = Field(default=0.5, description="The exponent.")


class Hinge(Block):
    """An update counts less from an age on."""

    kind: Literal["hinge"] = Field(description="s(a) = 1 up to age `after`, then 1 / (slope (a - after) + 1).")
    slope: Positive = Field(default=10.0, description="How fast updates lose weight beyond that age.")
    after: WholeNumber = Field(default=4, description="The age up to which an update counts fully.")


Staleness = Annotated[NoDiscount | Polynomial | Hinge, Field(discriminator="kind"), assume("kind", "polynomial")]


class _Schedule(Block):
    kind: str
    speeds: Speeds = Field(default=Constant(), description="How fast clients are, in virtual time.")
    bandwidth: Annotated[float, Field(ge=1)] | None = Field(
        default=None, description="Bytes that a client sends or is sent in a virtual second; null is at once."
    )


class SynchronousSchedule(_Schedule):
    """The server waits for all clients of a round."""

    kind: Literal["synchronous"] = Field(
        default="synchronous", description="When all clients of the round have replied."
    )


class AsynchronousSchedule(_Schedule):
    """The server takes updates as they come."""

    kind: Literal["asynchronous"] = Field(description="When buffer_size clients have replied, whichever they are.")
    concurrency: Count = Field(default=10, description="How many clients train at a time; fewer where fewer are there.")
    buffer_size: Count = Field(default=5, description="How many updates make one update of the server's model.")
    mixing: Literal["deltas", "models"] = Field(
        default="deltas",
        description="What is mixed into the model: clients' deltas (FedBuff), or their models (FedAsync).",
    )
    rate: Positive = Field(default=1.0, description="The server's rate: of the mean delta, or of the client's model.")
    staleness: Staleness = Field(
        default=Polynomial(), description="How much an update counts by its age, the server updates since its model."
    )
    max_staleness: WholeNumber | None = Field(
        default=None, description="The age above which an update is discarded; null is never."
    )


Schedule = Annotated[
    SynchronousSchedule | AsynchronousSchedule, Field(discriminator="kind"), assume("kind", "synchronous")
]
