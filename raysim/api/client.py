"""A client as a method sees it: its data, its memory, the current model, and its random generators."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from raysim.api.local_optimizer import LocalOptimizer
from raysim.api.messages import Delta
from raysim.api.networks import Build
from raysim.api.participant import Participant
from raysim.api.shared import Shared
from raysim.data.pixels import Source
from raysim.federation.stream import Stream
from raysim.federation.targets import check_loss
from raysim.memory import Memory
from raysim.models.flat import FlatModel, Weights
from raysim.models.inputs import as_input
from raysim.system import seeding
from raysim.system.device import to_device


class Client(Participant):
    """One client during its local training (a phase) or an exchange.

    >>> client.id, client.round, client.lr, len(client.arrived), client.model.parameters.shape
    (0, 1, 0.1, 12, torch.Size([59]))
    """

    def __init__(self, number: int, stream: Stream, data: Source, memory: Memory | None, shared: Shared) -> None:
        super().__init__(seeding.RandomGenerators(shared.seed, number, 0, 0), shared.classes)
        self.id = number
        self.stream = stream  # the client's data in order of arrival; a sample's position (int64) is its index
        self.data = data  # the source of the stream's samples: the training split, or a user-defined stream
        self.memory = memory  # the client's replay memory; None if no method needs one
        self.model = shared.model  # the process's model instance; in a phase, it holds this client's parameters
        self.shared = shared  # state shared with the other clients of the process
        self.window = -1  # the index of the current window: the samples to train on now
        self.arrived = torch.zeros(0, dtype=torch.int64)  # [n]: the positions in the current window
        self.finished = self.arrived  # [n]: for `begin_task`: positions in the stages that ended since its last call
        self.kept_out: Tensor | None = None  # a mask (bool [classes]) of the classes that training excludes
        self.received = torch.zeros(0)  # [P]: the server's parameters, after the changes by `receive` hooks; read only
        self.local_epochs = shared.training.local_epochs or 1  # the passes over the data; 1 with training.local_steps
        self.deterministic = shared.deterministic  # whether the same computation gives the same bits
        self.phases = 0  # the number of phases so far, including the current one
        self.round = 0  # the server's round, from 1
        self.lr = 0.0  # the learning rate of this phase
        self.share = 0.0  # the client's weight in the cohort; the cohort's weights sum to 1
        self.steps = 0  # the number of gradient steps of this phase; `train` sets it or uses `epoch`

    @property
    def task(self) -> int:
        """The current task, from 0. If clients do not know it: the one with the most samples in the window.

        >>> client.task
        0
        """
        return self.stream.task_of_window(self.window)

    def from_server(self, name: str) -> Any:
        """Return the value of the broadcast of this name. Read only.

        Raises:
            KeyError: the server has sent no broadcast of this name.

        >>> client.from_server("model").parameters.shape
        torch.Size([59])
        """
        return self.shared.value_of(name)

    @abstractmethod
    def local_training(self) -> Delta:
        """Run the local loop with all methods' hooks, and return the change of the model.

        >>> client.local_training().parameters.shape
        torch.Size([59])
        """

    @abstractmethod
    def epoch(self, positions: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Put the model into training mode, and yield one epoch's batches x, y and `plain`, for a side's `train`.

        The batches are those of the local loop, over `arrived` or these positions. `plain` are the samples of x without
        augmentation: x itself if there is none. Each batch counts as a step.

        >>> [x.shape for x, y, plain in client.epoch()]
        [torch.Size([4, 6]), torch.Size([4, 6]), torch.Size([4, 6])]
        """

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the objective's mean loss. Classification ignores the classes that `training.logits` excludes.

        >>> client.loss(torch.zeros(4, 4), step.y)
        tensor(1.3863)
        """
        objective = self.shared.objective
        return check_loss(objective, objective.loss(self.mask_logits(outputs), y), outputs)

    def mask_logits(self, logits: Tensor) -> Tensor:
        """Return the logits [n, classes], with -inf for the classes that `training.logits` excludes.

        >>> client.mask_logits(step.logits).shape
        torch.Size([4, 4])
        """
        return logits if self.kept_out is None else logits.masked_fill(self.kept_out, -torch.inf)

    def samples(self, positions: Tensor, draws: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the samples at these positions: x [n, ...] in the model's dtype (token ids: int64) and y [n, ...].

        `draws` (int64 [n, k]) selects the samples' augmentation. None returns the samples unaugmented.

        >>> x, y = client.samples(client.arrived[:5])
        >>> x.shape, y.shape
        (torch.Size([5, 6]), torch.Size([5]))
        """
        rows, task = self.stream.locate(positions)
        device = self.model.device
        rows = to_device(self.data.held(rows), device)
        x = self.data.fetch(rows, to_device(task, device), to_device(draws, device))
        return as_input(x, self.model.dtype), self.data.labels(rows)

    def labels(self, positions: Tensor) -> Tensor:
        """Return the labels (int64 [n], on the CPU) of the samples at these positions.

        >>> client.labels(client.arrived).bincount()
        tensor([2, 3, 4, 3])
        """
        rows, _ = self.stream.locate(positions)
        return self.data.labels(self.data.held(rows)).cpu()

    def network_at(self, weights: Weights | None = None) -> nn.Module:
        """Return a separate copy of the network with these weights or the current ones; see `Participant`."""
        return self.model.network_at(weights or self.model.copy())

    @abstractmethod
    def auxiliary_network(self, name: str, build: Build, weights: Weights | None = None) -> FlatModel:
        """Return the auxiliary network of this name. Later calls in the phase return the same one.

        It begins each phase and exchange in training mode, with `weights`. None are the client's own: those that the
        last phase ended with, or the initial ones.

        Raises:
            RunError: `build` does not return a network with trainable parameters of one dtype, or the weights differ.
        """

    def new_optimizer(self) -> LocalOptimizer:
        """Return a new optimizer of the config's kind, for the vectors of an auxiliary network.

        >>> client.new_optimizer().step(client.model.parameters, client.model.gradient, client.lr)
        """
        optimizer: LocalOptimizer = self.shared.training.optimizer.make()
        return optimizer

    @property
    def unlabelled(self) -> Tensor:
        """The positions (int64 [n]) of this client's part of `dataset.unlabelled`; or see `dataset.label_rate`.

        >>> client.unlabelled
        tensor([0, 1, 2])
        """
        return self.shared.unlabelled_in(self.id, self.window)

    def unlabelled_samples(self, positions: Tensor) -> Tensor:
        """Return the samples without labels at these positions: x [n, ...] in the model's dtype, unaugmented.

        >>> client.unlabelled_samples(client.unlabelled).shape
        torch.Size([3, 6])
        """
        return as_input(self.shared.fetch_unlabelled(self.id, positions), self.model.dtype)

    def batches(self, samples: int, single: bool = False) -> list[slice]:
        """Divide an epoch into batches; see `cut_into_batches`. If `single`, a last batch of one sample counts, too.

        >>> client.batches(10)
        [slice(0, 4, None), slice(4, 8, None), slice(8, 10, None)]
        """
        return cut_into_batches(samples, self.shared.training.batch_size, self.model.normalises and not single)

    def fixed_generator(self, *name: int | str) -> np.random.Generator:
        """Return a new generator for this name. Unlike `generator`, it draws the same numbers in every phase.

        >>> client.fixed_generator("mine").integers(100, size=3)
        array([25,  4, 78])
        """
        return seeding.generator(self.shared.seed, self.id, *name)

    @contextmanager
    def fixed_rng_scope(self, *name: int | str) -> Iterator[None]:
        """Make torch draw the same numbers for this name in every phase; see `fixed_generator`.

        >>> with client.fixed_rng_scope("mine"):
        ...     noise = torch.randn(2, 6)
        """
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
