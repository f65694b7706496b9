"""A client as a method sees it: its data, its memory, the current model, and its random generators."""

import copy
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raysim.api.local_optimizer import LocalOptimizer
from raysim.api.messages import Delta
from raysim.api.networks import Build, flatten, initial, load
from raysim.api.shared import Shared
from raysim.data.pixels import Source
from raysim.federation.stream import Stream
from raysim.federation.targets import check_loss
from raysim.memory import Memory
from raysim.models.flat import FlatModel, Weights
from raysim.models.inputs import as_input
from raysim.system import seeding
from raysim.system.device import to_device
from raysim.system.state import Stateful


class Client(Stateful):
    """One client during its local training (a phase) or an exchange."""

    def __init__(self, number: int, stream: Stream, data: Source, memory: Memory | None, shared: Shared) -> None:
        self.id = number
        self.stream = stream  # the client's data in order of arrival; a sample's position (int64) is its index
        self.data = data  # the source of the stream's samples: the training split, or a user-defined stream
        self.memory = memory  # the client's replay memory; None if no method needs one
        self.shared = shared  # state shared with the other clients of the process
        self.window = -1  # the index of the current window: the samples to train on now
        self.arrived = torch.zeros(0, dtype=torch.int64)  # [n]: the positions in the current window
        self.finished = self.arrived  # [n]: for `begin_task`: positions in the stages that ended since its last call
        self.phases = 0  # the number of phases so far, including the current one
        self.round = 0  # the server's round, from 1
        self.lr = 0.0  # the learning rate of this phase
        self.share = 0.0  # the client's weight in the cohort; the cohort's weights sum to 1
        self.steps = 0  # the number of gradient steps of this phase; a half's `train` sets it or uses `epoch`
        # Only the simulator uses the following attributes. Methods call `record` and `generator` instead.
        self.trained = 0  # the number of samples in an epoch of this phase
        self.optimizer: dict[str, Any] = {}  # the optimizer's attributes, if training.keep_optimizer
        self.records: dict[str, Tensor | float] = {}  # name -> the value passed to `record` in this phase
        self.networks: dict[str, tuple[Tensor, ...]] = {}  # the vectors of the client's auxiliary networks
        self.kept_out: Tensor | None = None  # a mask (bool [classes]) of the classes that training excludes
        self._made: dict[str, FlatModel] = {}  # the networks of this phase or exchange
        self._random = seeding.RandomGenerators(shared.seed, number, 0, 0)
        self._received: Tensor | None = None

    @property
    def model(self) -> FlatModel:
        """The process's model instance. During this client's phase, it holds the client's parameters."""
        return self.shared.model

    @property
    def classes(self) -> int:
        """The number of the model's outputs."""
        return self.shared.classes

    @property
    def task(self) -> int:
        """The current task, from 0. If clients do not know it: the one with the most samples in the window."""
        return self.stream.task_of_window(self.window)

    @property
    def local_epochs(self) -> int:
        """The number of passes over the client's data in a phase; 1 if only training.local_steps is given."""
        return self.shared.training.local_epochs or 1

    @property
    def deterministic(self) -> bool:
        """Whether the same computation gives the same bits: the config's `resources.deterministic`."""
        return self.shared.deterministic

    @property
    def received(self) -> Tensor:
        """The server's parameters [P] at the start of training, after the changes by `receive` hooks. Read only."""
        parameters: Tensor = self.from_server("model").parameters
        return parameters if self._received is None else self._received

    def from_server(self, name: str) -> Any:
        """Return the value of the broadcast of this name. Read only.

        Raises:
            KeyError: the server has sent no broadcast of this name.
        """
        return self.shared.value_of(name)

    @abstractmethod
    def local_training(self) -> Delta:
        """Run the local loop with all methods' hooks, and return the change of the model."""

    @abstractmethod
    def epoch(self, positions: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Put the model into training mode, and yield one epoch's batches x, y and `plain`, for a half's `train`.

        The batches are those of the local loop, over `arrived` or these positions. `plain` are the samples of x without
        augmentation: x itself if there is none. Each batch counts as a step.
        """

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the objective's mean loss. Classification ignores the classes that `training.logits` excludes."""
        objective = self.shared.objective
        return check_loss(objective, objective.loss(self.mask_logits(outputs), y), outputs)

    def mask_logits(self, logits: Tensor) -> Tensor:
        """Return the logits [n, classes], with -inf for the classes that `training.logits` excludes."""
        return logits if self.kept_out is None else logits.masked_fill(self.kept_out, -torch.inf)

    def show(self, positions: Tensor, draws: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the samples at these positions: x [n, ...] in the model's dtype (token ids: int64) and y [n, ...].

        `draws` (int64 [n, k]) selects the samples' augmentation. None returns the samples unaugmented.
        """
        rows, task = self.stream.locate(positions)
        device = self.model.device
        rows = to_device(self.data.held(rows), device)
        x = self.data.fetch(rows, to_device(task, device), to_device(draws, device))
        return as_input(x, self.model.dtype), self.data.labels(rows)

    def labels(self, positions: Tensor) -> Tensor:
        """Return the labels (int64 [n], on the CPU) of the samples at these positions."""
        rows, _ = self.stream.locate(positions)
        return self.data.labels(self.data.held(rows)).cpu()

    def network_at(self, weights: Weights | None = None) -> nn.Module:
        """Return a separate copy of the network with these weights, in evaluation mode.

        None copies the current weights. You may move, convert and train the copy; `model.module` must stay as it is.
        """
        return self.model.network_at(weights or self.model.copy())

    def make(self, name: str, build: Build, weights: Weights | None = None) -> FlatModel:
        """Return the auxiliary network of this name. Later calls in the phase return the same one.

        It begins each phase and exchange in training mode, with `weights`. None are the client's own: those that the
        last phase ended with, or initial weights that are the same at the server and all clients.

        Raises:
            RunError: `build` does not return a network with trainable parameters of one dtype, or the weights differ.
        """
        if name not in self._made:
            built = self.shared.networks
            if name not in built:
                built[name] = initial(self.shared.seed, name, build)
            self._made[name] = network = flatten(name, copy.deepcopy(built[name]), self.model.device)
            if weights is None:
                load(name, network, self.networks.get(name, network.vectors))
                self.networks[name] = network.vectors
            else:
                load(name, network, weights)
        return self._made[name]

    def new_optimizer(self) -> LocalOptimizer:
        """Return a new optimizer of the config's kind, for the vectors of an auxiliary network."""
        optimizer: LocalOptimizer = self.shared.training.optimizer.make()
        return optimizer

    @property
    def unlabelled(self) -> Tensor:
        """The positions (int64 [n]) of this client's part of `dataset.unlabelled`; or see `dataset.label_rate`."""
        return self.shared.unlabelled_in(self.id, self.window)

    def show_unlabelled(self, positions: Tensor) -> Tensor:
        """Return the samples without labels at these positions: x [n, ...] in the model's dtype, unaugmented."""
        return as_input(self.shared.fetch_unlabelled(self.id, positions), self.model.dtype)

    def batches(self, samples: int, single: bool = False) -> list[slice]:
        """Divide an epoch into batches; see `cut_into_batches`. If `single`, a last batch of one sample counts, too."""
        return cut_into_batches(samples, self.shared.training.batch_size, self.model.normalises and not single)

    def record(self, name: str, value: Tensor | float) -> None:
        """Record a number of this phase. rounds.jsonl and TensorBoard get its mean over the cohort."""
        self.records[name] = value

    def generator(self, purpose: str) -> np.random.Generator:
        """Return this phase's generator for a purpose. Later calls in the phase return the same object."""
        return self._random.generator(purpose)

    def fixed_generator(self, *name: int | str) -> np.random.Generator:
        """Return a new generator for this name. Unlike `generator`, it draws the same numbers in every phase."""
        return seeding.generator(self.shared.seed, self.id, *name)

    def rng_scope(self, method: str) -> AbstractContextManager[None]:
        """Make torch draw from the method's random generator. Use this for every forward pass except the step's own.

        Otherwise an extra forward pass would change later dropout masks, even if its loss has weight 0.
        """
        return self._random.rng_scope(method)

    def global_draws(self, name: str) -> AbstractContextManager[None]:
        """Let code draw from torch's, NumPy's and Python's global generators, seeded from `generator(name)`.

        They are restored at the end.
        """
        return self._random.global_draws(name)

    @contextmanager
    def fixed_rng_scope(self, *name: int | str) -> Iterator[None]:
        """Make torch draw the same numbers for this name in every phase; see `fixed_generator`."""
        with seeding.torch_restored():
            seeding.seed_torch(self.shared.seed, self.id, *name)
            yield


def cut_into_batches(samples: int, size: int, normalises: bool) -> list[slice]:
    """Divide an epoch into batches, as slices. The last batch may be smaller.

    If the model has BatchNorm (`normalises`), a last batch of one sample is skipped: one sample has no variance. The
    next epoch is shuffled again and may include that sample.
    """
    batches = [slice(start, min(start + size, samples)) for start in range(0, samples, size)]
    return [batch for batch in batches if not (normalises and batch.stop - batch.start == 1)]
