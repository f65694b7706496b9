"""The server as a method sees it: the global model, the present clients, and the round's cohort."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar

import numpy as np
from torch import Tensor, nn

from raysim.api.messages import Broadcast
from raysim.api.networks import Build, Networks, load
from raysim.api.pictures import Picture, make_picture
from raysim.config import Config
from raysim.config.component_blocks import ChannelStatistics
from raysim.federation.availability import Progress
from raysim.federation.choice import check_chosen
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel, Weights
from raysim.system import seeding
from raysim.system.device import choose_device
from raysim.system.errors import RunError
from raysim.system.state import Stateful


class Server(Stateful):
    """The server's state, which server halves read and change."""

    transient: ClassVar = frozenset(
        {"network", "device", "records", "pictures", "local_bytes", "_config", "_federation", "_random"}
        | {"augment", "class_names"}
    )

    def __init__(self, config: Config, federation: Federation, network: FlatModel) -> None:
        self._config = config
        self._federation = federation
        self.network = network  # an instance of the model, on the CPU; load weights into it before use
        self.device = choose_device(config.resources.server_gpus)  # the device of the auxiliary networks
        self.networks = Networks(config.seed, self.device)  # those that `make` returns
        self.augment = federation.augment  # the names of `dataset.augment`, the changes of training samples
        self.class_names = federation.dataset.names  # None if the dataset has none
        weights = network.weights()
        # The global model, on the CPU: parameters [P] and float buffers [B] in its dtype, integer buffers [I].
        self.parameters, self.buffers, self.integers = weights.parameters, weights.buffers, weights.integers
        self.version = 0  # the number of updates of the model so far
        self.round = 0  # the current round, from 1; 0 before the first
        self.cohort: tuple[int, ...] = ()  # the ids of the round's clients, ascending
        self.shares: Mapping[int, float] = {}  # client of the cohort -> its weight; the weights sum to 1
        self.records: dict[str, float] = {}  # name -> the value passed to `record` in this round
        self.pictures: dict[str, Picture] = {}  # name -> the picture passed to `record_image` in this round
        self.local_bytes = 0  # the bytes of the model that are never sent; see `Method.local_bytes`
        self._random = seeding.RandomGenerators(config.seed, "server", 0)

    def begin_round(self) -> None:
        """Begin the next round, with new random generators. The simulation calls this."""
        self.round += 1
        self.records, self.pictures = {}, {}
        self._random = seeding.RandomGenerators(self._config.seed, "server", self.round)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample, or of its features with model.cache."""
        return self._federation.dataset.shape

    @property
    def classes(self) -> int:
        """The number of the model's outputs."""
        return self._federation.classes

    @property
    def normalization(self) -> ChannelStatistics | None:
        """The mean and deviation by channel with which samples are normalized. None if they are not."""
        return self._federation.normalization

    @property
    def task(self) -> int:
        """The round's task, from 0.

        If clients are at different tasks, this is the index of the row of the accuracy matrix that is measured next.
        """
        return self._federation.availability.progress(self.round).task

    @property
    def progress(self) -> Progress:
        """The run's progress in this round. With asynchronous boundaries, the whole run counts as one task."""
        return self._federation.availability.progress(self.round, self._config.scenario.windows is None)

    @property
    def present(self) -> tuple[int, ...]:
        """The ids of the clients that have data in this round, ascending."""
        return self._federation.availability.present(max(self.round, 1))

    def window(self, client: int) -> int:
        """Return the index of a client's window in this round.

        Raises:
            RunError: the client is not present.
        """
        window = self._federation.availability.window(client, max(self.round, 1))
        if window is None:
            raise RunError(f"client {client} has no data in this round; request only clients in server.present")
        return window

    def size(self, client: int, round: int | None = None) -> int:
        """Return how many samples a client has in a round, by default the current round."""
        return self._federation.availability.size(client, round or max(self.round, 1))

    def tasks(self, client: int, round: int | None = None) -> list[int]:
        """Return the tasks of the samples that a client has in a round, by default the current round."""
        return self._federation.availability.tasks(client, round or max(self.round, 1))

    def arrived(self, client: int, round: int | None = None) -> int:
        """Return how many samples a client has received up to a round, by default the current round."""
        window = self._federation.availability.window(client, round or max(self.round, 1))
        return 0 if window is None else self._federation.streams[client].end(window)

    def earlier_classes(self) -> tuple[int, ...]:
        """Return the classes of the tasks before the current task, ascending; all classes if tasks share them."""
        return self._federation.classes_before(self.task)

    def present_classes(self) -> tuple[int, ...]:
        """Return the classes of the tasks from which clients have data in this round, ascending."""
        return self._federation.classes_of({task for client in self.present for task in self.tasks(client)})

    def samples_of(self, task: int) -> int:
        """Return how many training samples of a task (from 0) all clients have together."""
        return sum(stream.samples_of(task) for stream in self._federation.streams)

    def model(self) -> Broadcast:
        """Return the model as the broadcast that every client receives."""
        weights = Weights(self.parameters, self.buffers, self.integers, local_bytes=self.local_bytes)
        return Broadcast("model", self.version, weights)

    def network_at(self, weights: Weights | None = None) -> nn.Module:
        """Return a separate copy of the network with these weights, on `device` and in evaluation mode.

        None copies the global model. You may move, convert and train the copy; `network.module` must stay as it is.
        """
        weights = weights or Weights(self.parameters, self.buffers, self.integers)
        return self.network.network_at(weights).to(self.device)

    def make(self, name: str, build: Build, *, fresh: bool = False) -> FlatModel:
        """Return the auxiliary network of this name, such as a generator. The first call builds it.

        It keeps its weights from one round to the next, and in checkpoints. Its initial weights are the same as in
        `client.make`. With `fresh` it is built again, with weights drawn anew.

        Raises:
            RunError: `build` does not return a network with trainable parameters of one dtype.
        """
        if not fresh:
            return self.networks.make(name, build)
        with self.rng_scope(f"network {name}"):
            return self.networks.renew(name, build)

    def drop(self, name: str) -> None:
        """Forget the auxiliary network of this name."""
        self.networks.drop(name)

    def replace_model(self, weights: Weights) -> None:
        """Replace the global model, in a plan such as `end_task`. Clients receive it with the next message.

        Raises:
            RunError: the weights are another network's, or not finite; or the methods send no model.
        """
        if not self.model().value.nbytes:
            allowed = "allowed where no model is sent: the hook evaluated, which returns weights to test and to save"
            raise RunError(f"server, round {self.round}: found a new model, which no client would receive, {allowed}")
        load("model", self.network, weights)
        if not all(bool(vector.isfinite().all()) for vector in self.network.vectors):
            raise RunError(f"server, round {self.round}: found a new model that is not finite, allowed: finite weights")
        copy = self.network.weights()
        self.parameters, self.buffers, self.integers = copy.vectors
        self.version += 1

    def sample(self) -> list[int]:
        """Draw this round's participants with the config's sampler.

        Raises:
            WrongResult: the sampler returned something other than ids of present clients.
        """
        present, participation = self.present, self._config.participation
        count = participation.count or max(1, round((participation.fraction or 1.0) * len(present)))
        if count >= len(present):
            return list(present)
        sampler = participation.sampler
        chosen = sampler.with_keys()(self, count, seeding.generator(self._config.seed, "cohort", self.round))
        return check_chosen(chosen, present, "participation.sampler", sampler.function(), least=1)

    def shares_of(self, clients: Sequence[int]) -> dict[int, float]:
        """Return each client's weight among these, as `aggregation.weights` says. The weights sum to 1."""
        uniform = self._config.aggregation.weights == "uniform"
        sizes = {k: 1 if uniform else self.size(k) for k in clients}
        total = sum(sizes.values())
        return {k: size / total for k, size in sizes.items()}

    def generator(self, purpose: str) -> np.random.Generator:
        """Return this round's generator for a purpose. Later calls in the round return the same object."""
        return self._random.generator(purpose)

    def rng_scope(self, method: str) -> AbstractContextManager[None]:
        """Make torch draw from the method's random generator of this round. A later call continues its sequence.

        A server half must not draw from torch in any other way. A plan may yield inside this context.
        """
        return self._random.rng_scope(method)

    def global_draws(self, name: str) -> AbstractContextManager[None]:
        """Let code draw from torch's, NumPy's and Python's global generators; see `Client.global_draws`."""
        return self._random.global_draws(name)

    def record(self, name: str, value: Tensor | float) -> None:
        """Record a number of this round in rounds.jsonl and TensorBoard."""
        self.records[name] = float(value.detach() if isinstance(value, Tensor) else value)

    def record_image(self, name: str, images: Tensor, captions: Sequence[str] | None = None) -> None:
        """Record one picture of this round, a grid of up to 256 images: images/round_N/NAME.png, and in TensorBoard.

        Args:
            name: a valid file name.
            images: [n, channels, height, width] with 1 or 3 channels, floats from 0 to 1 or uint8.
            captions: a short text below each image.

        Raises:
            RunError: the name, the shape or a value is another.
        """
        self.pictures[name] = make_picture(name, images, captions)
