"""A client as a method sees it: its data, its memory, the present model, and the client's random streams."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysim.api.messages import Broadcast, Delta
from raysim.config.experiment import Training
from raysim.data.pixels import Source
from raysim.federation.federation import CLASSIFICATION
from raysim.federation.stream import Stream
from raysim.federation.targets import check_loss
from raysim.memory import Memory
from raysim.models.flat import FlatModel
from raysim.models.inputs import as_input
from raysim.objectives import Objective
from raysim.system import seeding
from raysim.system.device import to_device
from raysim.system.state import Stateful


@dataclass(frozen=True)
class Shared:
    """State shared by all clients of a process: one model instance, the broadcasts, and the run's settings.

    `kept_out` returns a mask (bool [classes]) of the classes that are not in the training softmax while a client has a
    window of its stream, or None. `unlabelled` is the data set without labels, `parts[k]` client k's rows of it.
    `objective` is what is learned.
    """

    model: FlatModel
    broadcasts: Mapping[str, Broadcast]
    seed: int
    training: Training
    deterministic: bool
    kept_out: Callable[[Stream, int], Tensor | None]
    unlabelled: Source | None = None
    parts: Sequence[npt.NDArray[np.int32]] = ()
    objective: Objective = CLASSIFICATION


class Client(Stateful):
    """One client, in a phase of training or in an exchange of messages.

    `id` is its number, `window` the window of its stream that it has, `arrived` the positions (int64 [n]) in that
    window, `finished` those that arrived in completed stages, since it last began one. `share` is its weight in the
    cohort, `lr` the learning rate, `round` the server's round, `phases` how many it has trained in, `memory` its replay
    memory, if a method needs one. A method that owns the local loop sets `steps`, the gradient steps taken.
    """

    def __init__(self, number: int, stream: Stream, data: Source, memory: Memory | None, shared: Shared) -> None:
        self.id = number
        self.stream = stream
        self.data = data  # the train split, shared by all clients; or a user-defined stream
        self.memory = memory
        self.shared = shared
        self.window = -1
        self.arrived = self.finished = torch.zeros(0, dtype=torch.int64)
        self.phases = 0
        self.exchanges: dict[str, int] = {}  # by method, since the last phase
        self.round = 0
        self.lr = 0.0
        self.share = 0.0
        self.trained = self.steps = 0
        self.optimizer: dict[str, Any] = {}  # what is kept of it from phase to phase, if it is
        self.records: dict[str, Tensor | float] = {}
        self._streams = seeding.Streams(shared.seed, number, 0, 0)
        self._kept_out: Tensor | None = None
        self._received: Tensor | None = None

    @property
    def model(self) -> FlatModel:
        """The present model: one per process, with this client's parameters during its phase."""
        return self.shared.model

    @property
    def local_epochs(self) -> int:
        """The number of passes over the client's data in a phase; where training.local_steps is given, at least 1."""
        return self.shared.training.local_epochs or 1

    @property
    def deterministic(self) -> bool:
        """Whether the same computation gives the same bits, as it does unless a GPU is configured otherwise."""
        return self.shared.deterministic and self.computes

    @property
    def computes(self) -> bool:
        """Whether tensors have values; in a dry run, which counts what a run would send, they have only a shape."""
        return True

    @property
    def received(self) -> Tensor:
        """The parameters [P] that the client was sent, with what methods have put in their place; read only."""
        parameters: Tensor = self.from_server("model").parameters
        return parameters if self._received is None else self._received

    def from_server(self, name: str) -> Any:
        """Return what the server posted under this name; read only."""
        return self.shared.broadcasts[name].value

    @abstractmethod
    def local_training(self) -> Delta:
        """Run the local loop with all methods' hooks, and return what it changed."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the objective's mean loss, of classification over the classes that `training.logits` admits."""
        objective = self.shared.objective
        return check_loss(objective, objective.loss(self.mask_logits(outputs), y), outputs)

    def mask_logits(self, logits: Tensor) -> Tensor:
        """Return the logits [n, classes], -inf for the classes that `training.logits` does not admit."""
        return logits if self._kept_out is None else logits.masked_fill(self._kept_out, -torch.inf)

    def show(self, positions: Tensor, draws: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return samples by their positions in the stream, x [n, ...] in the model's dtype (ids: int64) and y [n, ...].

        `draws` (int64 [n, 3]) is their augmentation; None returns them unaugmented.
        """
        rows, task = self.stream.locate(positions)
        device = self.model.device
        rows = to_device(self.data.held(rows), device)
        x = self.data.fetch(rows, to_device(task, device), to_device(draws, device))
        return as_input(x, self.model.dtype), self.data.labels(rows)

    def labels(self, positions: Tensor) -> Tensor:
        """Return the labels (int64 [n], on the CPU) of the samples at these positions of the stream."""
        rows, _ = self.stream.locate(positions)
        return self.data.labels(self.data.held(rows)).cpu()

    @property
    def unlabelled(self) -> Tensor:
        """The rows (int64 [n]) of `dataset.unlabelled` that this client has."""
        return torch.from_numpy(self.shared.parts[self.id].astype(np.int64))

    def show_unlabelled(self, rows: Tensor) -> Tensor:
        """Return these samples of `dataset.unlabelled`, x [n, ...] in the model's dtype, unaugmented."""
        assert self.shared.unlabelled is not None
        x = self.shared.unlabelled.fetch(to_device(rows, self.model.device), 0)
        return as_input(x, self.model.dtype)

    def batches(self, samples: int, single: bool = False) -> list[slice]:
        """Divide an epoch of `samples` samples into batches; `single` keeps a remainder that BatchNorm cannot take."""
        return cut_into_batches(samples, self.shared.training.batch_size, self.model.normalises and not single)

    def record(self, name: str, value: Tensor | float) -> None:
        """Put a number of this phase into rounds.jsonl and TensorBoard, as the mean over the cohort's clients."""
        self.records[name] = value

    def generator(self, purpose: str) -> np.random.Generator:
        """Return this phase's generator for a purpose: one object per phase, which later calls do not rewind."""
        return self._streams.generator(purpose)

    def fixed_generator(self, *name: int | str) -> np.random.Generator:
        """Return a generator whose stream has a name of its own, independent of the phase; each call starts it anew."""
        return seeding.generator(self.shared.seed, self.id, *name)

    def rng_scope(self, method: str) -> AbstractContextManager[None]:
        """Draw from the method's own stream, not the model's: for every forward pass other than the step's own.

        Without it a second forward pass, even one of weight 0, would change the next dropout mask.
        """
        return self._streams.rng_scope(method)

    @contextmanager
    def fixed_rng_scope(self, *name: int | str) -> Iterator[None]:
        """Have torch draw from the start of a stream as in `fixed_generator`."""
        with seeding.torch_restored():
            seeding.seed_torch(self.shared.seed, self.id, *name)
            yield


def cut_into_batches(samples: int, size: int, normalises: bool) -> list[slice]:
    """Divide an epoch into batches; the last may be smaller.

    A remainder of one sample is left out if the model has BatchNorm, which has no statistics of one sample; as the
    order changes, the next epoch may include that sample.
    """
    parts = [slice(start, min(start + size, samples)) for start in range(0, samples, size)]
    return [part for part in parts if not (normalises and part.stop - part.start == 1)]
