"""A run without its training: the real simulation, with clients that compute nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from raysim.api.messages import Post
from raysim.api.method import overrides
from raysim.config import Config
from raysim.engine.compatibility import make_methods
from raysim.engine.events import RoundDone
from raysim.engine.local_runner import LocalRunner
from raysim.engine.simulation import Simulation
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
        updates = dry_rounds(simulation)
    exchange = simulation.exchange
    halves = {name: methods[name].Client for name in host.unknown}
    return DryRun(
        rounds=simulation.server.round,
        updates=updates,
        steps=exchange.steps,
        beginnings=host.beginnings,
        evaluations=runner.evaluations,
        up={**host.sent, "model": exchange.traffic.up - host.sent.total()},
        down=exchange.traffic.down_by_method,
        unknown_terms=[name for name in halves if methods[name].replies],
        unknown_steps=[name for name, half in halves.items() if overrides(half, "samples") or overrides(half, "train")],
    )


def make_dry_simulation(config: Config, federation: Federation, runner: DryRunner) -> Simulation:
    """Return a simulation whose server has its model on the host's device, and keeps no checkpoint and no record."""
    never = config.checkpoint.model_copy(update={"every_rounds": federation.availability.rounds})
    simulation = Simulation(config.model_copy(update={"checkpoint": never}), federation, runner)
    server, device = simulation.server, runner.host.model.device
    server.parameters, server.buffers, server.integers = (
        part.to(device) for part in (server.parameters, server.buffers, server.integers)
    )
    vars(server)["record"] = lambda name, value: None  # it may have no value
    return simulation


def dry_rounds(simulation: Simulation) -> int:
    """Do all rounds, but not what follows the last, as the final model has no values; return the client updates."""
    rounds = simulation.federation.availability.rounds
    done = (event for event in simulation.events() if isinstance(event, RoundDone))
    return sum(len(event.cohort) for event in islice(done, rounds))


class DryRunner(LocalRunner):
    """A runner on a dry host; `evaluations` counts those of all test sets."""

    def __init__(self, host: DryHost) -> None:
        self.host = host
        self.evaluations = 0

    def evaluate(self, parts: Sequence[Chunk], posts: Sequence[Post]) -> Scores:
        """Find no answer right."""
        self.evaluations += 1
        return zero_scores(self.host.federation)
