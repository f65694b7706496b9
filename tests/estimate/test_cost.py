"""The cost of a run is known before: what it sends and how many steps it takes, whoever takes part when.

Costs that may depend on computed values are marked as unsure. All others are exact.
"""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from costs import cost_of
from small_runs import config_keys, hyperparameters, small_run

from raysim.algorithms.scaffold import Scaffold
from raysim.api import ClientHalf, Delta, MemoryUse, Method, Term
from raysim.config.lookup import table
from raysim.engine.compatibility import check_methods
from raysim.estimate.cost import foresee, plan_rehearsals
from raysim.federation.federation import build_federation
from raysim.models.building import check_model
from raysim.system.children import in_turn
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


def check_cost(config, run):
    """Hold a cost against a run: equal where it is sure, within a factor of two elsewhere. Return what is sure."""
    cost, counts = cost_of(config), counted(run)
    foreseen = (sum(cost.up.values()), sum(cost.down.values()), cost.steps, cost.updates)
    sure = (not cost.unsure_bytes, not cost.unsure_bytes, not cost.unsure_steps, not cost.unsure_updates)
    for one, other, is_sure in zip(foreseen, counts, sure, strict=True):
        assert one == (other if is_sure else pytest.approx(other, rel=1.0)), config.methods
    return {name for name, is_sure in (("bytes", sure[0]), ("steps", sure[2]), ("updates", sure[3])) if is_sure}


def knobs(name, scenario):
    asynchronous = "schedule" in scenario
    cheap = CHEAP.get(name) or hyperparameters(name)
    return {name: WITHOUT_BARRIER.get(name, cheap) if asynchronous else cheap}


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.soak)])
def test_every_method_sends_and_steps_as_foreseen(tiny, simulate, scenario, every):
    """Every method alone, where it is not refused, and FedAvg.

    The fast tests run each method in one of the ten scenarios.
    """
    sure = {}
    first = [*SCENARIOS].index(scenario) % every
    for name in ("", *sorted(table("method"))[first::every]):
        methods = knobs(name, SCENARIOS[scenario]) if name else {}
        config = tiny(seed=5, methods=methods, **SCENARIOS[scenario], **config_keys(name))
        try:
            check_methods(config)
        except ConfigError:
            continue
        sure[name] = check_cost(config, simulate(config))
    assert len(sure) >= (6 if every == 1 else 2)
    assert sure[""] == {"bytes", "steps", "updates"}


def test_bytes_after_a_round_without_clients_are_unsure(tiny, simulate):
    """The only client of each of the first two rounds drops out. Fed-A-GEM's server then has no gradient to send."""
    config = tiny(methods={"fed_a_gem": {}}, participation={"count": 1}, clients={"count": 5, "dropout": 0.5})
    run = simulate(config)
    assert [len(done.cohort) for done in run.rounds] == [0, 0, 1, 1]
    assert check_cost(config, run) == {"updates", "steps"}


@pytest.mark.parametrize("participation", [{}, pytest.param({"count": 2}, marks=pytest.mark.soak)])
def test_bytes_and_steps_are_exact_unless_a_method_says_why_not(tiny, participation):
    """Steps are unsure of methods that train on cached samples, whose number they decide, or on another dataset.

    Bytes are unsure if clients take part in some rounds only, and a client sends a term only after it took part.
    """
    costs = {}
    for name in table("method"):
        keys = {"methods": {name: hyperparameters(name)}, **config_keys(name)}
        costs[name] = cost_of(tiny(participation=participation, **keys))
    assert {name for name, cost in costs.items() if cost.unsure_steps} == {*filter(declares("unsure_steps"), costs)}
    assert not any(cost.unsure_updates for cost in costs.values())
    unsure = {*filter(declares("unsure_bytes"), costs)} if participation else set()
    assert {name for name, cost in costs.items() if cost.unsure_bytes} == unsure


def declares(fact):
    """A function: whether a method's small run declares this."""
    return lambda name: small_run(name).get(fact, False)


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
    check_cost(config, simulate(config))


def test_figures_by_hand(tiny):
    """3 clients, 12 samples each: 2 tasks x 2 rounds x 3 clients x 3 batches = 36 steps.

    The MLP 6-5-4 has 59 numbers: 236 bytes. A client sends 236 for its update and as many for its variate's change,
    and gets the model and c: 4 rounds x 3 clients x 236 = 2,832 each.
    """
    found = cost_of(tiny(methods={"scaffold": {}}))
    assert (found.rounds, found.updates, found.steps) == (4, 12, 36)
    assert found.up == found.down == {"model": 2832, "scaffold": 2832}
    # of task 2, whose first round follows task 1: 3 clients x 3 batches; before round 1 and after each task
    assert (found.beginnings, found.evaluations) == (9, 3)


@pytest.mark.parametrize("rounds", [2, 50])
def test_a_rehearsal_is_as_long_for_a_long_run(tiny, monkeypatch, rounds):
    """With one client, a rehearsal of 2 and 3 rounds of the 2 tasks, and one of 2 of each: 9 local trainings."""
    finished = []
    finish = Scaffold.Client.finish
    monkeypatch.setattr(Scaffold.Client, "finish", lambda *given: finished.append(0) or finish(*given))
    cost = cost_of(tiny(methods={"scaffold": {}}, training__rounds_per_task=rounds))
    assert cost.updates == 2 * rounds * 3
    assert len(finished) == 9


@pytest.mark.parametrize("tasks", [1, 2, 3])
@pytest.mark.parametrize("every", [2, 3, 4, 5, 7, 9, 20])
def test_messages_of_every_kth_round_are_about(tiny, simulate, tasks, every):
    """Rounds of a kind differ in a rehearsal, or the message never comes there."""
    config = tiny(methods={"fed_a_gem": {"every": every}}, scenario__tasks=tasks, training__rounds_per_task=5)
    assert check_cost(config, simulate(config)) == {"steps", "updates"}


def test_a_rehearsal_moves_nothing(tiny):
    """The model is the run's, and torch's generator the caller's."""
    config = tiny(model__dropout=0.5, model__batch_norm=True, methods={"gpm": {}})
    federation = build_federation(config)
    model = check_model(config, federation.shape, federation.classes)
    weights, generator = model.weights(), torch.get_rng_state()
    foresee(config, federation, model, in_turn(plan_rehearsals(config, federation, model)))
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(map(torch.equal, vars(model.weights()).values(), list(vars(weights).values())[:3]))


@dataclass(frozen=True, kw_only=True)
class Picky(Method):
    """Trains on eight samples, and sends three numbers with every second client's update."""

    replies: ClassVar = {"three": "mean"}

    class Client(ClientHalf):
        def samples(self, client):
            return client.arrived[:8]

        def finish(self, client, delta):
            return delta, {"three": Term(torch.zeros(3))} if client.id % 2 else {}


class Idle(Method):
    """Takes no step."""

    class Client(ClientHalf):
        def train(self, client):
            model = client.model
            return Delta(torch.zeros_like(model.parameters), torch.zeros_like(model.buffers))


@dataclass(frozen=True, kw_only=True)
class Summing(Method):
    """Sends the mean of several gradients on its memory, and from the second phase on what it sent before as well."""

    memory: ClassVar = MemoryUse()
    replies: ClassVar = {"new": "mean", "old": "mean", "entries": "by_client"}

    class Client(ClientHalf):
        last = None

        def finish(self, client, delta):
            x, y = client.samples(client.memory.entries().positions)
            losses = [client.loss(client.model(x), y) for _ in range(3)]
            new = sum(client.model.gradient_of(loss) for loss in losses)
            old = {} if self.last is None else {"old": Term(self.last)}
            self.last = new
            return delta, {"new": Term(new), "entries": Term(torch.zeros(len(y))), **old}


@pytest.mark.parametrize(
    "knobs",
    [
        {"methods": {f"{__name__}:Picky": {}}},
        {"methods": {f"{__name__}:Summing": {}}, "memory__capacity": 14, **UNEVEN},
        {"methods": {f"{__name__}:Summing": {}, "fed_a_gem": {}}, "training__local_epochs": 2},
        {"methods": {"probes:Watchful": {}, "scaffold": {}}},
    ],
)
def test_costs_of_user_defined_methods_are_unsure(tiny, simulate, knobs):
    """They may look at values and at who a client is, so bytes and steps are about what the rehearsed client showed."""
    config = tiny(seed=5, **knobs)
    assert check_cost(config, simulate(config)) == {"updates"}


def test_a_loop_without_steps_is_foreseen(tiny):
    cost = cost_of(tiny(methods={f"{__name__}:Idle": {}}))
    assert (cost.steps, cost.updates) == (0, 12)


def test_updates_are_unsure_if_a_user_defined_method_selects(tiny, simulate):
    config = tiny(methods={"probes:Curious": {}})
    assert check_cost(config, simulate(config)) == set()


def test_what_fails_in_a_rehearsal_is_an_error_in_one_line(tiny):
    with pytest.raises(RunError, match=r"ValueError: no, way.*it failed in a rehearsal") as found:
        cost_of(tiny(methods={"probes:Failing": {}}))
    assert "\n" not in str(found.value)
