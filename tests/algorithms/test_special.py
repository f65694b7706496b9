"""SPECIAL (Xu and Li, 2026, arXiv 2601.22274): its equations in float64, on softmax regression and on least squares."""

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from raysim.algorithms.special import Special
from raysim.api.messages import Delta
from raysim.engine.host import ClientHost
from raysim.engine.hosted_server import HostedServer
from raysim.engine.replies import Reply
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.availability import plan_availability
from raysim.federation.federation import build_federation
from raysim.federation.stream import Stream
from raysim.records.run_directory import sha256
from raysim.system.seeding import torch_untouched

SOFTMAX = {"name": "probes:softmax"}
DRAWING = {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}


def special(lam, rate="1/task"):
    return {"special": {"lam": lam, "global_rate": rate}}


@pytest.fixture
def traced(tiny, simulate, log):
    """A function: theta^0, theta^1, ... of a run, and Delta^0, Delta^1, ..., the mean of what the clients changed."""

    def run(methods, **overrides):
        log.clear()
        config = tiny(**{"model": SOFTMAX, **overrides}, methods={"probes:LateToSpeak": {}, **methods})
        last = simulate(config).simulation.server.parameters
        told = [entry for entry in log if torch.is_tensor(entry[0])]
        deltas = [np.mean([end - sent for end in ends.values()], axis=0) for sent, ends in told]
        return [sent.numpy() for sent, _ in told] + [last.numpy()], deltas

    return run


@pytest.mark.parametrize("model", [SOFTMAX, DRAWING])
def test_lambda_0_at_rate_1_is_fedavg_bit_for_bit(tiny, simulate, model):
    """lambda = 0 alone is not: the paper's rate 1/i stays."""
    more = {"model": model, "participation": {"count": 2}}
    all_methods = ({}, special(0, 1), special(0), special(0.25, 1))
    plain, none, slower, pulled = (simulate(tiny(methods=m, **more)).sha256 for m in all_methods)
    assert plain == none
    assert len({plain, slower, pulled}) == 3


def test_task_1_does_not_depend_on_lambda(traced):
    """The first two of four rounds, bit for bit; the third does."""
    first, *others = (traced(special(lam))[0] for lam in (0, 0.25, 1e12))
    for other in others:
        assert [np.array_equal(a, b) for a, b in zip(first, other, strict=True)] == [True] * 3 + [False] * 2


@pytest.mark.parametrize("lam", [0.25, 3.0])
def test_each_new_model_minimises_eq_5(traced, lam):
    """The gradient of |u - bar|^2 + lam |u - anchor|^2 is 0 at theta^{t+1}, and p away it is (1 + lam) |p|^2 higher.

    bar = theta^t + Delta^t / i. Tasks have two rounds, so the anchors of tasks 2 and 3 are the models 2 and 4.
    """
    models, deltas = traced(special(lam), scenario__tasks=3, participation={"count": 2})
    p = torch.from_numpy(np.random.default_rng(0).standard_normal(28))
    for t in range(2, 6):
        bar = torch.from_numpy(models[t] + deltas[t] / (t // 2 + 1))
        anchor = torch.from_numpy(models[t // 2 * 2])

        def cost(u, bar=bar, anchor=anchor):
            return (u - bar).square().sum() + lam * (u - anchor).square().sum()

        u = torch.from_numpy(models[t + 1]).requires_grad_()
        (gradient,) = torch.autograd.grad(cost(u), u)
        assert gradient.abs().max() < 1e-12
        assert (bar - anchor).abs().max() > 1e-2  # a pull of another strength would show
        assert (cost(u + p) - cost(u)).item() == pytest.approx((1 + lam) * (p @ p).item(), rel=1e-10)


def test_an_infinite_lambda_or_a_rate_of_0_keeps_the_anchor(traced):
    """theta - anchor is at most gamma |Delta| / lam: 1e-12 of an update in task 2; and 0 at rate 0, in task 1 too."""
    models, deltas = traced(special(1e12))
    np.testing.assert_allclose(models[3:], [models[2]] * 2, rtol=0, atol=1e-12)
    assert min(np.abs(delta).max() for delta in deltas) > 1e-2
    models, _ = traced(special(0.25, 0))
    assert all(np.array_equal(model, models[0]) for model in models)


@pytest.mark.parametrize("lam", [0.25, 4.0])
def test_without_updates_the_distance_to_the_anchor_shrinks_by_1_plus_lambda(lam):
    """(26) with Delta = 0: theta^t - anchor = (1 + lam)^-t (theta^0 - anchor)."""
    half, zero = Special.Server("special", Special(lam=lam)), torch.zeros(3, dtype=torch.float64)
    anchor = torch.tensor([1.0, -2.0, 30.0], dtype=torch.float64)
    server = SimpleNamespace(task=1, parameters=anchor, buffers=zero)
    half.update(server, Delta(zero, zero), {})
    server.parameters = anchor + 7
    for t in range(1, 6):
        server.parameters = server.parameters + half.update(server, Delta(zero, zero), {}).parameters
        np.testing.assert_allclose(server.parameters - anchor, 7 * (1 + lam) ** -t, rtol=1e-12)


def test_unrolled_an_update_fades_with_its_age(traced):
    """theta^t - theta^0 = gamma sum_tau (1 + lam)^-(t - tau) Delta^tau, from (26); (27) prints the exponent tau + 1."""
    lam, gamma, rounds = 0.4, 0.7, 6
    models, deltas = traced(special(lam, gamma), training__rounds_per_task=rounds, participation={"count": 2})
    for t in range(1, rounds + 1):
        moved = models[rounds + t] - models[rounds]
        of_task = deltas[rounds : rounds + t]
        wanted = gamma * sum((1 + lam) ** -(t - tau) * delta for tau, delta in enumerate(of_task))
        np.testing.assert_allclose(moved, wanted, rtol=1e-10, atol=1e-12)
    printed = gamma * sum((1 + lam) ** -(tau + 1) * delta for tau, delta in enumerate(of_task))
    assert np.abs(moved - printed).max() > 1e-2


def test_a_constant_update_settles_at_gamma_delta_over_lambda(traced):
    """Delta = 1 everywhere, gamma = 1/2 in task 2: theta^t - theta^0 = (1 - (1 + lam)^-t) / (2 lam), a geometric sum.

    lam = 2: 1/6 after one round, 2/9 after two, and 1/4 in the end, as 3^-20 is 3e-10. Task 1 adds 1 in every round.
    """
    models, _ = traced({"probes:Zero": {"plus": 1.0}, **special(2.0)}, training__rounds_per_task=20)
    np.testing.assert_allclose(models[20] - models[0], 20, rtol=1e-13)
    for t, wanted, rtol in ((1, 1 / 6, 1e-12), (2, 2 / 9, 1e-12), (20, (1 - 3.0**-20) / 4, 1e-12), (20, 1 / 4, 1e-9)):
        np.testing.assert_allclose(models[20 + t] - models[20], wanted, rtol=rtol)


@pytest.mark.parametrize(("clients", "batch", "epochs"), [(1, 36, 3), (3, 4, 1)])
def test_the_drift_within_a_task_is_bounded_by_lemma_1(traced, clients, batch, epochs):
    """|theta^t - theta^0| <= gamma gamma_L S B / lam: S = 3 local steps with gradients clipped to norm B = 1e-3.

    One client's full batches point about the same way, so that it nearly reaches the bound; with lam = 0 it passes it.
    """
    bound = 0.5 * 0.1 * 3 * 1e-3 / 0.5
    training = {"rounds_per_task": 12, "batch_size": batch, "local_epochs": epochs, "clip_norm": 1e-3}

    def drift(lam):
        models, _ = traced(special(lam), clients__count=clients, training={**training, "optimizer": {"lr": 0.1}})
        return [np.linalg.norm(model - models[12]) for model in models[12:]]

    found = drift(0.5)
    assert max(found) <= bound
    assert clients > 1 or found[-1] > 0.98 * bound  # 1 - 1.5^-12 = 0.992
    assert drift(0)[-1] > bound


def test_the_anchor_is_the_last_model_of_the_previous_task(tiny, simulate, monkeypatch):
    """Bytes of the anchor, taken in each of two rounds of three tasks: those of the model that began the task."""
    seen, real = [], Special.Server.update

    def spy(half, server, delta, reply):
        given = real(half, server, delta, reply)
        kept = (server.parameters, server.buffers, half.anchor, half.anchored_buffers)
        seen.append([None if t is None else t.numpy().tobytes() for t in kept])
        return given

    monkeypatch.setattr(Special.Server, "update", spy)
    simulate(tiny(model={"name": "probes:normalised"}, scenario__tasks=3, methods=special(0.25)))
    models, anchors = [s[:2] for s in seen], [s[2:] for s in seen]
    assert anchors == [[None, None]] * 2 + [models[2]] * 2 + [models[4]] * 2
    assert len({parameters for parameters, _ in models}) == 6


def test_selection_is_uniform_and_without_replacement(tiny, host_of):
    """M = 8 and N = 4, as in the paper, in 10^4 rounds: 5 sigma for each client, p = 1/2, and each pair, p = 3/14."""
    config = tiny(clients__count=8, participation={"count": 4}, methods=special(0.25))
    server = HostedServer(config, build_federation(config), host_of(config).model)
    chosen = np.zeros((10_000, 8))
    for server.round in range(1, 10_001):
        chosen[server.round - 1, server.sample()] = 1
    assert (chosen.sum(1) == 4).all()
    together = chosen.T @ chosen
    for p, counts in ((1 / 2, together.diagonal()), (3 / 14, together[np.triu_indices(8, 1)])):
        assert np.abs(counts - 10_000 * p).max() < 5 * np.sqrt(10_000 * p * (1 - p))


def dealt(config, federation, streams):
    """The same data dealt out otherwise."""
    return dataclasses.replace(federation, streams=streams, availability=plan_availability(config, streams))


def test_a_client_counts_the_same_whatever_its_samples(tiny, simulate):
    """Client 0's samples three times over: full batches have the same gradients, so only another weight could show."""

    def models(weights):
        config = tiny(model=SOFTMAX, training__batch_size=36, aggregation__weights=weights, methods=special(0.25))
        once = build_federation(config)
        thrice = Stream([np.tile(rows, 3) for rows in once.streams[0].rows])
        both = (once, dealt(config, once, [thrice, *once.streams[1:]]))
        return [simulate(config, federation).simulation.server.parameters.numpy() for federation in both]

    np.testing.assert_allclose(*models("uniform"), rtol=0, atol=1e-12)
    assert np.abs(np.subtract(*models("samples"))).max() > 1e-3


def test_renaming_the_clients_moves_no_bit(tiny, simulate):
    """Each has one sample, many times, so that no draw depends on its name; the sum over clients is exact."""
    config = tiny(model=SOFTMAX, methods=special(0.25))
    federation = build_federation(config)
    alike = [Stream([np.repeat(rows[:1], 12) for rows in stream.rows]) for stream in federation.streams]
    named = (dealt(config, federation, order) for order in itertools.permutations(alike))
    assert len({simulate(config, federation).sha256 for federation in named}) == 1


class Forgetful(LocalRunner):
    """A new host for each client of each order, the last first; all that lasts is the count that names its streams."""

    def __init__(self, config, federation):
        super().__init__(config, federation)
        self.config = config

    def begin(self, order, message, broadcasts):
        reply, known = Reply(order.cohort_size), self.host
        for number in reversed(order.clients):
            host = ClientHost(self.config, known.federation, (number,), torch.device("cpu"))
            host.clients[number].phases = known.clients[number].phases
            known.clients[number].phases += 1
            reply.merge(host.perform(dataclasses.replace(order, clients=(number,)), message, broadcasts))
        return reply


@pytest.mark.parametrize(("methods", "same"), [(special(0.25), True), ({"scaffold": {}}, False)])
def test_no_state_of_a_client_outlives_a_round(tiny, simulate, methods, same):
    """The same bits where all clients begin anew in every round; SCAFFOLD's, which have a state, give others."""
    config = tiny(model=DRAWING, methods=methods)
    with torch_untouched():
        federation = build_federation(config)
        *_, end = Simulation(config, federation, Forgetful(config, federation)).events()
    assert (sha256(end.state) == simulate(config).sha256) == same


def test_selection_and_wire_are_fedavgs_whatever_lambda(tiny, simulate):
    """P = 4 * 6 + 4 = 28 float64, 224 bytes to and from each of N = 2 clients; with N = M all are selected."""

    def rounds(methods, count=2):
        run = simulate(tiny(model=SOFTMAX, participation={"count": count}, methods=methods))
        return [(r.cohort, r.bytes_up, r.bytes_down) for r in run.rounds]

    plain = rounds({})
    assert plain == rounds(special(0)) == rounds(special(5.0))
    assert [wire for _, *wire in plain] == [[448, 448]] * 4
    assert len({tuple(cohort) for cohort, *_ in plain}) > 1
    assert rounds(special(5.0), 3) == [([0, 1, 2], 672, 672)] * 4


def linear(shape, classes):
    """A linear map in float64."""
    return nn.Linear(shape[0], classes, bias=False).double()


def test_least_squares_settle_where_gamma_delta_is_lambda_times_the_distance(tiny, traced, monkeypatch):
    """On 1/2 mean |W x - onehot(y)|^2 a full-batch step is W -> W (I - lr H) + lr R, H = x^T x / n, R = onehot^T x / n.

    S steps: W -> W A + R H^-1 (I - A), A = (I - lr H)^S, so Delta(W) = C - W F with C the mean of the last terms and F
    = I - mean A. Then gamma Delta(W) = lam (W - anchor) is W (lam I + gamma F) = gamma C + lam anchor. Each round
    contracts by at least 1 + lam = 2: 1e-12 after 40.
    """

    def loss(logits, y):
        return 0.5 * (logits - nn.functional.one_hot(y, logits.shape[1])).square().sum(1).mean()

    monkeypatch.setattr(nn.functional, "cross_entropy", loss)
    lam, gamma, lr, steps, eye = 1.0, 1 / 2, 0.1, 3, np.eye(6)
    training = {"rounds_per_task": 40, "batch_size": 12, "local_epochs": steps, "optimizer": {"lr": lr}}
    more = {"model": {"name": "test_special:linear"}, "training": training}
    models, _ = traced(special(lam), **more)
    federation = build_federation(tiny(**more))
    f, c = eye, np.zeros((4, 6))
    for stream in federation.streams:
        rows, data = stream.rows[1], federation.dataset.train
        x = data.x[rows].astype(np.float64)[:, federation.tasks[1].pixels]
        h, r = x.T @ x / 12, np.eye(4)[data.y[rows]].T @ x / 12
        a = np.linalg.matrix_power(eye - lr * h, steps)
        f, c = f - a / 3, c + r @ np.linalg.inv(h) @ (eye - a) / 3
    anchor, found = models[40].reshape(4, 6), models[80].reshape(4, 6)
    np.testing.assert_allclose(found @ (lam * eye + gamma * f), gamma * c + lam * anchor, rtol=0, atol=1e-11)
    assert np.abs(found - anchor).max() > 1e-2
    assert np.abs(found @ f - c).max() > 1e-2  # FedAvg settles where this is 0


def test_the_rate_of_task_i_is_1_over_i():
    """Exactly, and a number is the same in all tasks; lam = 0 leaves every bit of gamma Delta."""
    delta, one = Delta(torch.tensor([3.0, -0.1]).double(), torch.tensor([0.7]).double()), torch.ones(2).double()
    for rate in ("1/task", 0.3):
        half = Special.Server("special", Special(lam=0.0, global_rate=rate))
        for i in range(1, 30):
            found = half.update(SimpleNamespace(task=i - 1, parameters=one, buffers=one[:1]), delta, {})
            gamma = 1 / i if rate == "1/task" else rate
            assert torch.equal(found.parameters, gamma * delta.parameters)
            assert torch.equal(found.buffers, gamma * delta.buffers)


def test_statistics_are_anchored_with_the_weights_or_only_averaged(tiny, simulate):
    """One round per task: in task 2 all models start from the same b, so FedAvg's statistics are b + Delta.

    theta is the anchor there, so eq. 6 makes them b + Delta / 2 / (1 + lam); without anchor_buffers they are FedAvg's.
    b, as task 1 has rate 1, is what lam = 1e12 keeps.
    """
    knobs = ({"lam": 0, "global_rate": 1}, {"lam": 1e12}, {"lam": 0.25}, {"lam": 0.25, "anchor_buffers": False})
    more = {"model": {"name": "probes:normalised"}, "training__rounds_per_task": 1}
    plain, b, anchored, averaged = (simulate(tiny(methods={"special": k}, **more)).simulation.server for k in knobs)
    wanted = b.buffers + (plain.buffers - b.buffers) / 2 / 1.25
    np.testing.assert_allclose(anchored.buffers, wanted, rtol=0, atol=1e-11)
    assert torch.equal(averaged.buffers, plain.buffers)
    assert torch.equal(averaged.parameters, anchored.parameters)
    assert (plain.buffers - b.buffers).abs().max() > 1e-2
