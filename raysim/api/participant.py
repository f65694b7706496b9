"""What a client and the server have in common: random generators, recorded numbers and networks."""

from abc import abstractmethod
from contextlib import AbstractContextManager

import numpy as np
from torch import Tensor, nn

from raysim.api.networks import Build
from raysim.models.flat import FlatModel, Weights
from raysim.system.seeding import RandomGenerators
from raysim.system.state import Stateful


class Participant(Stateful):
    """A client or the server, as a method sees it.

    Args:
        random: the random generators of the current local training, exchange or round.
        classes: the number of the model's outputs.

    >>> client.classes, server.classes
    (4, 4)
    """

    def __init__(self, random: RandomGenerators, classes: int) -> None:
        self._random = random
        self.classes = classes

    def generator(self, purpose: str) -> np.random.Generator:
        """Return the generator for a purpose. Later calls in the local training or round return the same object.

        >>> order = client.generator("mine").permutation(len(client.arrived))
        """
        return self._random.generator(purpose)

    def rng_scope(self, method: str) -> AbstractContextManager[None]:
        """Make torch draw from the method's random generator. A later call continues its sequence.

        A client's hook uses this for every forward pass except the step's own. Otherwise an extra forward pass would
        change later dropout masks, even if its loss has weight 0. The server side must not draw from torch in any other
        way. A plan may yield inside this context.

        >>> with client.rng_scope("mine"):
        ...     logits = client.model(step.x + torch.randn_like(step.x))
        """
        return self._random.rng_scope(method)

    def global_draws(self, name: str) -> AbstractContextManager[None]:
        """Let code draw from torch's, NumPy's and Python's global generators, seeded from `generator(name)`.

        They are restored at the end.

        >>> with client.global_draws("mine"):
        ...     rows = np.random.permutation(12)
        """
        return self._random.global_draws(name)

    @abstractmethod
    def record(self, name: str, value: Tensor | float) -> None:
        """Record a number of this local training or round in rounds.jsonl and TensorBoard.

        Of clients, they get the mean over those that recorded it.

        >>> client.record("drift", (client.model.parameters - client.received).norm())
        """

    @abstractmethod
    def network_at(self, weights: Weights | None = None) -> nn.Module:
        """Return a separate copy of the network with these weights, in evaluation mode.

        None copies the client's current weights, or the global model. You may move, convert and train the copy. The
        module of the model itself must stay as it is.

        >>> client.network_at(client.from_server("model"))(step.x).shape
        torch.Size([4, 4])
        """

    @abstractmethod
    def auxiliary_network(self, name: str, build: Build) -> FlatModel:
        """Return the auxiliary network of this name, such as a generator. The first call builds it.

        Its initial weights are the same at the server and all clients.

        Raises:
            RunError: `build` does not return a network with trainable parameters of one dtype.

        >>> generator = client.auxiliary_network("mine.generator", lambda: nn.Linear(2, 6))
        >>> generator(torch.zeros(5, 2)).shape, generator.parameters.shape
        (torch.Size([5, 6]), torch.Size([18]))
        """
