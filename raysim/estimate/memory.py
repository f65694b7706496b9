"""How much memory a run would take, estimated from its model, data, methods and packing before anything starts.

What a process takes is measured: this one has imported what an actor imports. What cannot be measured before a run was
measured once with Linux's PSS (see footprint.py), which counts what processes share once.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
import psutil

from raysim.api.client import cut_into_batches
from raysim.api.method import overrides
from raysim.config import Config
from raysim.data.dataset import Unread
from raysim.data.images_on_disk import AHEAD
from raysim.engine.compatibility import make_methods
from raysim.engine.memory_choice import choose_memory
from raysim.engine.optimizer import vectors_of
from raysim.engine.vectorised.support import clients_together
from raysim.estimate.halves import Ints, measure_halves, rehearse_halves
from raysim.estimate.rehearsal import Rehearsal
from raysim.estimate.saved_tensors import measure_saved
from raysim.evaluation.scoring import chunk_size
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.memory import MemoryKind
from raysim.models.activations import measure_activations
from raysim.models.flat import FlatModel
from raysim.models.freezing import frozen_bytes
from raysim.models.graphs import MOST_GRAPHS
from raysim.models.inputs import two_samples
from raysim.system.capacity import MIB
from raysim.system.custom_code import is_custom

MOST_MEASURED = 512 * MIB  # what this process holds beyond it, in a notebook, say, is data that no worker copies


def _measure_process() -> tuple[int, int]:
    """Return the private bytes of this process, which has imported torch, and its share of libraries' pages."""
    memory = psutil.Process().memory_info()
    shared = int(getattr(memory, "shared", memory.rss // 2))  # only Linux counts it
    return min(memory.rss - shared, MOST_MEASURED), shared


# Measured where this module is imported, before data are read: torch's builds and versions differ by 150 MiB.
_PRIVATE, _SHARED = _measure_process()
PROCESS_BYTES = _PRIVATE + 40 * MIB  # an actor's private memory, with Ray's import and what training leaves
# The same of a forked process (see raysim.actors.fork_server) that has trained. The fork server shares half of its own.
FORKED_BYTES = 36 * MIB
SERVER_BYTES = PROCESS_BYTES // 2
LIBRARY_BYTES = 100 * MIB  # of libraries' pages that a run in one process reads, beside another one that has read them
# In each process, for torch's compiler. Networks of torchvision's import it, and so does torch.func.grad, with which
# methods take gradients by sample. The trials before an estimate import it here, too.
COMPILER, COMPILER_BYTES = "torch._dynamo", 155 * MIB
# Of the modules of transformers that forked processes share, what each has alone, as Python counts references in them.
# Measured with ten hosts of MiniLM.
PRETRAINED_BYTES = 40 * MIB
SHARED_BYTES = _SHARED + 350 * MIB  # what there is once: the pages of libraries, and Ray's own processes
KEPT_BYTES = 512 * MIB  # of freed memory, what a host's allocator keeps
# Vectors of the model's length; an exact sum (int64) counts as two. A host takes at work, beside what its optimizer
# keeps and a step takes (or, as much, an update or a layer's gradient): the updates' sum, 2, and what a wide layer's
# product packs. For a term that is summed: two limbs, 4, itself, what it is made of, what it takes the place of.
UPDATE_VECTORS = 3
TERM_VECTORS = 7
# The coordinator holds while it makes a model: a module's weights and gradient, and what its trial packed, 3; the model
# and the next, 2; the updates' sum, 2; the mean in float64, 2. For each term: its limbs, its mean in float64, and what
# the server half keeps of it. For a half that only changes the update: two moments, and what takes their place.
MODEL_VECTORS = 9
SERVER_TERM_VECTORS = 7
SERVER_UPDATE_VECTORS = 4
# For each client of a program (training.vectorise): vectors, and outputs of a batch's layers with their patches.
# Measured as what torch reserved on an H200 with an MLP, the MNIST CNN and ResNet-18; see docs/benchmarks.md.
TOGETHER_VECTORS = 16
IN_A_STEP = ("batch", "penalty")  # hooks that may add samples to a step
TOGETHER_PASSES = 10


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes of a run's parts, without its processes' libraries.

    Attributes:
        data: the samples.
        mapped: what the processes of a node have once, as pages of files: frozen weights, and features.
        frozen: the frozen weights that each process has, which are in no file. They are also in `host`, `coordinator`.
        coordinator: what the coordinator holds.
        host: what each host holds.
        working: what hosts take more while they compute or evaluate, those that do so at a time.
        gpu: what a host with a share of a GPU has there, without its clients: samples, vectors of the model's length,
            and a batch's activations.
        server_gpu: what the server's auxiliary networks have of a GPU if it has a share, with a training step.
        clients: what a host holds for each client that it owns.
        savings: returns the bytes that methods would keep less with another hyperparameter, all clients together, by
            KEY=VALUE.
        forked: how actors start.
        rehearsed: what the rehearsals before a run leave in the driver, which has them in its own process.
        imported: what each process has of torch's compiler. Forked ones share that of their server.
        touched: what a forked process has alone of its server's other modules.
    """

    data: int = 0
    mapped: int = 0
    frozen: int = 0
    coordinator: int = 0
    host: int = 0
    working: int = 0
    gpu: int = 0
    server_gpu: int = 0
    clients: Sequence[int] = ()
    savings: Callable[[], Mapping[str, int]] = dict
    forked: bool = False
    rehearsed: int = 0
    imported: int = 0
    touched: int = 0

    @property
    def process(self) -> int:
        """The bytes of an actor's process."""
        return FORKED_BYTES + self.touched if self.forked else PROCESS_BYTES + self.imported

    @property
    def alone(self) -> int:
        """The bytes of a run that is all in one process."""
        apart = self.data + self.mapped + self.coordinator
        return LIBRARY_BYTES + PROCESS_BYTES + self.imported + self.host + self.working + self._of_clients + apart

    @property
    def driver(self) -> int:
        """The bytes that the driver's node takes more than another: the driver, its own data, the coordinator."""
        own = PROCESS_BYTES + self.imported + self.frozen + self.rehearsed + self.data
        return own + self.process + self.coordinator

    @property
    def node(self) -> int:
        """The bytes that a node takes on which there is no host yet."""
        return SHARED_BYTES + self.forked * (SERVER_BYTES + self.imported) + self.data + self.mapped

    def host_with(self, clients: Sequence[int]) -> int:
        """Return the bytes of one host with these clients, at work."""
        return self.resting_with(clients) + self.working

    def resting_with(self, clients: Sequence[int]) -> int:
        """Return the bytes of one host with these clients, while others of its node compute."""
        return self.process + self.host + sum(self.clients[client] for client in clients)

    def gpu_with(self, clients: Sequence[int]) -> int:
        """Return the bytes of one host with these clients on its GPU, without what CUDA itself takes."""
        return self.gpu + sum(self.clients[client] for client in clients)

    def total(self, actors: int, at_once: int) -> int:
        """Return the bytes of a run with this many hosts, of which `at_once` compute at a time; all on one node.

        The data are in the driver and once in the object store.
        """
        return (
            self.node
            + self.driver
            + actors * self.process
            + actors * self.host
            + min(actors, at_once) * self.working
            + self._of_clients
        )

    @cached_property
    def _of_clients(self) -> int:
        return sum(self.clients)  # once: what fits is looked for among all numbers of actors


def processes_alone(config: Config) -> MemoryNeed:
    """Return what a run takes with unknown data and clients."""
    return MemoryNeed(forked=config.resources.forks)


def shares_compiler(config: Config) -> bool:
    """Return whether forked processes get torch's compiler from their server: on a cluster of the run, without GPUs.

    What its import does with a GPU could not be shared by processes.
    """
    resources = config.resources
    return resources.address is None and not resources.gpus_per_actor and not resources.server_gpus


def estimate_memory(
    config: Config, federation: Federation, model: FlatModel, rehearsals: Sequence[Rehearsal] | None = None
) -> MemoryNeed:
    """Estimate what a run takes; its model is not changed. None rehearses what methods keep (see `rehearse_halves`)."""
    methods, size = make_methods(config), config.training.batch_size
    vector, kind = model.weights().nbytes, choose_memory(config, methods)
    largest = [max(map(stream.size, range(stream.windows))) for stream in federation.streams]
    batches = np.array([len(cut_into_batches(samples, size, model.normalises)) for samples in largest])
    seen = rehearse_halves(config, federation, model) if rehearsals is None else rehearsals
    of_halves, tables, (serving_networks, beside) = measure_halves(seen, batches)
    # a second copy, to notice what custom code changes
    copies = 2 if any(is_custom(method.Client) for method in methods.values()) else 1
    means = sum(bool(method.replies) for method in methods.values())  # which come back as broadcasts
    broadcasts = copies * (1 + means)
    samples = two_samples(model.module, federation.shape, federation.vocabulary)
    outputs, widest = measure_activations(model, samples)
    tested = min(chunk_size(widest), max(len(task.test) for task in federation.tasks))
    # memories are replayed in the same step, as many samples as a batch has
    replayed = any(
        m.memory is not None and any(overrides(m.Client, hook) for hook in IN_A_STEP) for m in methods.values()
    )
    # methods with a gradient or a memory of their own pass whole batches
    whole = any(overrides(m.Client, "gradient") or m.memory is not None for m in methods.values()) and not replayed
    saved, passed = measure_saved(model, samples), size if whole else -(-size // config.training.accumulate)
    passes = passed * outputs
    training = (passes if saved is None else passed * saved) * (1 + replayed)
    # a pass in bfloat16 keeps its trained weights as they were rounded
    training += vector // 2 if config.model.precision == "bfloat16" else 0
    evaluating = 4 * tested * widest  # a layer's input, output and shortcut, and the convolution's own
    kept = min(training, KEPT_BYTES)
    on_gpu = passes + evaluating + MOST_GRAPHS * vector if config.resources.cuda_graphs else max(passes, evaluating)
    split, epochs_over_all = federation.dataset, any(overrides(method.Client, "samples") for method in methods.values())
    second = None if federation.unlabelled is None else federation.unlabelled.split
    parts = [part for part in (split.train, split.test, second) if part is not None]
    data = sum(part.x.nbytes + part.y.nbytes for part in parts)
    is_mapped = config.model.cache and config.resources.address is None
    features = sum(part.x.nbytes for part in parts) if is_mapped else 0
    in_file, frozen = frozen_bytes(model.module)
    terms = [sum(how != "by_client" for how in method.replies.values()) for method in methods.values()]
    updating = sum(not method.replies and overrides(method.Server, "update") for method in methods.values())
    keeps, takes = vectors_of(config.training.optimizer)
    kept_steps = keeps * vector if config.training.keep_optimizer else 0
    tested_models = vector if config.evaluation.model == "local" else 0
    working = UPDATE_VECTORS + keeps + max(takes, 1) + TERM_VECTORS * max(terms, default=0)
    count = min(clients_together(config, methods), config.clients.count)
    together = count * (TOGETHER_VECTORS * vector + TOGETHER_PASSES * passes) if count > 1 else 0
    # torch's checkpointing imports it, too, in its first pass
    compiler = COMPILER_BYTES * (COMPILER in sys.modules or config.model.checkpointing)
    imported = 0 if shares_compiler(config) else compiler
    serving = MODEL_VECTORS + SERVER_TERM_VECTORS * sum(terms) + SERVER_UPDATE_VECTORS * updating
    return replace(
        processes_alone(config),
        imported=compiler - imported,
        touched=PRETRAINED_BYTES * (config.model.name == "hugging_face"),
        data=data - features,
        mapped=in_file + features,
        frozen=frozen,
        coordinator=serving * vector + frozen + imported + serving_networks,
        host=(2 + broadcasts) * vector + frozen + kept + imported + beside,
        rehearsed=any(":" not in name for name in config.methods) * (2 + broadcasts + working) * vector,
        working=AHEAD * any(isinstance(part.x, Unread) for part in parts)
        + working * vector
        + int(tables.max())
        + max(0, min(evaluating, KEPT_BYTES) - kept)
        + together,
        gpu=data
        + in_file
        + frozen
        + (2 + broadcasts + working) * vector
        + on_gpu
        + int(tables.max())
        + beside
        + together,
        server_gpu=serving_networks,
        clients=[
            int(own)
            + kept_steps
            + tested_models
            + _memory(federation, kind, stream)
            + _read(federation, kind, stream, len(stream) if epochs_over_all else samples)
            for own, samples, stream in zip(of_halves, largest, federation.streams, strict=True)
        ],
        savings=lambda: _savings(config, federation, model, batches, int(of_halves.sum())),
    )


def _savings(config: Config, federation: Federation, model: FlatModel, batches: Ints, kept: int) -> Mapping[str, int]:
    """Return the bytes that methods would keep less of what is kept, by the hyperparameter that does so."""
    savings: dict[str, int] = {}
    methods = make_methods(config)
    for key in config.methods:
        name = key.rpartition(":")[2]
        method = methods[name]
        for knob, value in method.frugal.items():
            if getattr(method, knob) != value:
                frugal = {**config.methods, key: {**config.methods[key], knob: value}}
                seen = rehearse_halves(config.model_copy(update={"methods": frugal}), federation, model)
                less, *_ = measure_halves(seen, batches)
                savings[f"methods.{name}.{knob}={value}"] = kept - int(less.sum())
    return {setting: nbytes for setting, nbytes in savings.items() if nbytes > 0}


def _memory(federation: Federation, kind: MemoryKind | None, stream: Stream) -> int:
    """Return the bytes of a client's full memory: positions and draws (int64), and logits (float32) where kept."""
    keeps_logits = kind is not None and kind.keeps_logits
    draws = 24 * bool(federation.augment) + 8 * len(federation.custom_augment)
    each = 8 + draws + 4 * prod(federation.output_shape) * keeps_logits
    return _entries(federation, kind, stream) * each


def _entries(federation: Federation, kind: MemoryKind | None, stream: Stream) -> int:
    """Return how many samples a client's memory holds at most."""
    if kind is None:
        return 0
    return min(len(stream), kind.capacity * (len(federation.tasks) if kind.per_task else 1))


def _read(federation: Federation, kind: MemoryKind | None, stream: Stream, trained: int) -> int:
    """Return the bytes of the samples of a stream of the user's own, of which a client has copies of its own."""
    if federation.opener is None:
        return 0
    each = federation.dataset.train.x[:1].nbytes + federation.dataset.train.y[:1].nbytes
    return each * (trained + _entries(federation, kind, stream))
