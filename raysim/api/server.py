"""The server as a method sees it: the global model, the present clients, and the round's cohort."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from raysim.api.networks import Build
from raysim.api.participant import Participant
from raysim.config import Config
from raysim.federation.availability import Progress
from raysim.federation.choice import check_chosen
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel, Weights
from raysim.system import seeding
from raysim.system.device import choose_device


class Server(Participant):
    """The server's state, which server sides read and change.

    >>> server.round, server.cohort, server.parameters.shape
    (1, (0, 1, 2), torch.Size([59]))
    """

    def __init__(self, config: Config, federation: Federation, network: FlatModel) -> None:
        super().__init__(seeding.RandomGenerators(config.seed, "server", 0), federation.classes)
        self._config = config
        self._federation = federation
        self.network = network  # an instance of the model, on the CPU; load weights into it before use
        self.device = choose_device(config.resources.server_gpus)  # the device of the auxiliary networks
        self.shape = federation.dataset.shape  # of one sample, or of its features with model.cache
        self.normalization = federation.normalization  # mean and deviation by channel of normalized samples, or None
        self.augment = federation.augment  # the names of `dataset.augment`, the changes of training samples
        self.class_names = federation.dataset.names  # None if the dataset has none
        weights = network.weights()
        # The global model, on the CPU: parameters [P] and float buffers [B] in its dtype, integer buffers [I].
        self.parameters, self.buffers, self.integers = weights.parameters, weights.buffers, weights.integers
        self.version = 0  # the number of updates of the model so far
        self.round = 0  # the current round, from 1; 0 before the first
        self.cohort: tuple[int, ...] = ()  # the ids of the round's clients, ascending
        self.shares: Mapping[int, float] = {}  # client of the cohort -> its weight; the weights sum to 1

    @property
    def task(self) -> int:
        """The round's task, from 0.

        If clients are at different tasks, this is the index of the row of the accuracy matrix that is measured next.

        >>> server.task
        0
        """
        return self._federation.availability.progress(self.round).task

    @property
    def progress(self) -> Progress:
        """The run's progress in this round. With asynchronous boundaries, the whole run counts as one task.

        >>> server.progress
        Progress(round=1, rounds=4, task=0, began=0, lasts=2)
        """
        return self._federation.availability.progress(self.round, self._config.scenario.windows is None)

    @property
    def present(self) -> tuple[int, ...]:
        """The ids of the clients that have data in this round, ascending.

        >>> server.present
        (0, 1, 2)
        """
        return self._federation.availability.present(max(self.round, 1))

    def size(self, client: int, round: int | None = None) -> int:
        """Return how many samples a client has in a round, by default the current round.

        >>> server.size(0)
        12
        """
        return self._federation.availability.size(client, round or max(self.round, 1))

    def tasks(self, client: int, round: int | None = None) -> list[int]:
        """Return the tasks of the samples that a client has in a round, by default the current round.

        >>> server.tasks(0, round=3)
        [1]
        """
        return self._federation.availability.tasks(client, round or max(self.round, 1))

    def earlier_classes(self) -> tuple[int, ...]:
        """Return the classes of the tasks before the current task, ascending; all classes if tasks share them.

        >>> server.earlier_classes()
        (0, 1, 2, 3)
        """
        return self._federation.classes_before(self.task)

    def present_classes(self) -> tuple[int, ...]:
        """Return the classes of the tasks from which clients have data in this round, ascending.

        >>> server.present_classes()
        (0, 1, 2, 3)
        """
        return self._federation.classes_of({task for client in self.present for task in self.tasks(client)})

    def samples_of(self, task: int) -> int:
        """Return how many training samples of a task (from 0) all clients have together.

        >>> server.samples_of(0)
        36
        """
        return sum(stream.samples_of(task) for stream in self._federation.streams)

    def network_at(self, weights: Weights | None = None) -> nn.Module:
        """Return a separate copy of the network with these weights or the global model, on `device`."""
        weights = weights or Weights(self.parameters, self.buffers, self.integers)
        return self.network.network_at(weights).to(self.device)

    def sample(self) -> list[int]:
        """Draw this round's participants with the config's sampler.

        Raises:
            WrongResult: the sampler returned something other than ids of present clients.

        >>> server.sample()
        [0, 1, 2]
        """
        present, participation = self.present, self._config.participation
        count = participation.count or max(1, round((participation.fraction or 1.0) * len(present)))
        if count >= len(present):
            return list(present)
        sampler = participation.sampler
        chosen = sampler.with_keys()(self, count, seeding.generator(self._config.seed, "cohort", self.round))
        return check_chosen(chosen, present, "participation.sampler", sampler.function(), least=1)

    def shares_of(self, clients: Sequence[int]) -> dict[int, float]:
        """Return each client's weight among these, as `aggregation.weights` says. The weights sum to 1.

        >>> server.shares_of([0, 1])
        {0: 0.5, 1: 0.5}
        """
        uniform = self._config.aggregation.weights == "uniform"
        sizes = {k: 1 if uniform else self.size(k) for k in clients}
        total = sum(sizes.values())
        return {k: size / total for k, size in sizes.items()}

    @abstractmethod
    def auxiliary_network(self, name: str, build: Build, *, fresh: bool = False) -> FlatModel:
        """Return the auxiliary network of this name, such as a generator. The first call builds it.

        It keeps its weights from one round to the next, and in checkpoints. Its initial weights are the same as at the
        clients. With `fresh` it is built again, with weights drawn anew.

        Raises:
            RunError: `build` does not return a network with trainable parameters of one dtype.
        """

    @abstractmethod
    def drop(self, name: str) -> None:
        """Forget the auxiliary network of this name.

        >>> server.drop("mine.generator")
        """

    @abstractmethod
    def replace_model(self, weights: Weights) -> None:
        """Replace the global model, in a plan such as `end_task`. Clients receive it with the next message.

        Raises:
            RunError: the weights are another network's, or not finite; or the methods send no model.

        >>> server.replace_model(Weights(0.9 * server.parameters, server.buffers, server.integers))
        """

    @abstractmethod
    def record_image(self, name: str, images: Tensor, captions: Sequence[str] | None = None) -> None:
        """Record one picture of this round, a grid of up to 256 images: images/round_N/NAME.png, and in TensorBoard.

        Args:
            name: a valid file name.
            images: [n, channels, height, width] with 1 or 3 channels, floats from 0 to 1 or uint8.
            captions: a short text below each image.

        Raises:
            RunError: the name, the shape or a value is another.

        >>> server.record_image("generated", torch.rand(2, 3, 8, 8), ["a cat", "a dog"])
        """
