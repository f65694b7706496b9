"""Whole runs through Simulation and LocalRunner against NumPy or plain torch, float64; bytes counted by hand."""

import copy
import math

import numpy as np
import pytest
import torch
from softmax_oracle import Softmax, batch_order, local_phase

from raysim.api.messages import Delta
from raysim.engine.collection import ClientUpdate, Collection
from raysim.engine.exact_sum import ExactSum
from raysim.engine.hosted_server import HostedServer
from raysim.engine.replies import Reply
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.system import seeding

SOFTMAX = {"name": "probes:softmax"}


def vector(state):
    return torch.cat([t.reshape(-1) for t in state.values()]).numpy()


def fedavg(config, federation, cohorts, weights):
    """FedAvg in NumPy: w += sum_k p_k (w_k - w), p_k = 1/|S| or n_k/n; returns the models after every round."""
    model = build_model(config, federation.shape, federation.classes)
    w = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
    phases, after = [0] * config.clients.count, []
    for number, cohort in enumerate(cohorts):
        task = number // config.training.rounds_per_task
        deltas, sizes = [], []
        for k in cohort:
            phases[k] += 1
            rows = federation.streams[k].rows[task]
            x, y = federation.dataset.train.x[rows].astype(np.float64), federation.dataset.train.y[rows]
            if federation.tasks[task].pixels is not None:
                x = x[:, federation.tasks[task].pixels]
            order = batch_order(config.seed, k, phases[k], len(y), config.training.local_epochs, 4)
            deltas.append(local_phase(w, x, y, order, config.training.optimizer.lr, 4)[0])
            sizes.append(len(y))
        p = np.full(len(cohort), 1 / len(cohort)) if weights == "uniform" else np.array(sizes) / sum(sizes)
        if cohort:
            w = w + sum(share * delta for share, delta in zip(p, deltas, strict=True))
        after.append(w)
    return after


@pytest.mark.parametrize("together", [None, 2, 3])
@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_a_run_is_fedavg_in_numpy(tiny, simulate, weights, together):
    """Clients of unequal size (Dirichlet), two tasks of two rounds, two epochs; every delta is rounded to 2^-44."""
    config = tiny(
        model=SOFTMAX,
        seed=2,
        aggregation__weights=weights,
        partition={"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False},
        training__local_epochs=2,
        training__vectorise=together,
    )
    federation = build_federation(config)
    sizes = [federation.streams[k].size(0) for k in range(3)]
    assert len(set(sizes)) > 1
    run = simulate(config, federation)
    wanted = fedavg(config, federation, [[0, 1, 2]] * 4, weights)
    np.testing.assert_allclose(vector(run.state), wanted[-1], rtol=0, atol=1e-12)
    assert [r.cohort for r in run.rounds] == [[0, 1, 2]] * 4


def test_the_two_weightings_differ(tiny, simulate):
    more = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 2}
    runs = [simulate(tiny(model=SOFTMAX, aggregation__weights=w, **more)) for w in ("uniform", "samples")]
    assert np.abs(vector(runs[0].state) - vector(runs[1].state)).max() > 1e-4


def test_the_accuracies_are_counted_on_the_models_after_each_task(tiny, simulate):
    config = tiny(model=SOFTMAX)
    federation = build_federation(config)
    run = simulate(config, federation)
    after = fedavg(config, federation, [[0, 1, 2]] * 4, "uniform")
    test = federation.dataset.test

    def accuracy(w, task):
        return Softmax.of(w, 4, 6).right(test.x.astype(np.float64)[:, federation.tasks[task].pixels], test.y) / 20

    assert [r.task_done for r in run.rounds] == [False, True, False, True]
    assert [r.evaluation for r in run.rounds if not r.task_done] == [None, None]
    for number in (1, 3):
        assert run.rounds[number].evaluation == {"domain_il": [accuracy(after[number], task) for task in (0, 1)]}
    start = vector(build_model(config, federation.shape, federation.classes).state_dict())
    assert run.started.evaluation == {"domain_il": [accuracy(start, task) for task in (0, 1)]}


def test_rounds_are_evaluated_where_that_is_asked_for(tiny, simulate):
    run = simulate(tiny(training__rounds_per_task=3, evaluation={"every_rounds": 2}))
    assert [r.evaluation is not None for r in run.rounds] == [False, True, True, True, False, True]
    assert [r.task_done for r in run.rounds] == [False, False, True, False, False, True]
    assert [list(r.tasks) for r in run.rounds] == [[1]] * 3 + [[2]] * 3
    assert [r.round for r in run.rounds] == [1, 2, 3, 4, 5, 6]


def test_partial_participation_trains_the_drawn_clients_only(tiny, simulate):
    """The cohort of round r is the documented draw: (seed, "cohort", r), choice without replacement, sorted."""
    config = tiny(model=SOFTMAX, participation={"count": 2}, seed=4)
    federation = build_federation(config)
    run = simulate(config, federation)
    cohorts = [
        sorted(seeding.generator(4, "cohort", r).choice(3, size=2, replace=False).tolist()) for r in (1, 2, 3, 4)
    ]
    assert [r.cohort for r in run.rounds] == cohorts
    assert len({tuple(c) for c in cohorts}) > 1
    wanted = fedavg(config, federation, cohorts, "uniform")
    np.testing.assert_allclose(vector(run.state), wanted[-1], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("wanted", "size"),
    [({"count": 4}, 4), ({"fraction": 0.4}, 4), ({"fraction": 0.01}, 1), ({"fraction": 0.25}, 2), ({"count": 10}, 10)],
)
def test_every_client_is_drawn_equally_often(tiny, host_of, wanted, size):
    """2000 rounds, 10 clients: binomial with p = size/10, so sd sqrt(2000 p (1 - p)); 5 sigma for each client."""
    config = tiny(clients__count=10, participation=wanted)
    server = HostedServer(config, build_federation(config), host_of(config).model)
    counts = np.zeros(10)
    for server.round in range(1, 2001):
        drawn = server.sample()
        assert len(set(drawn)) == len(drawn) == size
        counts[drawn] += 1
    p = size / 10
    assert np.abs(counts - 2000 * p).max() <= 5 * math.sqrt(2000 * p * (1 - p))


def test_the_cohorts_are_the_same_whatever_the_methods(tiny, simulate):
    """Cohorts, and the tasks, with a method that draws all the time and one that asks three times a round."""
    more = {"participation": {"count": 2}, "training__rounds_per_task": 4}
    plain = simulate(tiny(**more))
    noisy = simulate(tiny(methods={"probes:Noise": {}, "probes:Bystander": {}}, **more))
    assert [r.cohort for r in plain.rounds] == [r.cohort for r in noisy.rounds]
    assert plain.sha256 != noisy.sha256


def without_data(tiny, **more):
    """4 clients with one class each, task 1 {0, 1}, task 2 {2, 3}: two clients have data in each task."""
    return tiny(
        scenario={"kind": "class_incremental", "tasks": 2},
        partition={"kind": "shards", "shards_per_client": 1, "per": "run"},
        clients__count=4,
        model=SOFTMAX,
        **more,
    )


def test_clients_without_data_in_a_task_are_not_asked(tiny, simulate):
    config = without_data(tiny)
    federation = build_federation(config)
    present = [[k for k in range(4) if len(federation.streams[k].rows[t])] for t in (0, 1)]
    assert [len(p) for p in present] == [2, 2]
    assert sorted(present[0] + present[1]) == [0, 1, 2, 3]
    run = simulate(config, federation)
    assert [r.cohort for r in run.rounds] == [present[0]] * 2 + [present[1]] * 2
    wanted = fedavg(config, federation, [r.cohort for r in run.rounds], "uniform")
    np.testing.assert_allclose(vector(run.state), wanted[-1], rtol=0, atol=1e-12)


def test_a_fraction_is_of_the_clients_that_have_data(tiny, simulate):
    """Half of the two that are present is one."""
    run = simulate(without_data(tiny, participation={"fraction": 0.5}))
    assert [len(r.cohort) for r in run.rounds] == [1, 1, 1, 1]


def test_batchnorm_statistics_are_averaged_and_counts_come_from_the_lowest_id(tiny, simulate):
    """Plain torch modules trained by torch.optim on the same batches; their state_dicts averaged by hand.

    20 samples: clients of 7, 7 and 6. Batches of 5: two steps for 7 (5 and 2), one for 6 (its remainder of one sample
    is left out). So num_batches_tracked is 2 after the round: client 0's, neither client 2's nor a mean.
    """
    config = tiny(
        model={"name": "probes:normalised"},
        dataset__train=20,
        training__batch_size=5,
        training__rounds_per_task=1,
        scenario__tasks=1,
    )
    federation = build_federation(config)
    assert [federation.streams[k].size(0) for k in range(3)] == [7, 7, 6]
    run = simulate(config, federation)
    start = build_model(config, federation.shape, federation.classes)
    trained = []
    for k in range(3):
        rows = federation.streams[k].rows[0]
        x = torch.from_numpy(federation.dataset.train.x[rows][:, federation.tasks[0].pixels]).double()
        y = torch.from_numpy(federation.dataset.train.y[rows])
        module = copy.deepcopy(start).train()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, foreach=False)
        for batch in batch_order(0, k, 1, len(y), 1, 5):
            if len(batch) > 1:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(module(x[batch]), y[batch]).backward()
                optimizer.step()
        trained.append(module.state_dict())
    assert [int(s["1.num_batches_tracked"]) for s in trained] == [2, 2, 1]
    assert int(run.state["1.num_batches_tracked"]) == 2
    for name, value in run.state.items():
        if value.is_floating_point():
            mean = sum(state[name] for state in trained) / 3
            assert torch.allclose(value, mean, rtol=0, atol=1e-12), name


def test_integer_buffers_are_those_of_the_lowest_id_in_any_order():
    delta = Delta(torch.ones(2), torch.zeros(0))

    def reply(clients):
        made = Collection(3)
        for k in clients:
            made.take_update(ClientUpdate(k, 1 / 3, "", [("", delta)], torch.tensor([10 * k])))
        return made.reply

    assert reply([4, 2, 7]).integers[1].tolist() == [20]
    for first, second in (([4, 7], [2]), ([2], [7, 4])):
        merged = Reply(3)
        merged.merge(reply(first))
        merged.merge(reply(second))
        assert merged.integers[0] == 2
        assert merged.integers[1].tolist() == [20]
        assert sum(merged.bytes_up.values()) == 3 * (2 * 4 + 8)


def test_bytes_by_hand(tiny, simulate):
    """mlp 6-5-4 with BatchNorm: P = 35 + 10 + 24 = 69, B = 10 float32, I = 1 int64: 4 * 79 + 8 = 324 bytes a model.

    Three clients, all in every round: 972 up and 972 down; the model is new in every round.
    """
    run = simulate(tiny(model__batch_norm=True))
    assert [r.bytes_up for r in run.rounds] == [972] * 4
    assert [r.bytes_down for r in run.rounds] == [972] * 4
    run = simulate(tiny(model__batch_norm=True, participation={"count": 1}))
    assert [r.bytes_up for r in run.rounds] == [324] * 4
    assert [r.bytes_down for r in run.rounds] == [324] * 4


def test_float64_costs_twice(tiny, simulate):
    """Softmax 6 x 4 + 4 = 28 float64: 224 bytes for each of three clients."""
    run = simulate(tiny(model=SOFTMAX))
    assert [(r.bytes_up, r.bytes_down) for r in run.rounds] == [(672, 672)] * 4


def test_the_mean_loss_is_over_the_cohort(tiny, simulate):
    config = tiny(model=SOFTMAX, training__rounds_per_task=1, scenario__tasks=1)
    federation = build_federation(config)
    start = vector(build_model(config, federation.shape, federation.classes).state_dict())
    losses = []
    for k in range(3):
        rows = federation.streams[k].rows[0]
        x = federation.dataset.train.x[rows].astype(np.float64)[:, federation.tasks[0].pixels]
        y = federation.dataset.train.y[rows]
        losses.append(local_phase(start, x, y, batch_order(0, k, 1, len(y), 1, 4), 0.1, 4)[1])
    assert simulate(config, federation).rounds[0].loss == pytest.approx(np.mean(losses), abs=1e-12)


def test_stopping_ends_after_the_round_in_progress(tiny):
    from raysim.engine.runner import LocalRunner
    from raysim.engine.simulation import Simulation
    from raysim.system.seeding import torch_untouched

    config = tiny()
    with torch_untouched():
        federation = build_federation(config)
        simulation = Simulation(config, federation, LocalRunner(config, federation))
        kinds = []
        for event in simulation.events():
            kinds.append(type(event).__name__)
            if len(kinds) == 2:
                simulation.stop()
    assert kinds == ["Started", "RoundDone", "Checkpoint", "Finished"]
    assert event.interrupted


def test_a_run_that_diverges_says_where(tiny, simulate):
    from raysim.system.errors import Diverged

    with pytest.raises(
        Diverged, match=r"client 0 diverged in round 1 \(FedAvg\), in the update of its parameters: found .*lr"
    ) as e:
        simulate(tiny(training__optimizer={"lr": 1e30}))
    assert "\n" not in str(e.value)


def test_a_sum_of_one_host_is_that_of_three(tiny, simulate, host_of, quiet_torch):
    """The same order given to one host, and to hosts of one client each, whose replies are merged backwards."""
    from raysim.engine.orders import Order, RoundInfo, Train

    config = tiny(model__dropout=0.3, model__batch_norm=True)
    info, shares = RoundInfo(1, 0, 0.1), dict.fromkeys(range(3), 1 / 3)
    whole = host_of(config).perform(Order(Train(), (0, 1, 2), shares, 3, info), {})
    merged = Reply(3)
    for k in (2, 0, 1):
        merged.merge(host_of(config).perform(Order(Train(), (k,), shares, 3, info), {}))
    assert isinstance(whole.sums["parameters"], ExactSum)
    for name in ("parameters", "buffers"):
        assert (whole.sums[name].limbs == merged.sums[name].limbs).all()
        assert whole.sums[name].weight == merged.sums[name].weight
    assert whole.means() == merged.means()
    assert whole.bytes_up == merged.bytes_up


def test_what_clients_record_is_a_mean_that_no_order_changes():
    """fsum is exact: (1e16 + 1 - 1e16) / 3; what is not finite gives NaN and no error, infinities of both signs too."""
    values = {0: 1e16, 1: 1.0, 2: -1e16}
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        collected = Collection(3)
        for k in order:
            collected.take_records(k, {"x": values[k], "y": math.inf if k else -math.inf})
        found = collected.reply.means()
        assert found["x"] == 1 / 3
        assert math.isnan(found["y"])
