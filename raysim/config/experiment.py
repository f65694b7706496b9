"""The blocks of the config that describe the experiment beside its scenario: partition, training, memory, rounds."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from raysim.config.block import Allowed, Block, Count, Positive
from raysim.config.component import BareComponent, Component, ComponentName, NamedComponent
from raysim.config.signature import positional_parameters

FACTORS = "factors"  # the rate schedule whose name a config need not say
MOST_ROUNDS = 1_000_000  # in a run


class Partition(Component):
    """How the samples are dealt to the clients."""

    what = "partition"
    decides = "kind"
    kind: ComponentName = "iid"
    per: Literal["run", "task", None] = None
    """Whether samples are dealt to clients once or for each task; null is run for rotations and permutations, task for
    classes and domains, and run where samples are dealt by their client ids (natural)."""

    @property
    def by_ids(self) -> bool:
        """Whether it deals by the samples' client ids."""
        return "ids" in positional_parameters(self.function())[0]


class Optimizer(NamedComponent):
    """The clients' optimizer; what it keeps of its steps starts anew in every training phase."""

    what = "optimizer"
    name: ComponentName = "sgd"

    @property
    def lr(self) -> float:
        """The learning rate, a key of every optimizer."""
        return cast(float, self.keys()["lr"])


class LrDecay(NamedComponent):
    """How the learning rate changes as the run goes on: by factors per round and task, unless another is named."""

    what = "rate schedule"
    name: ComponentName = FACTORS

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> Any:
        written: Any = handler(self)
        if self.name == FACTORS:
            del written["name"]
        return written


class MemoryPolicy(BareComponent):
    """Which samples stay in a memory."""

    what = "memory policy"


class Sampler(BareComponent):
    """How the clients of a round are drawn."""

    what = "sampler"


class LearnedObjective(BareComponent):
    """What is learned of samples and their targets."""

    what = "objective"

    def make(self) -> Any:
        """Return the objective, a raysim.objectives.Objective."""
        return self.with_keys()()

    def has(self, trait: str) -> bool:
        """Return what the objective's class says of itself: whether it has `classes`, `counts` or `positions`."""
        return bool(getattr(self.function(), trait))


class Training(Block):
    """What a client does in a round."""

    alternatives: ClassVar = {("local_epochs", "local_steps"): "{local_steps: 10}"}

    rounds_per_task: Count | None = None
    """How many rounds a task lasts; null under asynchronous boundaries, else required."""
    local_epochs: Count | None = 1
    """How often a client goes over its data in a round; null where local_steps is given."""
    local_steps: Count | None = None
    """How many steps a client takes in a round, over as many epochs as they need; null where local_epochs is given."""
    batch_size: Count = 32
    """How many samples a step takes."""
    optimizer: Optimizer = Field({"name": "sgd"}, validate_default=True)
    """The clients' optimizer."""
    lr_decay: LrDecay = Field({"name": FACTORS}, validate_default=True)
    """How the learning rate changes: by factors, or as the rate schedule that it names."""
    keep_optimizer: bool = False
    """Whether what the optimizer keeps of its steps, such as momentum, lasts over a client's phases; else each starts
    anew."""
    precision: Literal["full", "bf16"] = "full"
    """The precision of a step's forward and backward pass: full is the model's own; bf16 is autocast to bfloat16, the
    parameters, the loss, evaluation and methods' passes of their own staying as they are."""
    clip_norm: Positive | None = None
    """The largest norm a gradient may have; null is no limit."""
    logits: Literal["all", "task", "seen"] = "all"
    """The classes in the training softmax: all, the task's (multi-head exactly), or those seen so far. Where all tasks
    have all classes (domain_incremental) task gives each a head of its own, by which it is tested, too (task-IL)."""


class MemoryConfig(Block):
    """What every client's replay memory holds; it exists only where a method needs one."""

    capacity: Count = 200
    """How many samples a client holds."""
    per: Literal["client", "task"] = "client"
    """Whether capacity is for a client or for each task."""
    policy: Annotated[
        MemoryPolicy | None,
        Allowed(
            "reservoir, class_balanced, class_ring, task_ring, sliding_window, random, importance, null or your own as "
            "package.module:name"
        ),
    ] = None
    """Which samples stay; null is the methods' own choice."""
    fill: Literal["arrival", "boundary", None] = None
    """When samples are offered: after the first step on them, or when their task is over."""


class Participation(Block):
    """Which clients take part in a round."""

    alternatives: ClassVar = {("fraction", "count"): "{count: 5}"}

    fraction: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    """The share of the clients in a round; null where count is given."""
    count: Count | None = None
    """The number of clients in a round; null where fraction is given."""
    sampler: Annotated[Sampler, Allowed("uniform, by_size, round_robin or your own as package.module:name")] = Field(
        "uniform", validate_default=True
    )
    """How they are drawn: uniform, by_size, round_robin, or your own as package.module:function."""


class Aggregation(Block):
    """How the clients' deltas become one."""

    weights: Literal["uniform", "samples"] = "uniform"
    """Every client counts the same, or as many times as it has trained samples in the phase."""
