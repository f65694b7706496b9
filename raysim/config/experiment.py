"""The blocks of the config that describe the experiment beside its scenario: partition, training, memory, rounds."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from raysim.config.block import BelowOne, Block, Count, NotNegative, Positive, WholeNumber, assume
from raysim.config.document import explain, validation_error
from raysim.config.lookup import check_name

MOST_ROUNDS = 1_000_000  # in a run


class _Partition(Block):
    kind: str
    per: Literal["run", "task", None] = None
    """Whether samples are dealt to clients once or for each task; null is run for rotations and permutations, task for
    classes and domains."""


class Iid(_Partition):
    """Samples are dealt at random, in equal shares."""

    kind: Literal["iid"] = "iid"
    """At random, in equal shares."""


class Shards(_Partition):
    """Samples are sorted by class, cut into shards, and the shards are dealt."""

    kind: Literal["shards"] = "shards"
    """Sorted by class, cut into shards, dealt."""
    shards_per_client: Count = 2
    """How many shards each client gets."""


class Dirichlet(_Partition):
    """Each class is split among the clients in proportions from a Dirichlet distribution."""

    kind: Literal["dirichlet"] = "dirichlet"
    """Each class in proportions drawn for it."""
    alpha: Positive = 0.3
    """The distribution's concentration: the smaller, the more uneven."""
    min_samples: WholeNumber = 10
    """Proportions are drawn again until every client has this many samples."""
    balanced: bool = True
    """Whether a client that has its fair share of samples gets no more."""


Partition = Annotated[Iid | Shards | Dirichlet, Field(discriminator="kind"), assume("kind", "iid")]


class SgdConfig(Block):
    """Stochastic gradient descent."""

    name: Literal["sgd"] = "sgd"
    """Stochastic gradient descent."""
    lr: Positive = 0.01
    """The learning rate."""
    momentum: BelowOne = 0.0
    """The momentum; it starts at zero in every training phase."""
    nesterov: bool = False
    """Whether the momentum is Nesterov's; it must then be above 0."""
    weight_decay: NotNegative = 0.0
    """The L2 penalty."""

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> SgdConfig:
        if self.nesterov and not self.momentum:
            words = "found true with momentum 0, allowed: false, or a momentum above 0"
            raise validation_error(explain(("nesterov",), words))
        return self


class _Moments(Block):
    name: str
    lr: Positive = 0.001
    """The learning rate."""
    betas: Annotated[tuple[BelowOne, BelowOne], Field(strict=False)] = (0.9, 0.999)
    """The decay of the two moments."""
    eps: Positive = 1e-8
    """What is added to the denominator."""


class AdamConfig(_Moments):
    """Adam."""

    name: Literal["adam"] = "adam"
    """Adam; its moments start at zero in every training phase."""
    weight_decay: NotNegative = 0.0
    """The L2 penalty."""


class AdamWConfig(_Moments):
    """AdamW: Adam with decoupled weight decay."""

    name: Literal["adamw"] = "adamw"
    """AdamW; its moments start at zero in every training phase."""
    weight_decay: NotNegative = 0.01
    """The decoupled decay: a step takes lr * weight_decay of the parameters off them."""


Optimizer = Annotated[SgdConfig | AdamConfig | AdamWConfig, Field(discriminator="name"), assume("name", "sgd")]


class LrDecay(Block):
    """What the learning rate is multiplied by as the run goes on."""

    per_round: Positive = 1.0
    """The factor after every round."""
    per_task: Positive = 1.0
    """The factor after every task."""
    restart: bool = True
    """Whether the decay per round starts anew with every task."""


class Training(Block):
    """What a client does in a round."""

    rounds_per_task: Count | None = None
    """How many rounds a task lasts; null under asynchronous boundaries, else required."""
    local_epochs: Count = 1
    """How often a client goes over its data in a round."""
    batch_size: Count = 32
    """How many samples a step takes."""
    optimizer: Optimizer = SgdConfig()
    """The clients' optimizer."""
    lr_decay: LrDecay = LrDecay()
    """How the learning rate falls."""
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
    policy: Literal[
        "reservoir", "class_balanced", "class_ring", "task_ring", "sliding_window", "random", "importance", None
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
    sampler: Annotated[str, AfterValidator(partial(check_name, "sampler"))] = "uniform"
    """How they are drawn: uniform, by_size, round_robin, or your own as package.module:function."""


class Aggregation(Block):
    """How the clients' deltas become one."""

    weights: Literal["uniform", "samples"] = "uniform"
    """Every client counts the same, or as many times as it has trained samples in the phase."""
