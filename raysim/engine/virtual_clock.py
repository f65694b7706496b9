"""Virtual time: how long a client's work and messages would take, drawn from its speed profile, never measured."""

from __future__ import annotations

import math

from raysim.config import Config
from raysim.config.timing import LogNormal, Pareto, Speeds
from raysim.system import seeding


def slowness(seed: int, client: int, speeds: Speeds) -> float:
    """Return how many times a typical client's time this client takes for the same work."""
    draws = seeding.generator(seed, "speed", client)
    if isinstance(speeds, LogNormal):
        return math.exp(speeds.sigma * float(draws.standard_normal()))
    if isinstance(speeds, Pareto):
        return 1 + float(draws.pareto(speeds.shape))  # NumPy's is the Lomax distribution, which starts at 0
    return 1.0


class Clock:
    """The virtual seconds of every client's work."""

    def __init__(self, config: Config) -> None:
        speeds = config.schedule.speeds
        self._epochs = config.training.local_epochs
        self._bandwidth = config.schedule.bandwidth
        self._per_sample = [
            speeds.seconds_per_sample * slowness(config.seed, client, speeds) for client in range(config.clients.count)
        ]

    def training(self, client: int, samples: int) -> float:
        """Return the seconds of a phase on so many samples, all local epochs together."""
        return self._per_sample[client] * (samples * self._epochs)

    def travel(self, nbytes: int) -> float:
        """Return the seconds that messages of so many bytes are on their way."""
        return 0.0 if self._bandwidth is None else nbytes / self._bandwidth
