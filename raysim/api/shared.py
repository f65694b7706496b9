"""State shared by all clients of a process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from raysim.api.messages import Broadcast
from raysim.config.experiment import Training
from raysim.data.pixels import Source
from raysim.federation.federation import CLASSIFICATION
from raysim.federation.stream import Stream
from raysim.models.flat import FlatModel
from raysim.objectives import Objective


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
    kept_out: Callable[[Stream, int], Tensor | None]
    """Returns a mask (bool [classes]) of the classes that training excludes in a window of a stream, or None."""
    unlabelled: Source | None = None
    """The second dataset, which has no labels: `dataset.unlabelled`. None if the run has none."""
    parts: Sequence[npt.NDArray[np.int32]] = ()
    """For each client: its rows of `unlabelled`."""
    objective: Objective = CLASSIFICATION
    networks: dict[str, nn.Module] = field(default_factory=dict)
    """The auxiliary networks, by name, with their initial weights; see `Client.make`."""
