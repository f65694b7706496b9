"""SCAFFOLD, option II (Karimireddy et al., ICML 2020, arXiv 1910.06378): its equations 3 to 5 in float64."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from softmax_oracle import Softmax, batch_order
from torch import nn

from raysim.algorithms.scaffold import Scaffold
from raysim.api.messages import Delta
from raysim.engine.compatibility import check_methods
from raysim.federation.availability import plan_availability
from raysim.federation.federation import build_federation
from raysim.federation.stream import Stream
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

SOFTMAX = {"name": "probes:softmax"}
SCAFFOLD = {"scaffold": {}}
UNEVEN = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 2}


def samples(federation, client, task):
    """A client's samples of a task, x in float64."""
    rows, data = federation.streams[client].rows[task], federation.dataset.train
    return data.x[rows].astype(np.float64)[:, federation.tasks[task].pixels], data.y[rows]


def dealt(config, federation, streams):
    """The same data dealt out otherwise."""
    return dataclasses.replace(federation, streams=streams, availability=plan_availability(config, streams))


def variates(run):
    """The server's c, and c_i of every client."""
    own = [client.halves["scaffold"].variate for client in run.simulation.runner.host.clients.values()]
    zero = np.zeros(len(run.simulation.server.parameters))
    return run.simulation.exchange.halves["scaffold"].variate.numpy(), [zero if v is None else v.numpy() for v in own]


def parameters(run):
    return run.simulation.server.parameters.numpy()


def option_ii(config, federation, cohorts):
    """Algorithm 1 in NumPy: x, c and all c_i after the last round; every phase has its own rate."""
    module = build_model(config, federation.shape, federation.classes)
    x = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    training, knobs = config.training, config.methods["scaffold"]
    n = config.clients.count
    c, c_i, phases = np.zeros_like(x), [np.zeros_like(x)] * n, [0] * n
    for number, cohort in enumerate(cohorts):
        task = number // training.rounds_per_task
        lr = training.optimizer.lr * training.lr_decay.per_round ** (number % training.rounds_per_task)
        moves, changes = [], []
        for i in cohort:
            phases[i] += 1
            data, labels = samples(federation, i, task)
            y, k = x, 0
            for batch in batch_order(config.seed, i, phases[i], len(labels), training.local_epochs, 4):
                gradient = Softmax.of(y, 4, 6).loss_and_gradient(data[batch], labels[batch])[1]
                y, k = y - lr * (gradient - c_i[i] + c), k + 1
            new = c_i[i] - c + (x - y) / (k * lr)
            moves.append(y - x)
            changes.append(new - c_i[i])
            c_i[i] = new
        x = x + knobs["global_rate"] * np.mean(moves, axis=0)
        c = c + len(cohort) / n * np.mean(changes, axis=0)
    return x, c, c_i


@pytest.mark.parametrize("count", [3, 2, 1])
def test_a_run_is_option_ii_in_numpy(tiny, simulate, count):
    """Unequal clients with ragged batches, so that K differs, two epochs, a rate that falls every round, two tasks."""
    config = tiny(
        model=SOFTMAX,
        **UNEVEN,
        participation={"count": count},
        training__rounds_per_task=4,
        training__local_epochs=2,
        training__lr_decay={"per_round": 0.8},
        methods={"scaffold": {"global_rate": 0.6}},
    )
    federation = build_federation(config)
    assert len({stream.size(0) for stream in federation.streams}) > 1
    run = simulate(config, federation)
    x, c, c_i = option_ii(config, federation, [r.cohort for r in run.rounds])
    np.testing.assert_allclose(parameters(run), x, rtol=0, atol=1e-11)
    np.testing.assert_allclose(variates(run)[0], c, rtol=0, atol=1e-11)
    np.testing.assert_allclose(variates(run)[1], c_i, rtol=0, atol=1e-11)
    assert np.abs(c).max() > 1e-2


@pytest.mark.parametrize("model", [SOFTMAX, {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}])
def test_the_first_round_is_fedavg_bit_for_bit(tiny, simulate, model):
    """c = c_i = 0; the second round is not."""
    more = {"model": model, **UNEVEN, "scenario__tasks": 1, "training__local_epochs": 2}
    for rounds, same in ((1, True), (2, False)):
        runs = [simulate(tiny(methods=m, training__rounds_per_task=rounds, **more)).sha256 for m in ({}, SCAFFOLD)]
        assert (runs[0] == runs[1]) == same


def test_identical_clients_with_full_batches_are_fedavg(tiny, simulate):
    """All c_i are c then, so that no step is corrected."""
    training = {"rounds_per_task": 4, "batch_size": 12, "local_epochs": 3, "optimizer": {"lr": 0.5}}
    more = {"model": SOFTMAX, "training": training}
    plain, corrected = tiny(**more), tiny(methods=SCAFFOLD, **more)
    federation = build_federation(plain)
    alike = dealt(plain, federation, federation.streams[:1] * 3)
    runs = [parameters(simulate(config, alike)) for config in (plain, corrected)]
    np.testing.assert_allclose(*runs, rtol=0, atol=1e-12)
    runs = [parameters(simulate(config, federation)) for config in (plain, corrected)]
    assert np.abs(np.subtract(*runs)).max() > 1e-3  # unlike clients are corrected


def test_one_client_alone_is_sgd(tiny, simulate):
    """c = c_1, mini-batches or not."""
    one = {"model": SOFTMAX, "clients__count": 1, "training__local_epochs": 2}
    runs = [parameters(simulate(tiny(methods=m, **one))) for m in ({}, SCAFFOLD)]
    np.testing.assert_allclose(*runs, rtol=0, atol=1e-12)


def test_with_one_step_everyone_takes_part_in_gradient_descent(tiny, simulate):
    """K = 1: c_i+ = c_i - c + (g_i - c_i + c) = g_i(x), and x moves by -lr mean(g_i - c_i + c) = -lr mean g_i, as in

    FedAvg; with part of the clients it does not, where c_i and c differ.
    """
    one_step = {"model": SOFTMAX, "training__batch_size": 12, "training__rounds_per_task": 3}
    for count, same in ((3, True), (1, False)):
        runs = [simulate(tiny(methods=m, participation={"count": count}, **one_step)) for m in ({}, SCAFFOLD)]
        assert (np.abs(parameters(runs[0]) - parameters(runs[1])).max() < 1e-12) == same
    config = tiny(methods=SCAFFOLD, scenario__tasks=1, **{**one_step, "training__rounds_per_task": 1})
    federation = build_federation(config)
    start = build_model(config, federation.shape, federation.classes)
    x = torch.cat([p.detach().reshape(-1) for p in start.parameters()]).numpy()
    gradients = [Softmax.of(x, 4, 6).loss_and_gradient(*samples(federation, i, 0))[1] for i in range(3)]
    np.testing.assert_allclose(variates(simulate(config, federation))[1], gradients, rtol=0, atol=1e-13)


@pytest.mark.parametrize("count", [3, 2, 1])
def test_c_is_the_mean_of_all_variates(tiny, simulate, count):
    """Whoever took part: N c moves by sum_S (c_i+ - c_i), from 0; who never did has 0. Rounded to 2^-76 each."""
    run = simulate(tiny(model=SOFTMAX, **UNEVEN, participation={"count": count}, methods=SCAFFOLD))
    c, c_i = variates(run)
    np.testing.assert_allclose(c, np.mean(c_i, axis=0), rtol=0, atol=1e-14)
    assert min(np.abs(c).max(), np.abs(c - c_i[run.rounds[-1].cohort[0]]).max()) > 1e-2


def test_c_moves_by_the_fraction_of_the_clients_that_have_data():
    """|S| = 2 of N = 5 present, mean change (5, -10): c = (1, 1) + 2/5 (5, -10) = (3, -3); x moves by eta_g Delta."""
    half = Scaffold.Server("scaffold", Scaffold(global_rate=0.5))
    half.variate = torch.ones(2).double()
    server = SimpleNamespace(
        cohort=(3, 8), present=(1, 3, 4, 8, 9), shares_of=lambda clients: dict.fromkeys(clients, 1 / len(clients))
    )
    delta = Delta(torch.tensor([4.0, 6.0]).double(), torch.tensor([8.0]).double())
    moved = half.update(server, delta, {"variate_change": torch.tensor([5.0, -10.0]).double()})
    assert half.variate.tolist() == [3, -3]
    assert moved.parameters.tolist() == [2, 3]
    assert moved.buffers.tolist() == [8]  # statistics are averaged


def linear(shape, classes):
    """A linear map in float64."""
    return nn.Linear(shape[0], classes, bias=False).double()


@pytest.mark.parametrize("count", [3, 2])
def test_it_settles_at_the_minimum_of_the_mean_loss_where_fedavg_does_not(tiny, simulate, monkeypatch, count):
    """f_i = 1/2 mean |W x - onehot(y)|^2 = 1/2 tr W H_i W^T - tr W R_i^T + const: the minimum is W sum H_i = sum R_i.

    There c_i = g_i and c = mean g_i = 0, so that no corrected step moves. FedAvg's clients walk to their own minima:
    W -> W A_i + R_i H_i^-1 (I - A_i) with A_i = (I - lr H_i)^K, and it rests where the mean of W (A_i - I) + ... is 0.
    """

    def loss(logits, y):
        return 0.5 * (logits - nn.functional.one_hot(y, logits.shape[1])).square().sum(1).mean()

    monkeypatch.setattr(nn.functional, "cross_entropy", loss)
    lr, k, eye = 0.2, 4, np.eye(3)
    more = {
        "dataset": {"name": "synthetic", "classes": 2, "shape": [3], "train": 24, "test": 4},
        "model": {"name": "test_scaffold:linear"},
        "scenario__tasks": 1,
        "training": {"rounds_per_task": 60, "batch_size": 8, "local_epochs": k, "optimizer": {"lr": lr}},
        "participation": {"count": count},
    }
    run = simulate(tiny(methods=SCAFFOLD, **more))
    federation = run.simulation.federation
    data = [samples(federation, i, 0) for i in range(3)]
    h = [x.T @ x / len(y) for x, y in data]
    r = [np.eye(2)[y].T @ x / len(y) for x, y in data]
    best = sum(r) @ np.linalg.inv(sum(h))
    np.testing.assert_allclose(parameters(run).reshape(2, 3), best, rtol=0, atol=1e-9)
    c, c_i = variates(run)
    np.testing.assert_allclose(c, 0, atol=1e-9)
    for own, h_i, r_i in zip(c_i, h, r, strict=True):
        np.testing.assert_allclose(own.reshape(2, 3), best @ h_i - r_i, rtol=0, atol=1e-9)
        assert np.abs(own).max() > 1e-2
    if count == 3:
        a = [np.linalg.matrix_power(eye - lr * h_i, k) for h_i in h]
        ends = [r_i @ np.linalg.inv(h_i) @ (eye - a_i) for r_i, h_i, a_i in zip(r, h, a, strict=True)]
        drifted = np.mean(ends, axis=0) @ np.linalg.inv(eye - np.mean(a, axis=0))
        plain = parameters(simulate(tiny(**more))).reshape(2, 3)
        np.testing.assert_allclose(plain, drifted, rtol=0, atol=1e-9)
        assert np.abs(plain - best).max() > 1e-2


def test_a_client_that_takes_no_step_keeps_its_variate(tiny, simulate):
    """BatchNorm cannot take client 2's one sample: its c_2 stays 0, and its change counts as 0 in c = mean c_i."""
    config = tiny(model={"name": "probes:normalised"}, methods=SCAFFOLD)
    federation = build_federation(config)
    few = Stream([rows[:1] for rows in federation.streams[2].rows])
    c, c_i = variates(simulate(config, dealt(config, federation, [*federation.streams[:2], few])))
    assert not c_i[2].any()
    np.testing.assert_allclose(c, (c_i[0] + c_i[1]) / 3, rtol=0, atol=1e-13)


def zero_at_last(lr, progress):
    """A schedule with the rate 0 in the last of four rounds, as of a linear decay to 0."""
    return lr * (progress.round < 4)


def test_at_a_rate_of_zero_nothing_moves(tiny, simulate):
    """No mean gradient follows from an update of 0 at a rate of 0, so the last round leaves c, c_i and the model."""
    given = {"methods": SCAFFOLD, "scenario__tasks": 1, "training__lr_decay": {"name": "test_scaffold:zero_at_last"}}
    three, four = (simulate(tiny(training__rounds_per_task=rounds, **given)) for rounds in (3, 4))
    np.testing.assert_array_equal(parameters(three), parameters(four))
    np.testing.assert_array_equal(variates(three)[0], variates(four)[0])
    np.testing.assert_array_equal(variates(three)[1], variates(four)[1])


def test_the_bytes_of_a_round(tiny, simulate):
    """P = 28 float64, 224 bytes: the model and c down, the update and the variate's change up."""
    run = simulate(tiny(model=SOFTMAX, participation={"count": 2}, methods=SCAFFOLD))
    assert [(r.bytes_up, r.bytes_down) for r in run.rounds] == [(2 * 2 * 224, 2 * 2 * 224)] * 4


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"training__optimizer": {"momentum": 0.9}}, "needs plain SGD"),
        ({"training__optimizer": {"weight_decay": 0.1}}, "needs plain SGD"),
        ({"training__optimizer": {"name": "adam"}}, "needs plain SGD"),
        ({"methods": {"scaffold": {}, "fedtrack": {}}}, "changes the local loop"),
    ],
)
def test_what_breaks_option_ii_is_refused_at_start(tiny, more, said):
    """(x - y_i) / sum of the rates is the mean gradient for plain SGD in raysim's own loop only."""
    with pytest.raises(ConfigError, match=said):
        check_methods(tiny(**{"methods": SCAFFOLD, **more}))


@pytest.mark.parametrize("count", [3, 2])
def test_under_weights_by_samples_c_is_the_weighted_mean(tiny, simulate, count):
    """c += W_S sum_S (n_i / n_S) dc_i with W_S = n_S / n keeps c = sum_i (n_i / n) c_i, whoever takes part.

    With |S|/N in its place the fixed point would hang on the cohorts that were drawn.
    """
    more = {"aggregation__weights": "samples", "participation": {"count": count}}
    run = simulate(
        tiny(model=SOFTMAX, **UNEVEN, **more, scenario__tasks=1, training__rounds_per_task=4, methods=SCAFFOLD)
    )
    c, c_i = variates(run)
    sizes = [stream.size(0) for stream in run.simulation.federation.streams]
    np.testing.assert_allclose(c, np.average(c_i, axis=0, weights=sizes), rtol=0, atol=1e-14)


def test_clipped_steps_are_refused(tiny):
    with pytest.raises(
        ConfigError, match=r"methods.scaffold: needs updates that are linear .* gradients, without clip"
    ):
        check_methods(tiny(methods=SCAFFOLD, training__clip_norm=1.0))
