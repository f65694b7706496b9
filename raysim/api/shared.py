"""State shared by all clients of a process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from raysim.api.messages import Broadcast
from raysim.config.experiment import Training
from raysim.data.pixels import Source
from raysim.federation.federation import CLASSIFICATION
from raysim.federation.stream import Stream
from raysim.models.flat import FlatModel
from raysim.objectives import Objective
from raysim.system.device import to_device


@dataclass(frozen=True)
class Shared:
    """State shared by all clients of a process: one model instance, the broadcasts, and the run's settings."""

    model: FlatModel
    broadcasts: Mapping[str, Broadcast]
    """The newest version of each broadcast, by name."""
    seed: int
    training: Training
    """The config's block `training`."""
    deterministic: bool
    """The config's `resources.deterministic`."""
    classes: int
    """The number of the model's outputs."""
    kept_out: Callable[[Stream, int], Tensor | None]
    """Returns a mask (bool [classes]) of the classes that training excludes in a window of a stream, or None."""
    unlabelled: Source
    """The samples without labels. Those of the training split if the run has none."""
    unlabelled_streams: Sequence[Stream] = ()
    """For each client: its stream of samples without labels. Empty if the run has none."""
    objective: Objective = CLASSIFICATION
    networks: dict[str, nn.Module] = field(default_factory=dict)
    """The auxiliary networks, by name, with their initial weights; see `Client.auxiliary_network`."""

    def value_of(self, broadcast: str) -> Any:
        """Return the value of a broadcast. Raises KeyError: see `Client.from_server`."""
        if broadcast not in self.broadcasts:
            allowed = f"allowed: what the server has sent, {', '.join(self.broadcasts)}"
            raise KeyError(f"from_server: found {broadcast!r:.60}, {allowed}")
        return self.broadcasts[broadcast].value

    def unlabelled_in(self, client: int, window: int) -> Tensor:
        """Return the positions (int64 [n]) of a client's samples without labels in a window.

        With `dataset.label_rate` they arrive in the client's windows. A second dataset is in one window for all.
        """
        stream = self.unlabelled_streams[client]
        window = min(max(window, 0), stream.windows - 1)
        return stream.span(window, window + 1)

    def fetch_unlabelled(self, client: int, positions: Tensor) -> Tensor:
        """Return a client's samples without labels at these positions, as its tasks show them: x [n, ...]."""
        rows, task = self.unlabelled_streams[client].locate(positions)
        device = self.unlabelled.device
        return self.unlabelled.fetch(to_device(rows, device), to_device(task, device))
