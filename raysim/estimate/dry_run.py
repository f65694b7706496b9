"""A run without its training: the real simulation, with clients that compute nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.config.schema import Logging
from raysim.engine.events import RoundDone
from raysim.engine.orders import Order, Reply
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.estimate.dry_host import META, DryHost
from raysim.evaluation.scoring import Chunk, Scores, zero_scores
from raysim.federation.federation import Federation
from raysim.system.errors import convert_to_run_error
from raysim.system.seeding import torch_untouched


@dataclass(frozen=True)
class DryRun:
    """What a run would come to, all clients together.

    `up` and `down` are bytes by method, "model" being the model and its updates. `beginnings` counts the batches of an
    epoch over clients' first phases of a later stage, `evaluations` those of all test sets, `orders` the orders by the
    number of clients that each is for. `unknown` are the methods whose client halves look at values: bytes are an upper
    bound for them, and steps are those of the usual local loop.
    """

    rounds: int
    updates: int
    steps: int
    beginnings: int
    evaluations: int
    orders: Mapping[int, int]
    up: Mapping[str, int]
    down: Mapping[str, int]
    unknown: Sequence[str]


def dry_run(config: Config, federation: Federation) -> DryRun:
    """Go through all rounds of a run, with its real server, schedule, clients and ledger, on tensors without values.

    Raises:
        RunError: a server half looks at values, so that nobody can know before.
    """
    with convert_to_run_error("what is sent depends on what is computed, which nobody knows before"), torch_untouched():
        host = DryHost(config, federation, META)
        runner = DryRunner(host)
        simulation, updates = simulate(config, federation, runner)
    exchange = simulation.exchange
    return DryRun(
        rounds=simulation.server.round,
        updates=updates,
        steps=exchange.steps,
        beginnings=host.beginnings,
        evaluations=runner.evaluations,
        orders=runner.orders,
        up={"model": exchange.traffic.up - host.sent.total(), **host.sent},
        down=exchange.traffic.down_by_method,
        unknown=host.unknown,
    )


def simulate(config: Config, federation: Federation, runner: DryRunner) -> tuple[Simulation, int]:
    """Do all rounds, with a server whose model is the host's; return the simulation and the client updates.

    What follows the last round is left out, as are checkpoints, the server's records and logging: they need values.
    """
    rounds = federation.availability.rounds
    never = config.checkpoint.model_copy(update={"every_rounds": rounds})
    config = config.model_copy(update={"checkpoint": never, "logging": Logging()})
    simulation = Simulation(config, federation, runner, model=runner.host.model)
    vars(simulation.server)["record"] = lambda name, value: None
    done = (event for event in simulation.events() if isinstance(event, RoundDone))
    return simulation, sum(len(event.cohort) for event in islice(done, rounds))


class DryRunner(LocalRunner):
    """A runner on a dry host; see DryRun for what it counts."""

    def __init__(self, host: DryHost) -> None:
        self.host = host
        self.evaluations = 0
        self.orders: Counter[int] = Counter()
        self._trained: set[int] = set()
        self._changed: set[int] = set()

    def begin(self, order: Order, broadcasts: Sequence[Broadcast]) -> Reply:
        """Have every client of the order carry it out, and return the reply."""
        self.orders[len(order.clients)] += 1
        if order.op == "train":
            self._changed.update(order.clients)
        return super().begin(order, broadcasts)

    def evaluate(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Scores:
        """Find no answer right."""
        self.evaluations += 1
        return zero_scores(self.host.federation)

    def evaluate_clients(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Mapping[int, Scores]:
        """Find no answer right, and count the models that have changed, the server's for those that never trained."""
        self._trained |= self._changed
        self.evaluations += len(self._changed) + (len(self._trained) < len(self.host.clients))
        self._changed.clear()
        return dict.fromkeys(self.host.clients, zero_scores(self.host.federation))
