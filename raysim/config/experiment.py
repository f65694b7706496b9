"""The blocks of the config for the partition, training, memories, the cohort and the aggregation."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from raysim.config.block import Allowed, Block, Count, Positive
from raysim.config.component import BareComponent, Component, ComponentName, NamedComponent
from raysim.config.signature import positional_parameters

FACTORS = "factors"  # the rate schedule whose name a config need not say
MOST_ROUNDS = 1_000_000  # in a run
MOST_TOGETHER = 4096  # clients of a program
LARGEST_BATCH = 2**31 - 1  # samples, as many as an index of 32 bits reaches


class Partition(Component):
    """How the samples are divided among the clients."""

    what = "partition"
    decides = "kind"
    kind: ComponentName = "iid"
    per: Literal["run", "task", None] = None
    """Whether samples are divided once or for each task; null is run for rotations, permutations and partitions by
    client id (natural), and task for classes and domains."""
    by: str | None = None
    """The column of the data by whose values samples are divided, such as a topic; null is the labels."""

    @property
    def by_ids(self) -> bool:
        """Whether it divides samples by their client ids."""
        return "ids" in positional_parameters(self.function())[0]


class Optimizer(NamedComponent):
    """The clients' optimizer. Its state, such as momentum, is reset in every local training, unless keep_optimizer."""

    what = "optimizer"
    name: ComponentName = "sgd"

    @property
    def lr(self) -> float:
        """The learning rate, a key of every optimizer."""
        return cast(float, self.keys()["lr"])

    def make(self) -> Any:
        """Return a new optimizer. It has no learning rate of its own: each step receives the round's."""
        return self.function()(**{key: value for key, value in self.keys().items() if key != "lr"})


class LrDecay(NamedComponent):
    """How the learning rate changes over the run: by factors per round and task, or by another schedule."""

    what = "rate schedule"
    name: ComponentName = FACTORS

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: Any = handler(self)
        if self.name == FACTORS:
            del written["name"]
        return written


class MemoryPolicy(BareComponent):
    """How a memory chooses its samples."""

    what = "memory policy"


class Sampler(BareComponent):
    """How the clients of a round are chosen."""

    what = "sampler"


class LearnedObjective(BareComponent):
    """What is learned of samples and their targets."""

    what = "objective"

    def has(self, trait: str) -> bool:
        """Return whether the objective's class has `classes`, `counts`, `positions` or `in_image` set."""
        return bool(getattr(self.function(), trait))


class Training(Block):
    """What a client does in a round."""

    alternatives: ClassVar = {("local_epochs", "local_steps"): "{local_steps: 10}"}

    rounds_per_task: Count | None = None
    """The number of rounds of a task: required, but null under asynchronous boundaries."""
    local_epochs: Count | None = 1
    """The number of passes over a client's data in a round; null with local_steps."""
    local_steps: Count | None = None
    """The number of a client's steps in a round, in as many epochs as needed; null with local_epochs."""
    batch_size: Annotated[Count, Field(le=LARGEST_BATCH)] = 32
    """The number of samples of a step."""
    accumulate: Annotated[Count, Field(le=LARGEST_BATCH)] = 1
    """The number of parts in which a step's batch passes through the model, to save memory. The sum of their gradients
    is that of the whole batch's mean loss. Not with BatchNorm, and not with methods that change the loss."""
    optimizer: Optimizer = Field({"name": "sgd"}, validate_default=True)
    """The clients' optimizer."""
    lr_decay: LrDecay = Field({"name": FACTORS}, validate_default=True)
    """How the learning rate changes: by factors, or as the rate schedule that it names."""
    lr_scales: Annotated[
        dict[str, Positive], Allowed('a block of patterns, each with a factor > 0, such as {"head.*": 10}')
    ] = Field(default_factory=dict)
    """Factors of the learning rate by patterns for the names of parameters; the first pattern that matches counts."""
    keep_optimizer: bool = False
    """Whether a client's optimizer keeps its state, such as momentum, from one local training to the next."""
    precision: Literal["full", "bf16"] = "full"
    """The precision of a step's forward and backward pass: the model's (full), or autocast to bfloat16 (bf16). The
    parameters, the loss, evaluations and additional passes of methods keep the model's precision."""
    clip_norm: Positive | None = None
    """The largest norm of a gradient, to which larger ones are scaled; null is unlimited."""
    vectorise: Annotated[int, Field(ge=2, le=MOST_TOGETHER)] | None = None
    """Experimental: the number of clients that a host trains at a time as one program; null is one client at a time.
    Results differ in their last bits from those of one at a time, and so do dropout's random numbers. It is faster for
    many clients with small models on a GPU."""
    logits: Literal["all", "task", "seen"] = "all"
    """The classes in the training softmax: all, the task's (multi-head exactly), or those seen so far. If all tasks
    have all classes (domain_incremental), `task` gives each task a head, which is used in tests too (task-IL). The
    weights of other tasks' outputs then stay as they are, also under weight decay, where no method gives a gradient."""


class MemoryConfig(Block):
    """Every client's replay memory, if a method needs one."""

    capacity: Count = 200
    """The buffer size: the number of samples that a client holds."""
    per: Literal["client", "task"] = "client"
    """Whether capacity is for a client or for each task."""
    policy: Annotated[
        MemoryPolicy | None,
        Allowed(
            "reservoir, class_balanced, class_ring, task_ring, sliding_window, random, importance, null or your own as "
            "package.module:name"
        ),
    ] = None
    """How samples are chosen; null is the default of the methods."""
    fill: Literal["arrival", "boundary", None] = None
    """When samples are offered to the memory: after the first step on them, or at the end of their task."""


class Participation(Block):
    """Which clients take part in a round."""

    alternatives: ClassVar = {("fraction", "count"): "{count: 5}"}

    fraction: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    """The fraction of the clients in a round; null with count."""
    count: Count | None = None
    """The number of clients in a round; null with fraction."""
    sampler: Annotated[Sampler, Allowed("uniform, by_size, round_robin or your own as package.module:name")] = Field(
        "uniform", validate_default=True
    )
    """How they are chosen: uniform, by_size, round_robin, or a custom package.module:function."""


class Aggregation(Block):
    """How the clients' deltas are averaged."""

    weights: Literal["uniform", "samples"] = "uniform"
    """The clients' weights: equal, or in proportion to the samples trained on in the round."""
