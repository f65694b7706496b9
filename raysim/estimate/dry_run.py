"""A run without its training: the real simulation, with clients that compute nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from raysim.api.messages import Post
from raysim.api.method import overrides
from raysim.config import Config
from raysim.engine.compatibility import make_methods
from raysim.engine.events import RoundDone
from raysim.engine.local_runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.engine.traffic import Traffic
from raysim.estimate.dry_host import DryHost
from raysim.evaluation.scoring import Chunk, Scores, zero_scores
from raysim.federation.federation import Federation
from raysim.system.errors import convert_to_run_error
from raysim.system.seeding import torch_untouched

META = torch.device("meta")  # its tensors have a shape and no values


@dataclass(frozen=True)
class DryRun:
    """What a run would come to, all clients together.

    `up` and `down` are bytes by method, "model" being the model and its updates. `beginnings` counts the batches of an
    epoch over clients' first phases of a later stage, `evaluations` those of all test sets. `unknown_terms` are the
    methods of which nobody knows before what their clients send, so that `up` is an upper bound; `unknown_steps` those
    of which nobody knows what an epoch runs over, so that `steps` is a guess.
    """

    rounds: int
    updates: int
    steps: int
    beginnings: int
    evaluations: int
    up: Mapping[str, int]
    down: Mapping[str, int]
    unknown_terms: Sequence[str]
    unknown_steps: Sequence[str]

    @property
    def bytes_up(self) -> int:
        """Bytes from the clients to the server."""
        return sum(self.up.values())

    @property
    def bytes_down(self) -> int:
        """Bytes from the server to the clients."""
        return sum(self.down.values())


def dry_run(config: Config, federation: Federation) -> DryRun:
    """Go through all rounds of a run, with its real server, schedule, clients and ledger, on tensors without values.

    Raises:
        RunError: a server half looks at values, so that nobody can know before.
    """
    methods = make_methods(config)
    with convert_to_run_error("what is sent depends on what is computed, which nobody knows before"), torch_untouched():
        host = DryHost(config, federation, META)
        runner = DryRunner(host)
        simulation = make_dry_simulation(config, federation, runner)
        traffic = simulation.exchange.traffic = ItemisedTraffic(methods)
        updates = sum(len(done.cohort) for done in dry_rounds(simulation))
    halves = {name: methods[name].Client for name in host.unknown}
    return DryRun(
        rounds=simulation.server.round,
        updates=updates,
        steps=simulation.exchange.steps,
        beginnings=host.beginnings,
        evaluations=runner.evaluations,
        up={**host.sent, "model": traffic.up - host.sent.total()},
        down=traffic.items,
        unknown_terms=[name for name in halves if methods[name].replies],
        unknown_steps=[name for name, half in halves.items() if overrides(half, "samples") or overrides(half, "train")],
    )


def make_dry_simulation(config: Config, federation: Federation, runner: DryRunner) -> Simulation:
    """Return a simulation whose server has its model on the host's device, and keeps no checkpoint and no record."""
    never = config.checkpoint.model_copy(update={"every_rounds": federation.availability.rounds})
    simulation = Simulation(config.model_copy(update={"checkpoint": never}), federation, runner)
    server, device = simulation.server, runner.host.model.device
    server.parameters, server.buffers = server.parameters.to(device), server.buffers.to(device)
    server.integers = server.integers.to(device)
    vars(server)["record"] = _ignore  # a record of what has no value
    return simulation


def dry_rounds(simulation: Simulation) -> Iterator[RoundDone]:
    """Yield the rounds of a simulation, and leave out its end: the final model has no values."""
    for event in simulation.events():
        if isinstance(event, RoundDone):
            yield event
            if event.round == simulation.federation.availability.rounds:
                return


def _ignore(name: str, value: object) -> None:
    pass


class DryRunner(LocalRunner):
    """A runner on a dry host; `evaluations` counts those of all test sets."""

    def __init__(self, host: DryHost) -> None:
        self.host = host
        self.evaluations = 0

    def evaluate(self, parts: Sequence[Chunk], posts: Sequence[Post]) -> Scores:
        """Find no answer right."""
        self.evaluations += 1
        return zero_scores(self.host.federation)


class ItemisedTraffic(Traffic):
    """Counts by method too: a post carries its method's name, and mail to a training phase is a mapping from them."""

    def __init__(self, methods: Iterable[str]) -> None:
        super().__init__()
        self.items: Counter[str] = Counter()
        self._methods = set(methods)

    def count_sent(self, clients: Sequence[int], mail: Any, posts: Iterable[Post]) -> None:
        """Count an order on its way to these clients, item by item."""
        letters = mail if isinstance(mail, Mapping) and mail.keys() <= self._methods else {"other": mail}
        for name, letter in letters.items():
            self._count(name, clients, letter, ())
        for post in posts:
            self._count(post.name.partition(".")[0], clients, None, [post])

    def _count(self, name: str, clients: Sequence[int], mail: Any, posts: Sequence[Post]) -> None:
        before = self.down
        super().count_sent(clients, mail, posts)
        if self.down > before:
            self.items[name] += self.down - before
