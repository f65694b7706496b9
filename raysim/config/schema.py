"""The whole config, and the blocks of how a run is carried out: resources, evaluation, checkpoints, logging."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from raysim.config.block import Allowed, Block, Count, NotNegative, Positive, WholeNumber
from raysim.config.component_blocks import Callbacks, DatasetConfig, Domain, Domains, Methods, Model
from raysim.config.document import Mistake
from raysim.config.error_text import show
from raysim.config.experiment import Aggregation, LearnedObjective, MemoryConfig, Participation, Partition, Training
from raysim.config.scenarios import DomainIncremental, Scenario
from raysim.config.timing import Clients, Schedule, SynchronousSchedule
from raysim.system.capacity import CAN_FORK

FOLDER_NAME = re.compile(r"\w([\w .+=@,-]*[\w+=@])?")
IN_FOLDER_NAMES = "letters, digits, spaces and _ - . + = @ , between them"
ADDRESS = re.compile(r"[^\s/]+:\d{1,5}")
LONGEST_NAME = 200  # bytes; file systems allow 255
LARGEST_FLOAT32 = float.fromhex("0x1.fffffep+127")
"""The largest finite number in single precision."""
RAYS_OWN = ("CPU", "GPU", "memory", "object_store_memory")  # resources that Ray counts by itself


def folder_name(name: str) -> str:
    """Return a name if it is a valid folder name. Raises ValueError."""
    if not FOLDER_NAME.fullmatch(name) or len(name.encode(errors="replace")) > LONGEST_NAME:
        raise ValueError(f"no name for a folder: {show(name)}; allowed: {IN_FOLDER_NAMES}")
    return name


FolderName = Annotated[str, AfterValidator(folder_name), Allowed(f"a name for a folder: {IN_FOLDER_NAMES}")]


def _check_gpu_share(number: float) -> float:
    if number > 1 and number != int(number):
        raise ValueError("Ray places fractions of one GPU only")
    return number


def _check_custom(shares: dict[str, float]) -> dict[str, float]:
    if any(name in RAYS_OWN for name in shares):
        raise ValueError("Ray counts these itself")
    return shares


def _check_address(address: str | None) -> str | None:
    if address == "local":
        raise ValueError("omit the key, and raysim starts a cluster on this machine that others cannot reach")
    if address is not None and address.startswith("ray://"):
        raise ValueError(
            "raysim does not use Ray's client; on a machine of the cluster, give HOST:PORT as `ray start --head` "
            "printed it, with the port 6379 by default, or use `ray job submit` with the address auto"
        )
    if address not in (None, "auto") and not ADDRESS.fullmatch(address):
        raise ValueError("give HOST:PORT as `ray start --head` printed it, auto or null")
    return address


def _held_out(evaluation: Mapping[str, object]) -> dict[str, object]:
    """Return the fraction that a split holds out, unless it is given: a tenth, or none with split: test.

    A given one is dropped only with split: test as a key. Without it, the fraction is most likely meant; see
    `contradictions`.
    """
    split, fraction = evaluation.get("split"), evaluation.get("validation_fraction")
    if fraction is None:
        return {"validation_fraction": 0.1 if split not in (None, "test") else None}
    is_valid = isinstance(fraction, float) and 0 < fraction < 1
    return {"validation_fraction": None} if split == "test" and is_valid else {}


GpuShare = Annotated[NotNegative, AfterValidator(_check_gpu_share), Allowed("a number from 0 to 1, or a whole number")]


class Resources(Block):
    """The resources of the actors."""

    cpus_per_actor: Literal["auto"] | Positive = "auto"
    """The CPUs of each actor; auto is an equal share of the cluster's, at most 1."""
    gpus_per_actor: GpuShare = 0.0
    """The GPUs of each actor: a fraction of one, or a whole number."""
    server_gpus: GpuShare = 0.0
    """The GPUs of the server, for methods that train networks there: a fraction of one, or a whole number."""
    server_cpus: WholeNumber = 0
    """The CPUs that are reserved for the server, whose side of the methods then computes on as many threads. 0 reserves
    none and computes on one thread. More than one thread may change the last bits of results."""
    clients_per_actor: Literal["auto"] | Count = 1
    """The clients of one actor; auto makes one actor per CPU or GPU share."""
    custom: Annotated[
        dict[str, Positive],
        AfterValidator(_check_custom),
        Allowed("a block of names that `ray start --resources` gave, each with a number > 0"),
    ] = Field(default_factory=dict)
    """The cluster's custom resources that each host actor takes, as in {fast_node: 0.1}."""
    placement: Literal["spread", "pack"] = "spread"
    """Whether host actors are spread over a cluster's nodes or packed onto few."""
    workers: Literal["auto", "forked", "spawned"] = "auto"
    """How an actor's process starts: forked from one that has imported torch (Linux: 36 MB each), or spawned by Ray
    (335 MB each); auto is forked where it can be."""
    rebalance: bool = True
    """Whether clients that share actors move between them before a round, so that all actors end it together."""
    memory: Literal["refuse", "warn"] = "refuse"
    """Whether a run with an estimated memory above 80% of the machine's is refused, or starts with a warning."""
    address: Annotated[str | None, AfterValidator(_check_address)] = None
    """The Ray cluster to join: HOST:PORT, or auto for the one on this machine; null starts one here."""
    patience: Positive = 600.0
    """The seconds to wait for actors that start and do not answer, before the run ends with an error message."""
    dashboard: bool = False
    """Whether the cluster that is started has Ray's dashboard, on this machine only."""
    deterministic: bool = True
    """Whether GPUs compute the same bits every time, at some cost."""
    cuda_graphs: bool = False
    """Experimental: whether a GPU is sent a model's training pass in one piece, not kernel by kernel: faster for small
    models, with the same bits; for models whose forward pass neither waits for the GPU nor decides by values."""

    @property
    def forks(self) -> bool:
        """Whether actors are to be forked, where their node allows it."""
        return self.workers != "spawned" and CAN_FORK


class EvaluationConfig(Block):
    """When the model is tested."""

    every_rounds: Count | None = None
    """The number of rounds between evaluations, in addition to those after tasks; null is after tasks only."""
    split: Literal["test", "validation"] = "test"
    """The samples to test on: the test set, or a held-out part of the training samples, so that hyperparameters can be
    chosen without test data."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The fraction of every task's training samples that split: validation holds out, by default 0.1. With split: test
    it becomes null, so that a tuned config changes in its split alone."""
    model: Literal["global", "local", "global_per_client"] = "global"
    """The model to test: the server's (global), or each client's (local), on test samples in the proportions of the
    client's data. A client's model is that of its last local training, or what its methods make of it; before, it is
    the server's. global_per_client tests the server's model on the same samples, to compare with."""
    per_client: bool = False
    """Whether the accuracy of the final model on each client's classes and tasks is reported. With `model` other than
    global it always is, for the tested models."""
    top_k: Count = 1
    """A prediction is correct if the label is among the top_k classes with the largest logits; the lower class wins a
    tie. All accuracies and the metrics from them are then top-k."""

    @property
    def averages_clients(self) -> bool:
        """Whether an accuracy is a mean over clients, each tested on samples in the proportions of its data."""
        return self.model != "global"

    @property
    def reports_clients(self) -> bool:
        """Whether every client's accuracy is reported at the end."""
        return self.per_client or self.averages_clients

    @classmethod
    def spell_out(cls, value: object) -> object:
        """Return the block as it is written today, with the fraction that its split holds out.

        Older configs have `every`: task, or null with every_rounds. It decides nothing and is dropped.
        """
        if not isinstance(value, Mapping):
            return value
        values = {key: given for key, given in value.items() if key != "every" or given not in ("task", None)}
        return values | _held_out(values)

    def contradictions(self) -> Iterator[Mistake]:
        """Yield the mistakes between the block's keys."""
        yield from super().contradictions()
        fraction = self.validation_fraction
        if self.split == "test" and fraction is not None:
            words = f"found {fraction:g} without evaluation.split, allowed: null; or set evaluation.split=validation"
            yield Mistake(("validation_fraction",), words)


class CheckpointConfig(Block):
    """When the state of the run is saved, for recovery from a loss and for --resume."""

    every_rounds: Count = 20
    """The number of rounds between checkpoints."""
    keep: Count = 2
    """The number of checkpoints to keep, the newest ones."""
    tries: Count = 3
    """The number of losses of a process in a row, without progress in between, before the run fails."""


class Logging(Block):
    """Optional files and records."""

    tensorboard: bool = True
    """Whether TensorBoard's files are written."""
    dispatches: bool = False
    """Whether rounds.jsonl has the virtual times at which clients received the model and replied."""
    memory: bool = False
    """Whether rounds.jsonl has, at evaluations, the number of samples of each task and class in the memories."""
    profile: bool = False
    """Whether rounds.jsonl has the seconds of every hook and part of a round, for clients and the server."""


class Config(Block):
    """The config of a run."""

    name: FolderName
    """The name of the run, and of its folder under runs/."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1), Allowed("a whole number from 0 to 2^63 - 1")] = 0
    """The seed of all random draws."""
    dataset: DatasetConfig
    """The clients' data."""
    scenario: Scenario
    """The tasks and their differences."""
    partition: Partition = Field({"kind": "iid"}, validate_default=True)
    """How the samples are divided among the clients."""
    clients: Clients
    """The clients."""
    model: Model
    """The network to train."""
    objective: Annotated[
        LearnedObjective,
        Allowed("classification, regression, multi_label, next_token, detection or your own as package.module:name"),
    ] = Field("classification", validate_default=True)
    """The loss, the prediction, and the metric of the tests."""
    training: Training
    """What a client does in a round."""
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    """Every client's replay memory."""
    methods: Methods = Field(default_factory=dict)
    """The methods in the order of their application; none, or fedavg, is FedAvg."""
    participation: Participation = Field({"fraction": 1.0, "sampler": "uniform"}, validate_default=True)
    """The clients in a round."""
    aggregation: Aggregation = Aggregation()
    """How the clients' deltas are averaged."""
    schedule: Schedule = SynchronousSchedule()
    """When the server updates the model."""
    resources: Resources = Resources()
    """The resources of the actors."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """When the model is tested."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """When the state of the run is saved."""
    logging: Logging = Logging()
    """Optional files and records."""
    callbacks: Callbacks = Field(default_factory=dict)
    """Code that receives the run's events, and may record numbers and figures or end the run early."""

    @property
    def partition_per(self) -> Literal["run", "task"]:
        """partition.per with null resolved: run for rotations, permutations and client ids, task for all else."""
        if self.partition.per is not None:
            return self.partition.per
        return "run" if self.partition.by_ids or self.by_pixels else "task"

    @property
    def heads(self) -> int:
        """The number of the model's heads: one for each domain with training.logits=task, else 1."""
        own = self.scenario.by_domain and self.training.logits == "task"
        return self.scenario.tasks if own else 1

    @property
    def in_step(self) -> bool:
        """Whether clients know their task and have the tasks in the same order: the seen tasks are the first ones."""
        return self.scenario.windows is None and self.scenario.order == "same"

    @property
    def together(self) -> bool:
        """Whether all clients are present in all rounds and change their task in the same rounds."""
        scenario, clients = self.scenario, self.clients
        stay = not clients.leave and not any(request.clients for request in clients.forget)
        return self.in_step and scenario.boundaries == "synchronous" and clients.arrive is None and stay

    @property
    def domains(self) -> tuple[Domain, ...] | None:
        """The datasets of the tasks, or None if all tasks are of one dataset."""
        shift = self.scenario.shift if isinstance(self.scenario, DomainIncremental) else None
        return shift.domains if isinstance(shift, Domains) else None

    @property
    def by_pixels(self) -> bool:
        """Whether all tasks have the same images, rotated or with their pixels in another order."""
        return isinstance(self.scenario, DomainIncremental) and self.domains is None

    # the order of methods is part of the config, though dicts compare without it
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and super().__eq__(other) and [*self.methods] == [*other.methods]

    def __hash__(self) -> int:
        return hash((self.name, self.seed, *self.methods))
