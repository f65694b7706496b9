"""The server as the simulation runs it: its rounds, its networks, and what methods record."""

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor

from raysim.api.messages import Broadcast
from raysim.api.networks import Build, Networks, load
from raysim.api.pictures import Picture, make_picture
from raysim.api.server import Server
from raysim.config import Config
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel, Weights
from raysim.system import seeding
from raysim.system.errors import RunError


class HostedServer(Server):
    """The server of a run. Checkpoints include all attributes that are not in `transient`."""

    transient: ClassVar = frozenset(
        {"network", "device", "shape", "classes", "normalization", "augment", "class_names", "records", "pictures"}
        | {"local_bytes", "_config", "_federation", "_random"}
    )

    def __init__(self, config: Config, federation: Federation, network: FlatModel) -> None:
        super().__init__(config, federation, network)
        self.networks = Networks(config.seed, self.device)  # those that `auxiliary_network` returns
        self.records: dict[str, float] = {}  # name -> the value passed to `record` in this round
        self.pictures: dict[str, Picture] = {}  # name -> the picture passed to `record_image` in this round
        self.local_bytes = 0  # the bytes of the model that are never sent; see `Method.local_bytes`

    def begin_round(self) -> None:
        """Begin the next round, with new random generators."""
        self.round += 1
        self.records, self.pictures = {}, {}
        self._random = seeding.RandomGenerators(self._config.seed, "server", self.round)

    def window(self, client: int) -> int:
        """Return the index of a client's window in this round.

        Raises:
            RunError: the client is not present.
        """
        window = self._federation.availability.window(client, max(self.round, 1))
        if window is None:
            raise RunError(f"client {client} has no data in this round; request only clients in server.present")
        return window

    def arrived(self, client: int, round: int | None = None) -> int:
        """Return how many samples a client has received up to a round, by default the current round."""
        return self._federation.availability.arrived(client, round or max(self.round, 1))

    def broadcast(self) -> Broadcast:
        """Return the model as the broadcast that every client receives."""
        weights = Weights(self.parameters, self.buffers, self.integers, local_bytes=self.local_bytes)
        return Broadcast("model", self.version, weights)

    def auxiliary_network(self, name: str, build: Build, *, fresh: bool = False) -> FlatModel:
        """Return the auxiliary network of this name; see `Server.auxiliary_network`."""
        if not fresh:
            return self.networks.make(name, build)
        with self.rng_scope(f"network {name}"):
            return self.networks.renew(name, build)

    def drop(self, name: str) -> None:
        """Forget the auxiliary network of this name."""
        self.networks.drop(name)

    def replace_model(self, weights: Weights) -> None:
        """Replace the global model; see `Server.replace_model`."""
        if not self.broadcast().value.nbytes:
            allowed = "allowed where no model is sent: the hook evaluated, which returns weights to test and to save"
            raise RunError(f"server, round {self.round}: found a new model, which no client would receive, {allowed}")
        load("model", self.network, weights)
        if not all(bool(vector.isfinite().all()) for vector in self.network.vectors):
            raise RunError(f"server, round {self.round}: found a new model that is not finite, allowed: finite weights")
        copy = self.network.weights()
        self.parameters, self.buffers, self.integers = copy.vectors
        self.version += 1

    def record(self, name: str, value: Tensor | float) -> None:
        """Record a number of this round; see `Participant.record`."""
        self.records[name] = float(value.detach() if isinstance(value, Tensor) else value)

    def record_image(self, name: str, images: Tensor, captions: Sequence[str] | None = None) -> None:
        """Record one picture of this round; see `Server.record_image`."""
        self.pictures[name] = make_picture(name, images, captions)
