"""A dry run says before a run what it will send and how many steps it will take, whoever takes part when."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from raysim.algorithms.scaffold import Scaffold
from raysim.api import ClientHalf, MemoryUse, Method, Request, ServerHalf, Term
from raysim.config.lookup import table
from raysim.engine.compatibility import check_methods
from raysim.estimate.dry_run import dry_run
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError, RunError

FEDBUFF = {
    "kind": "asynchronous",
    "concurrency": 3,
    "buffer_size": 2,
    "max_staleness": 1,
    "bandwidth": 1000.0,
    "speeds": {"kind": "log_normal"},
}
UNEVEN = {
    "clients__count": 5,
    "dataset__train": 61,
    "partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 1},
}
WITHOUT_BARRIER = {"fed_a_gem": {"reference": "with_update"}}
CHEAP = {"re_fed": {"epochs": 1, "importance": "random"}}
SCENARIOS = {
    "two_epochs_of_uneven_clients": UNEVEN | {"training__local_epochs": 2},
    "samples_that_batch_norm_cannot_take": UNEVEN | {"model__batch_norm": True, "memory__capacity": 1},
    "drop_outs": UNEVEN | {"clients__dropout": 0.4, "participation": {"count": 3}, "aggregation__weights": "samples"},
    "arrivals_and_departures": UNEVEN
    | {"clients__arrive": {"first": 3, "per_task": 2}, "clients__leave": [{"round": 3, "clients": [0]}]},
    "a_memory_per_task": {"memory": {"capacity": 2, "per": "task"}, "participation": {"count": 1}},
    "tasks_at_other_times": UNEVEN
    | {
        "scenario__boundaries": {"jittered": {"rounds": 1}},
        "scenario__order": "per_client",
        "training__rounds_per_task": 4,
    },
    "one_pass": {"scenario__online": True},
    "windows": UNEVEN
    | {
        "scenario__boundaries": {"asynchronous": {"window": 7, "rounds_per_window": 2}},
        "training__rounds_per_task": None,
    },
    "fedbuff": UNEVEN | {"schedule": FEDBUFF, "clients__dropout": 0.2},
    "fedbuff_and_windows": UNEVEN
    | {
        "schedule": FEDBUFF,
        "scenario__boundaries": {"asynchronous": {"window": 7, "rounds_per_window": 2}},
        "training__rounds_per_task": None,
    },
}


def counted(run):
    exchange = run.simulation.exchange
    return exchange.traffic.up, exchange.traffic.down, exchange.steps, sum(len(done.cohort) for done in run.rounds)


def run_dry(config):
    return dry_run(config, build_federation(config))


def foreseen(config):
    found = run_dry(config)
    assert found.unknown == []
    return sum(found.up.values()), sum(found.down.values()), found.steps, found.updates


def knobs(name, scenario):
    asynchronous = "schedule" in scenario
    return {name: (WITHOUT_BARRIER if asynchronous else CHEAP).get(name, CHEAP.get(name, {}))}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_method_sends_and_steps_as_foreseen(tiny, simulate, scenario):
    """Every method alone, where it is not refused, and FedAvg; at least six of them in any scenario."""
    tried = []
    for name in ("", *table("method")):
        methods = knobs(name, SCENARIOS[scenario]) if name else {}
        config = tiny(seed=5, methods=methods, **SCENARIOS[scenario])
        try:
            check_methods(config)
        except ConfigError:
            continue
        run = simulate(config)
        assert foreseen(config) == counted(run), name
        tried.append(name)
    assert len(tried) >= 6


@pytest.mark.parametrize(
    "knobs",
    [
        # 16 of the cache and the 12 new samples together: 4 are cached, in a memory that holds what Re-Fed puts there
        {"memory__capacity": 16, "methods": {"re_fed": CHEAP["re_fed"] | {"budget": "total"}, "fed_a_gem": {}}},
        # 12 cached in task 2; 20 of those and 12 more in task 3
        {"memory__capacity": 20, "methods": CHEAP, "scenario__tasks": 3},
        {"methods": {"fed_a_gem": {"every": 2, "sample_size": 1}}, "model__batch_norm": True},
        {"methods": {"joint": {}, "fed_a_gem": {}}, "participation": {"count": 1}},
        {"methods": {"c_flag": {"alpha": 0.01, "sample_size": 1}}, "model__batch_norm": True},
        # one entry for each task: BatchNorm takes two, from task 2 on
        {"methods": {"fed_a_gem": {}}, "model__batch_norm": True, "memory": {"capacity": 1, "per": "task"}},
        # clients with 2, 1 and 1 samples: BatchNorm leaves the last two without a batch
        {"methods": {"c_flag": {"alpha": 0.01}}, "model__batch_norm": True, "dataset__train": 4},
        {"methods": {"fedtrack": {}}, "model__batch_norm": True, "dataset__train": 4},
    ],
)
def test_so_do_methods_with_other_knobs_and_in_company(tiny, simulate, knobs):
    config = tiny(seed=5, **knobs)
    assert foreseen(config) == counted(simulate(config))


def test_figures_by_hand(tiny):
    """3 clients, 12 samples each: 2 tasks x 2 rounds x 3 clients x 3 batches = 36 steps.

    The MLP 6-5-4 has 59 numbers: 236 bytes. A client sends 236 for its update and as many for its variate's change,
    and gets the model and c: 4 rounds x 3 clients x 236 = 2,832 each.
    """
    found = run_dry(tiny(methods={"scaffold": {}}))
    assert (found.rounds, found.updates, found.steps) == (4, 12, 36)
    assert found.up == found.down == {"model": 2832, "scaffold": 2832}
    # of task 2, whose first round follows task 1: 3 clients x 3 batches; before round 1 and after each task
    assert (found.beginnings, found.evaluations) == (9, 3)


@pytest.mark.parametrize(("clients", "calls"), [({}, 4), ({"dataset__train": 37}, 8)])
def test_clients_of_a_kind_do_once_what_comes_again(tiny, simulate, monkeypatch, clients, calls):
    """3 clients x 2 tasks x 10 rounds are 60 phases, of four sorts: the first of each task, and those that follow it.

    A client with 13 samples beside two with 12 is of another kind.
    """
    finished = []
    finish = Scaffold.Client.finish
    config = tiny(methods={"scaffold": {}}, training__rounds_per_task=10, **clients)
    ran = counted(simulate(config))
    monkeypatch.setattr(Scaffold.Client, "finish", lambda *given: finished.append(0) or finish(*given))
    found = run_dry(config)
    assert (sum(found.up.values()), sum(found.down.values()), found.steps, found.updates) == ran
    assert len(finished) == calls


@dataclass(frozen=True, kw_only=True)
class Picky(Method):
    """Trains on two samples, and sends three numbers with every second client's update."""

    replies: ClassVar = {"three": "mean"}

    class Client(ClientHalf):
        def samples(self, client):
            return client.arrived[:2]

        def finish(self, client, delta):
            return delta, {"three": Term(torch.zeros(3))} if client.id % 2 else {}


@dataclass(frozen=True, kw_only=True)
class Summing(Method):
    """Sends the mean of several gradients on its memory, and from the second phase on what it sent before as well."""

    memory: ClassVar = MemoryUse()
    replies: ClassVar = {"new": "mean", "old": "mean", "entries": "by_client"}

    class Client(ClientHalf):
        last = None

        def finish(self, client, delta):
            x, y = client.show(client.memory.entries().positions)
            losses = [client.loss(client.model(x), y) for _ in range(3)]
            new = sum(client.model.gradient_of(loss) for loss in losses)
            old = {} if self.last is None else {"old": Term(self.last)}
            self.last = new
            return delta, {"new": Term(new), "entries": Term(torch.zeros(len(y))), **old}


@dataclass(frozen=True, kw_only=True)
class Asking(Method):
    """Asks for the model's norm where it is large."""

    replies: ClassVar = {"norm": "sum"}

    class Client(ClientHalf):
        def norm(self, client, message):
            norm = client.model.parameters.norm()
            return {"norm": Term(norm)} if norm.item() > 0.1 else {}

    class Server(ServerHalf):
        def prepare(self, server):
            yield Request("norm")


@pytest.mark.parametrize(
    "knobs",
    [
        {"methods": {f"{__name__}:Picky": {}}},
        {"methods": {f"{__name__}:Summing": {}}, "memory__capacity": 14, **UNEVEN},
        {"methods": {f"{__name__}:Summing": {}, "fed_a_gem": {}}, "training__local_epochs": 2},
    ],
)
def test_methods_of_the_users_own_say_nothing_and_are_counted(tiny, simulate, knobs):
    config = tiny(seed=5, **knobs)
    run = simulate(config)
    assert foreseen(config) == counted(run)


def test_what_a_client_half_decides_by_values_is_bounded_and_named(tiny, simulate):
    """The model's length, 59, stands for its term, and all samples for its choice: 4 rounds x 3 clients x 236 bytes."""
    config = tiny(methods={"probes:Watchful": {}, "scaffold": {}})
    found, run = run_dry(config), counted(simulate(config))
    assert found.up == {"Watchful": 2832, "scaffold": 2832, "model": 2832}
    assert found.unknown == ["Watchful"]
    assert sum(found.up.values()) >= run[0]
    assert found.steps >= run[2]


def test_an_op_that_looks_at_values_is_bounded_too(tiny, simulate):
    """Asked in each of 4 rounds, 3 clients may send 59 numbers; in their updates they send nothing more."""
    config = tiny(methods={f"{__name__}:Asking": {}})
    found = run_dry(config)
    assert (found.up["Asking"], found.unknown) == (2832, ["Asking"])
    assert sum(found.up.values()) >= counted(simulate(config))[0]


def test_what_a_server_half_decides_by_values_is_refused_in_one_line(tiny):
    with pytest.raises(RunError, match="nobody knows before") as found:
        run_dry(tiny(methods={"probes:Curious": {}}))
    assert "\n" not in str(found.value)
