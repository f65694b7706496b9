"""C-FLAG against a second writing in NumPy, and the oracles 1 to 14 of its paper's algebra, in float64.

Two losses: the cross-entropy of softmax regression (tests/softmax_oracle.py), and least squares onto one-hot labels,
which `squares` puts in its place, so that every client's loss is a quadratic whose minimum is a linear system's.
"""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from softmax_oracle import Softmax
from torch import nn

from raysim import seeding
from raysim.algorithms import c_flag
from raysim.algorithms.c_flag import CFlag, adapted, forgetting
from raysim.calendar import calendar
from raysim.client import Phase
from raysim.compatibility import check_methods
from raysim.errors import ConfigError, RunError
from raysim.federation import build_federation
from raysim.host import Order
from raysim.iag import Components, choices
from raysim.local import LocalRunner
from raysim.simulation import Simulation

SOFTMAX = {"name": "probes:softmax"}
L, BETA = 5.0, 0.1
OFF = {"adaptive": "off"}
UNEVEN = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 1}
KEEP_ALL = {"memory": {"capacity": 100}}


def linear(shape, classes):
    """A linear map in float64."""
    return nn.Linear(shape[0], classes, bias=False).double()


@pytest.fixture
def squares(monkeypatch):
    """Every cross-entropy becomes 1/2 ||W x - onehot(y)||^2, mean over the batch."""

    def loss(logits, y):
        return 0.5 * ((logits - nn.functional.one_hot(y, logits.shape[1])) ** 2).sum(1).mean()

    monkeypatch.setattr(nn.functional, "cross_entropy", loss)


@pytest.fixture
def c_flag_config(tiny):
    """A function: a config of C-FLAG (or another method) on softmax regression, 3 unequal clients, 2 tasks."""

    def make(method="c_flag", knobs=OFF, **overrides):
        return tiny(**{"model": SOFTMAX, "methods": {method: knobs}, **UNEVEN, **KEEP_ALL, **overrides})

    return make


# A second writing: the round in NumPy, from the documented streams


def samples(federation, client, task):
    """The client's samples of a task, x in float64."""
    rows = federation.streams[client].rows[task]
    x, y = federation.dataset.train.x[rows].astype(np.float64), federation.dataset.train.y[rows]
    pixels = federation.tasks[task].pixels
    return (x if pixels is None else x[:, pixels]), y


def gradient(w, x, y):
    return Softmax.of(w, 4, x.shape[1]).loss_and_gradient(x, y)[1]


class Reference:
    """C-FLAG in NumPy, with full memories; what the clients compute in the last round is left to look at."""

    def __init__(self, config, federation, knobs):
        self.config, self.federation, self.knobs = config, federation, knobs
        self.phases = dict.fromkeys(range(config.clients.count), 0)

    def parts(self, k, task):
        x, y = samples(self.federation, k, task)
        order = seeding.generator(self.config.seed, k, "components of window", task).permutation(len(y))
        size = self.config.training.batch_size
        return [(x[order[a : a + size]], y[order[a : a + size]]) for a in range(0, len(y), size)]

    def chosen(self, k, steps, components):
        stream = seeding.generator(self.config.seed, k, self.phases[k], 0, "batches")
        order = self.knobs.get("order", "random")
        if order == "random":
            return list(stream.integers(components, size=steps))
        turn = (lambda: stream.permutation(components)) if order == "reshuffled" else (lambda: np.arange(components))
        return list(itertools.chain.from_iterable(turn() for _ in range(steps)))[:steps]

    def local(self, k, task, x, correction, beta):
        """The E steps of client k from x: its last model, and A."""
        parts = self.parts(k, task)
        weights = [len(y) for _, y in parts] / np.sum([len(y) for _, y in parts])
        steps = self.config.training.local_epochs * len(parts)
        chosen = self.chosen(k, steps, len(parts))
        table, added = [gradient(x, *part) for part in parts], np.zeros_like(x)
        for number in range(steps):
            if self.knobs.get("mode") == "svrg":
                delayed = gradient(x, *parts[chosen[number]])
            else:
                if number:
                    j = chosen[number - 1]
                    table[j] = gradient(x, *parts[j])
                delayed = sum(w * row for w, row in zip(weights, table, strict=True))
            added = added + delayed
            x = x - beta * (correction + delayed)
        return x, added, steps

    def round(self, x, task, cohort, p):
        knobs, lr = self.knobs, self.config.training.optimizer.lr
        beta = knobs.get("beta") or lr
        alpha = beta if knobs.get("alpha") is None else knobs["alpha"]
        own = {k: gradient(x, *samples(self.federation, k, task)) for k in cohort}
        big_g = sum(p[k] * own[k] for k in cohort)
        past = {k: [samples(self.federation, k, t) for t in range(task)] for k in cohort}
        past = {k: [np.concatenate(part) for part in zip(*v, strict=True)] for k, v in past.items() if v}
        past = {k: v for k, v in past.items() if len(v[1])}
        big_f = sum(p[k] * gradient(x, *v) for k, v in past.items()) / sum(p[k] for k in past) if past else None
        self.rates, self.local_models, self.added, self.steps, self.corrections = {}, {}, {}, {}, {}
        self.own, self.mean, self.memory, self.p = own, big_g, big_f, p
        change = 0.0
        for k in cohort:
            self.phases[k] += 1
            self.corrections[k] = big_g - own[k]
            self.local_models[k], a, e = self.local(k, task, x, big_g - own[k], beta)
            self.added[k], self.steps[k] = a, e
            alpha_i, beta_i = alpha, beta
            if knobs.get("objective_weights") == "h":
                sizes = [sum(s.size(t) for s in self.federation.streams) for t in range(task + 1)]
                alpha_i = e * beta * sum(sizes[:task]) / sizes[task]
            if big_f is not None and knobs.get("adaptive", "worst") != "off":
                c = len(cohort) if knobs.get("adaptive", "worst") == "worst" else 1
                inner = big_f @ a
                if inner > 0:
                    beta_i = (1 - L * alpha) * inner / (L * c * p[k] * (a @ a))
                    beta_i = min(max(beta_i, 1e-4), 0.95)
                else:
                    rate = alpha if knobs.get("interference") == "as_printed" else beta
                    alpha_i = min(alpha - rate * inner / (big_f @ big_f), 2 / L / (1 + knobs.get("bias", 0)))
            self.rates[k] = (alpha_i, beta_i)
            tracked = beta if knobs.get("correction") == "nominal" else beta_i
            delta = e * tracked * self.corrections[k] + beta_i * a
            change = change + p[k] * (delta if big_f is None else delta + alpha_i * big_f)
        return x - change

    def run(self, cohorts):
        model = initial(self.config, self.federation)
        for number, cohort in enumerate(cohorts):
            task = number // self.config.training.rounds_per_task
            sizes = {k: self.federation.streams[k].size(task) for k in cohort}
            uniform = self.config.aggregation.weights == "uniform"
            p = {k: 1 / len(cohort) if uniform else n / sum(sizes.values()) for k, n in sizes.items()}
            model = self.round(model, task, cohort, p)
        return model


def initial(config, federation):
    from raysim.models.building import build_model

    return vector(build_model(config, federation.shape, federation.classes).state_dict())


def vector(state):
    return torch.cat([t.reshape(-1) for t in state.values()]).numpy()


READINGS = {
    "off": {"adaptive": "off"},
    "worst": {},
    "average": {"adaptive": "average"},
    "nominal": {"correction": "nominal"},
    "alpha below beta": {"alpha": 0.03, "interference": "exact"},
    "as printed": {"alpha": 0.03, "interference": "as_printed"},
    "alpha is beta": {"beta": 0.05},
    "rates of its own": {"alpha": 0.02, "beta": 0.15, "adaptive": "off"},
    "h": {"objective_weights": "h", "adaptive": "off"},
    "bias": {"bias": 0.8},
    "svrg": {"mode": "svrg"},
    "cyclic": {"order": "cyclic"},
    "reshuffled": {"order": "reshuffled", "table": "keep"},
    "svrg reshuffled": {"order": "reshuffled", "mode": "svrg", "adaptive": "off"},
}


THREE_TASKS = {"training__local_epochs": 2, "scenario__tasks": 3, "participation": {"count": 2}}


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("reading", READINGS)
def test_a_run_is_the_second_writing(c_flag_config, simulate, reading, weights):
    """Three tasks of two rounds, two epochs, unequal clients whose last component is ragged, two of three at a time.

    F is over those with a memory: a client that is drawn first in task 3 has one too, of what arrived before.
    """
    config = c_flag_config(knobs=READINGS[reading], aggregation__weights=weights, **THREE_TASKS)
    federation = build_federation(config)
    run = simulate(config, federation)
    expected = Reference(config, federation, READINGS[reading]).run([r.cohort for r in run.rounds])
    np.testing.assert_allclose(vector(run.state), expected, rtol=0, atol=1e-11)


def test_the_readings_differ(c_flag_config, simulate):
    """Each knob is at work in that run: both cases of Table 1 occur, and so do the limits of both rates."""
    found = [simulate(c_flag_config(knobs=knobs, **THREE_TASKS)).sha256 for knobs in READINGS.values()]
    assert len(set(found)) == len(READINGS)


def last_round(config, simulate, knobs):
    """The second writing's last round, beside the run: what it left to look at, and the models before and after."""
    federation = build_federation(config)
    run = simulate(config, federation)
    reference = Reference(config, federation, knobs)
    cohorts = [r.cohort for r in run.rounds]
    before = Reference(config, federation, knobs).run(cohorts[:-1])
    reference.run(cohorts)
    return reference, before, vector(run.state), run


# Oracles 1 and 2: the table


@pytest.fixture
def phases(host_of, quiet_torch):
    """A function: C-FLAG's host, its G_i sent, and a spy's view of every refresh of client 0's phase B."""

    def make(config, monkeypatch):
        host = host_of(config)
        model = host.posts["model"].value
        order = Order("c_flag.gradients", (0,), None, {0: 1.0}, 1, Phase(1, 0, BETA))
        sent = host.perform(order).of("c_flag", CFlag.replies, torch.float64)["gradient"]
        seen, real = [], c_flag.refresh

        def spy(rows, total, components, component):
            before = rows.clone()
            real(rows, total, components, component)
            seen.append((component, before, rows.clone(), total.clone(), components, host.model.parameters.clone()))

        monkeypatch.setattr(c_flag, "refresh", spy)
        mail = {"posted": [], "cohort": 1, "past_per_new": 0.0}
        return host, model, sent, seen, Order("train", (0,), {"c_flag": mail}, {0: 1.0}, 1, Phase(1, 0, BETA))

    return make


def test_the_sum_is_the_tables_and_one_row_changes_per_step_after_the_first(c_flag_config, phases, monkeypatch):
    """Oracle 1. E epochs of c components are E c steps, all but the first refreshing one row: E c - 1 refreshes.

    The row is the component's gradient at the model of that moment, and the kept sum is sum_j w_j T[j] recomputed.
    """
    host, _, _, seen, order = phases(c_flag_config(training__local_epochs=3), monkeypatch)
    host.perform(order)
    components = seen[0][4]
    assert len(components) >= 3
    assert len(set(components.weights)) == 2  # the last is ragged
    assert sum(components.weights) == pytest.approx(1, rel=1e-15)
    assert len(seen) == 3 * len(components) - 1
    for component, before, after, total, _, at in seen:
        changed = [j for j in range(len(components)) if not torch.equal(before[j], after[j])]
        assert changed == [component]
        x, y = components._shown[component]
        np.testing.assert_allclose(after[component], gradient(at.numpy(), x.numpy(), y.numpy()), rtol=0, atol=1e-15)
        recomputed = sum(w * row for w, row in zip(components.weights, after, strict=True))
        np.testing.assert_allclose(total, recomputed, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("model", ["softmax", "dropout", "batch_norm"])
def test_the_first_sum_is_what_was_sent_bit_for_bit(tiny, phases, monkeypatch, model):
    """Oracle 2, also where dropout draws: the mask is the component's own in both phases of a round."""
    kind = {"softmax": SOFTMAX, "dropout": {"name": "mlp", "dropout": 0.5}}.get(
        model, {"name": "mlp", "batch_norm": True}
    )
    host, _, sent, _, order = phases(tiny(model=kind, methods={"c_flag": {}}, dataset__train=39), monkeypatch)
    half = host.clients[0].halves["c_flag"]
    own, seen = half.own.clone(), []
    real = type(half)._table
    monkeypatch.setattr(type(half), "_table", lambda self, *a: seen.append(real(self, *a)) or seen[-1])
    monkeypatch.setattr(c_flag, "refresh", lambda *a: None)
    host.perform(order)
    assert torch.equal(seen[0][1], own)
    np.testing.assert_allclose(own.double(), sent, rtol=0, atol=2.0**-76)  # the sum's own grid
    assert half.own is None  # nothing of a round is left
    assert half.kept == []


# Oracles 3 to 7: what one round comes to


def test_one_full_batch_step_is_gradient_descent_on_the_pooled_data(c_flag_config, simulate):
    """Oracle 3. Task 1, E = 1: every client's only step is -beta (G - G_i + G_i) = -beta G, whatever N and p.

    With p_i = n_i / n, G is the gradient over all data, so two rounds are two steps of central gradient descent.
    """
    config = c_flag_config(scenario__tasks=1, training__batch_size=36, aggregation__weights="samples")
    federation = build_federation(config)
    x, y = (np.concatenate(part) for part in zip(*(samples(federation, k, 0) for k in range(3)), strict=True))
    w = initial(config, federation)
    for _ in range(2):
        w = w - BETA * gradient(w, x, y)
    np.testing.assert_allclose(vector(simulate(config, federation).state), w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("knobs", [OFF, {"adaptive": "off", "alpha": 0.04}])
def test_with_a_memory_one_step_is_that_minus_alpha_f(c_flag_config, simulate, knobs):
    """Oracle 4. E = 1, AdapLR off: x - alpha F - beta G."""
    config = c_flag_config(knobs=knobs, training__batch_size=36, aggregation__weights="samples")
    reference, before, after, _ = last_round(config, simulate, knobs)
    expected = before - knobs.get("alpha", BETA) * reference.memory - BETA * reference.mean
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-12)


def test_the_corrections_cancel_in_the_mean(c_flag_config, simulate):
    """Oracle 5, eq. 22. sum_i p_i E (G - G_i) = 0 where all take E steps, as G = sum_i p_i G_i: 36 samples, 3 x 12.

    So in task 1 the model moves by -beta sum_i p_i A_i, while no single client's correction is zero.
    """
    config = c_flag_config(partition={"kind": "iid"}, training__local_epochs=2, scenario__tasks=1)
    reference, before, after, _ = last_round(config, simulate, OFF)
    assert min(np.abs(c).max() for c in reference.corrections.values()) > 1e-3
    drift = -BETA * sum(reference.p[k] * reference.added[k] for k in range(3))
    np.testing.assert_allclose(after - before, drift, rtol=0, atol=1e-12)


def test_sending_models_or_changes_is_the_same(c_flag_config, simulate):
    """Oracle 6. Form A averages y_i = x_E - alpha F; form B subtracts sum_i p_i (alpha F + x_t - x_E)."""
    config = c_flag_config(training__local_epochs=2, aggregation__weights="samples")
    reference, _, after, _ = last_round(config, simulate, OFF)
    averaged = sum(reference.p[k] * (reference.local_models[k] - BETA * reference.memory) for k in range(3))
    np.testing.assert_allclose(after, averaged, rtol=0, atol=1e-12)


def test_what_a_client_sends_is_its_own_local_change_and_the_memory_step(c_flag_config, host_of, quiet_torch):
    """Oracle 6 at the client: with alpha_i = alpha and beta_i = beta, -Delta_i = x_E - x_t - alpha F exactly."""
    host = host_of(c_flag_config(training__local_epochs=2))
    client, half = host.clients[0], host.clients[0].halves["c_flag"]
    client.take_up(0)
    client.enter_exchange("c_flag", 0.5)
    half.gradients(client, None)
    client.enter(Phase(1, 0, BETA), 0.5)
    draws = np.random.default_rng(0)
    big_g, big_f = (torch.from_numpy(draws.standard_normal(len(client.received))) for _ in range(2))
    host.receive([c_flag.Post("c_flag.gradient", 1, big_g), c_flag.Post("c_flag.memory_gradient", 1, big_f)])
    half.start(client, {"posted": ["gradient", "memory_gradient"], "cohort": 2, "past_per_new": 1.0})
    sent = half.train(client).parameters
    expected = client.model.parameters - client.received - BETA * big_f
    np.testing.assert_allclose(sent, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ["cyclic", "random"])
def test_one_client_alone_takes_plain_iag_steps(c_flag_config, simulate, order):
    """Oracle 7. N = 1: G = G_i, so the steps are x - beta g'(x_k), plain incremental aggregated gradients.

    Written here from the start of x and g' alone, in task 1.
    """
    knobs = {"adaptive": "off", "order": order}
    config = c_flag_config(
        knobs=knobs, clients__count=1, scenario__tasks=1, training__local_epochs=2, dataset__train=14
    )
    federation = build_federation(config)
    reference = Reference(config, federation, knobs)
    x = initial(config, federation)
    for _ in range(config.training.rounds_per_task):
        reference.phases[0] += 1
        x, _, _ = reference.local(0, 0, x, 0.0, BETA)
    np.testing.assert_allclose(vector(simulate(config, federation).state), x, rtol=0, atol=1e-12)


def test_refreshing_all_uses_the_exact_gradient(c_flag_config, simulate):
    """Oracle 7. One component: g'_i(x_k) is grad g_i(x_k) from the second step on; E = 3 epochs, 3 unequal clients."""
    config = c_flag_config(training__batch_size=36, training__local_epochs=3, scenario__tasks=1)
    federation = build_federation(config)
    x = initial(config, federation)
    for _ in range(2):
        own = [gradient(x, *samples(federation, k, 0)) for k in range(3)]
        ends = [x - BETA * (sum(own) / 3) for _ in range(3)]
        for _, k in itertools.product(range(2), range(3)):
            ends[k] = ends[k] - BETA * (sum(own) / 3 - own[k] + gradient(ends[k], *samples(federation, k, 0)))
        x = sum(ends) / 3
    np.testing.assert_allclose(vector(simulate(config, federation).state), x, rtol=0, atol=1e-12)


# Oracles 8 to 12: AdapLR


def vectors(count, seed=0, size=40):
    draws = np.random.default_rng(seed)
    return [torch.from_numpy(draws.standard_normal(size)) for _ in range(count)]


def along(memory, added, sign):
    """Added, turned over if need be so that <F, A> has the sign."""
    return added * sign * torch.sign(memory.dot(added))


WIDE = {"beta_range": (0.0, 1e9)}


@pytest.mark.parametrize("case", ["average", "worst"])
@pytest.mark.parametrize("seed", range(5))
def test_interference_gives_back_what_the_steps_take_from_the_memory(case, seed):
    """Oracle 8. Lambda < 0: (alpha_i F + beta A) . F / ||F||^2 = alpha_i + beta Lambda / ||F||^2 = alpha.

    For alpha = beta this is Table 1 as printed; for others it is what `interference: exact` extends it to. The limit of
    eq. 14 is out of the way: L is tiny.
    """
    memory, added = vectors(2, seed)
    added = along(memory, added, -1)
    for alpha, beta, reading in ((0.1, 0.1, "as_printed"), (0.1, 0.1, "exact"), (0.1, 0.03, "exact")):
        knobs = CFlag(smoothness=1e-3, adaptive=case, interference=reading)
        alpha_i, beta_i = adapted(knobs, memory, added, alpha, beta, 0.3)
        share = (alpha_i * memory + beta * added).dot(memory) / memory.dot(memory)
        assert float(share) == pytest.approx(alpha, rel=1e-12)
        assert float(alpha_i) >= alpha
        assert float(beta_i) == beta


def test_table_1_as_printed_where_alpha_is_not_beta():
    """alpha_i = alpha (1 - Lambda / ||F||^2) = 0.1 (1 + 6/4) = 0.25; exact is 0.1 + 0.02 * 6/4 = 0.13."""
    memory, added = torch.tensor([2.0, 0.0]).double(), torch.tensor([-3.0, 1.0]).double()
    found = [
        float(adapted(CFlag(interference=reading, smoothness=1.0), memory, added, 0.1, 0.02, 1.0)[0])
        for reading in ("as_printed", "exact")
    ]
    assert found == pytest.approx([0.25, 0.13], rel=1e-14)


def test_neither_case_leaves_both_rates():
    """Oracle 8. Lambda = 0: alpha_i = alpha and beta_i = beta."""
    memory, added = torch.tensor([1.0, 0.0]).double(), torch.tensor([0.0, 1.0]).double()
    assert [float(v) for v in adapted(CFlag(), memory, added, 0.1, 0.07, 0.3)] == [0.1, 0.07]


@pytest.mark.parametrize("weight", [0.2, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_transference_minimises_what_is_forgotten(weight, seed):
    """Oracle 9. Gamma_i(b) = L/2 b^2 w ||A||^2 - b (1 - L a) Lambda is least at b = (1 - L a) Lambda / (L w ||A||^2),

    where it is -((1 - L a) Lambda)^2 / (2 L w ||A||^2) < 0. With Alg. 3's own a_i = beta A, b would be 1 / beta as big.
    """
    memory, added = vectors(2, seed)
    added = along(memory, added, 1)
    alpha_i, beta_i = adapted(CFlag(**WIDE), memory, added, 0.1, 0.1, weight)
    assert float(alpha_i) == 0.1
    inner, square = float(memory.dot(added)), float(added.dot(added))
    least = float(forgetting(memory, added, alpha_i, beta_i, L, weight))
    assert least == pytest.approx(-(((1 - 0.5) * inner) ** 2) / (2 * L * weight * square), rel=1e-12)
    for other in (0.99, 1.01):
        assert float(forgetting(memory, added, alpha_i, other * beta_i, L, weight)) > least


def test_the_adaptive_rates_scale_as_they_must():
    """Oracle 10. Lambda is linear in both vectors and ||A||^2 quadratic: A -> 7A gives beta_i / 7, F -> 7F gives 7

    beta_i. The worst case is the average one with N p_i for p_i: beta_i / N.
    """
    memory, added = vectors(2)
    added = along(memory, added, 1)

    def beta_i(memory, added, weight=0.25):
        return float(adapted(CFlag(**WIDE), memory, added, 0.1, 0.1, weight)[1])

    one = beta_i(memory, added)
    assert beta_i(memory, 7 * added) == pytest.approx(one / 7, rel=1e-13)
    assert beta_i(7 * memory, added) == pytest.approx(7 * one, rel=1e-13)
    assert beta_i(memory, added, 4 * 0.25) == pytest.approx(one / 4, rel=1e-13)


def test_no_client_forgets_more_than_at_the_fixed_rates():
    """Oracle 11, Lemma 7, rates unlimited: sum_i p_i Gamma_i(adaptive) <= sum_i p_i Gamma_i(alpha, beta)."""
    shares = np.random.default_rng(1).dirichlet(np.ones(6))
    for clients in (1, 6):
        fixed, adaptive, signs = 0.0, 0.0, set()
        for share, seed in zip(shares, range(6), strict=True):
            memory, added = vectors(1)[0], vectors(1, seed + 20)[0]
            signs.add(float(torch.sign(memory.dot(added))))
            weight = clients * share
            rates = adapted(CFlag(**WIDE), memory, added, 0.1, 0.1, weight)
            fixed += share * float(forgetting(memory, added, 0.1, 0.1, L, weight))
            adaptive += share * float(forgetting(memory, added, *rates, L, weight))
        assert signs == {-1.0, 1.0}
        assert adaptive < fixed


def test_the_rates_stay_within_their_limits():
    """alpha_i <= 2 / (L (1 + m)) = 0.4 / 1.6 = 0.25, and beta_i in its range."""
    memory = torch.tensor([1e-3, 0.0]).double()
    against, with_it = torch.tensor([-1e3, 0.0]).double(), torch.tensor([1e-9, 0.0]).double()
    assert float(adapted(CFlag(bias=0.6), memory, against, 0.1, 0.1, 1.0)[0]) == pytest.approx(0.25, rel=1e-15)
    assert float(adapted(CFlag(), memory, with_it, 0.1, 0.1, 1.0)[1]) == 0.95
    assert float(adapted(CFlag(), memory, -against, 0.1, 0.1, 1.0)[1]) == 1e-4
    assert float(adapted(CFlag(beta_range=(0.01, 0.02)), memory, -against, 0.1, 0.1, 1.0)[1]) == 0.01


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_of_zero_give_no_nan(dtype):
    """Oracle 12. ||F|| = 0 leaves alpha, ||A|| = 0 leaves beta; also where only the squares vanish."""
    zero, one = torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)
    tiny_one = 1e-30 * one if dtype == torch.float32 else 1e-200 * one
    for memory, added in ((zero, one), (one, zero), (zero, zero), (tiny_one, -one), (one, tiny_one)):
        rates = [float(v) for v in adapted(CFlag(), memory, added, 0.1, 0.07, 0.5)]
        assert rates == pytest.approx([0.1, 0.07], rel=1e-15)


def test_in_task_1_adaptive_is_off(c_flag_config, simulate):
    """Oracle 12. Nothing is remembered: the same bits, one task; and other bits once there is a second."""
    for tasks, same in ((1, True), (2, False)):
        found = {simulate(c_flag_config(knobs=k, scenario__tasks=tasks)).sha256 for k in (OFF, {}, {"alpha": 0.01})}
        assert (len(found) == 1) == same


@pytest.mark.parametrize(
    ("knobs", "training", "said"),
    [
        ({"alpha": 0.2}, {}, "found alpha=0.2, allowed: less than 0.2"),
        ({"alpha": 0.01, "smoothness": 200}, {}, "allowed: less than 0.005"),
        ({}, {"training__optimizer": {"lr": 0.3}}, r"found alpha=0.3 \(training.optimizer.lr\)"),
        ({"beta": 0.3}, {}, "found alpha=0.3, allowed"),
        ({"bias": 3.0}, {}, "allowed: less than 0.1"),
        ({"objective_weights": "h"}, {}, "set adaptive=off"),
        ({"objective_weights": "h", "adaptive": "off", "alpha": 0.1}, {}, "leave alpha out"),
        ({"beta_range": [0.5, 0.1]}, {}, "found beta_range"),
        (OFF, {"training__clip_norm": 1.0}, "training.clip_norm=null"),
        (OFF, {"training__optimizer": {"name": "adam"}}, "needs plain SGD"),
        (OFF, {"training__optimizer": {"momentum": 0.9}}, "needs plain SGD"),
        (OFF, {"training__optimizer": {"weight_decay": 0.1}}, "needs plain SGD"),
        (OFF, {"memory": {"fill": "arrival"}}, "memory.fill: c_flag cannot use arrival"),
        (OFF, {"methods": {"c_flag": OFF, "fed_a_gem": {}}}, "changes the local loop"),
        (OFF, {"methods": {"c_flag": OFF, "fedtrack": {}}}, "each bring their own train"),
    ],
)
def test_what_cannot_work_is_refused_at_start(c_flag_config, knobs, training, said):
    """Oracle 12: 1 - L alpha <= 0 among them."""
    with pytest.raises(ConfigError, match=said):
        check_methods(c_flag_config(knobs=knobs, **training))


@pytest.mark.parametrize(
    "knobs", [{}, {"adaptive": "off", "alpha": 3.0}, {"alpha": 0.19}, {"objective_weights": "h", **OFF}]
)
def test_what_can_work_is_not(c_flag_config, knobs):
    check_methods(c_flag_config(knobs=knobs))


# Oracle 13: who computes where, and where it all leads


def test_who_computes_where_moves_no_bit(c_flag_config, simulate):
    """Oracle 13. The same run on two hosts and with the clients in another order, and with the tables kept."""
    config = c_flag_config(knobs={}, training__local_epochs=2)
    kept = c_flag_config(knobs={"table": "keep"}, training__local_epochs=2)
    found = [simulate(config), simulate(kept), *(simulate(c, places=[(1,), (2, 0)]) for c in (config, kept))]
    assert len({run.sha256 for run in found}) == 1


def test_renaming_clients_does_not_change_the_model(c_flag_config, simulate):
    """Oracle 13. One component per client, so that no draw depends on its name: the streams dealt in another order."""
    config = c_flag_config(knobs={}, training__batch_size=36, training__local_epochs=3, aggregation__weights="samples")
    federation = build_federation(config)
    streams = federation.streams[::-1]
    other = dataclasses.replace(federation, streams=streams, calendar=calendar(config, streams))
    assert federation.streams[0].size(0) != federation.streams[2].size(0)
    found = [vector(simulate(config, f).state) for f in (federation, other)]
    np.testing.assert_allclose(*found, rtol=0, atol=1e-12)


def fixed_point(config):
    """The model that a round of task 2 (or of task 1, if it is the only one) maps to itself, exactly.

    On quadratics, with fixed rates and cyclic order, a round is an affine map x -> M x + c: its values at 0 and at the
    unit vectors give M and c, one round each.
    """
    federation = build_federation(config)
    with seeding.torch_untouched():
        simulation = Simulation(config, federation, LocalRunner(config, federation))
        events = iter(simulation.events())
        next(events)
        size = len(simulation.server.parameters)
        rounds = config.training.rounds_per_task
        assert rounds == size + 1
        for _ in range(rounds * (config.scenario.tasks - 1)):
            next(events)
        values = []
        for point in (torch.zeros(size), *torch.eye(size)):
            simulation.server.parameters = point.double()
            next(events)
            values.append(simulation.server.parameters.numpy())
    offset = values[0]
    matrix = np.stack([value - offset for value in values[1:]], axis=1)
    assert np.abs(np.linalg.eigvals(matrix)).max() < 1
    return np.linalg.solve(np.eye(size) - matrix, offset), federation


def minimiser(federation, weights):
    """argmin of sum_task weight_task * mean over clients of 1/2 mean ||W x - onehot(y)||^2, as a vector [C * D]."""
    left, right = 0.0, 0.0
    for task, weight in enumerate(weights):
        for k in range(len(federation.streams)):
            x, y = samples(federation, k, task)
            left = left + weight * x.T @ x / len(y)
            right = right + weight * x.T @ np.eye(federation.classes)[y] / len(y)
    return np.linalg.solve(left, right).T.reshape(-1)


@pytest.fixture
def quadratics(tiny, squares):
    """A function: a config of 3 clients with different quadratics in 6 dimensions, 8 samples each, 4 local steps."""

    def make(methods, beta, batch, tasks=2, **overrides):
        return tiny(
            dataset={"name": "synthetic", "classes": 2, "shape": [3], "train": 24, "test": 4},
            model={"name": "test_c_flag:linear"},
            methods=methods,
            scenario__tasks=tasks,
            training={
                "rounds_per_task": 7,
                "batch_size": batch,
                "local_epochs": 4 * batch // 8,
                "optimizer": {"lr": beta},
            },
            memory={"capacity": 100},
            **overrides,
        )

    return make


@pytest.mark.parametrize("batch", [2, 8], ids=["iag", "refresh all"])
def test_the_fixed_point_approaches_the_weighted_minimum_as_beta_falls(quadratics, batch):
    """Oracle 13. The rounds lead to argmin(alpha f + E beta g) + O(beta), not to argmin(f + g): 4 components are taken

    once, or one component 4 times, so E = 4. With alpha = beta that is f + 4 g, and with alpha = E beta |P| / |C| =
    E beta it is the objective of eq. 3. Halving beta halves the distance.
    """
    for knobs, f_weight in (({**OFF, "order": "cyclic"}, 1), ({**OFF, "order": "cyclic", "objective_weights": "h"}, 4)):
        distances = []
        for beta in (0.008, 0.004, 0.002):
            point, federation = fixed_point(quadratics({"c_flag": knobs}, beta, batch))
            distances.append(np.linalg.norm(point - minimiser(federation, (f_weight, 4))))
            other = np.linalg.norm(point - minimiser(federation, (5 - f_weight, 4)))
            assert distances[-1] < other / 3
        ratios = np.array(distances[:-1]) / distances[1:]
        assert ((ratios > 1.8) & (ratios < 2.2)).all(), distances


@pytest.mark.parametrize("batch", [2, 8], ids=["iag", "refresh all"])
def test_without_memory_the_minimum_itself_is_fixed_where_fedavg_drifts(quadratics, batch):
    """Oracles 7 and 13. At G(x) = 0 the first step is -beta G = 0, the table then stays as it is, and so does x_k,

    whatever beta. FedAvg's clients move towards their own minima, a distance O(beta) at its fixed point; not if all are
    alike.
    """
    drifts = []
    for beta in (0.02, 0.01):
        for method in ({"c_flag": {**OFF, "order": "cyclic"}}, {"fedtrack": {"order": "cyclic"}}):
            point, federation = fixed_point(quadratics(method, beta, batch, tasks=1))
            np.testing.assert_allclose(point, minimiser(federation, (1,)), rtol=0, atol=1e-9)
        point, federation = fixed_point(quadratics({}, beta, 8, tasks=1))
        drifts.append(np.linalg.norm(point - minimiser(federation, (1,))))
    assert drifts[1] > 1e-3
    assert drifts[0] / drifts[1] == pytest.approx(2, abs=0.2)


def test_fedavg_does_not_drift_where_all_clients_are_alike(quadratics):
    """The other half of oracle 13: one client, which is all clients alike."""
    point, federation = fixed_point(quadratics({}, 0.02, 24, tasks=1, clients__count=1))
    np.testing.assert_allclose(point, minimiser(federation, (1,)), rtol=0, atol=1e-9)


# Oracle 14 (FedTrack's half is in test_fedtrack.py), records, state


def test_the_bytes_of_a_round(c_flag_config, simulate):
    """Oracle 14. P = 4 * 6 + 4 = 28 float64, 224 bytes. Task 1: the model and G down, G_i and Delta_i up: 2P each.

    From the first round of task 2 also F and F_i: 3P. The model of phase A is not sent again for phase B.
    """
    rounds = simulate(c_flag_config(knobs={})).rounds
    assert [r.bytes_up for r in rounds] == [3 * 2 * 224] * 2 + [3 * 3 * 224] * 2
    assert [r.bytes_down for r in rounds] == [3 * 2 * 224] * 2 + [3 * 3 * 224] * 2


def test_what_is_recorded(c_flag_config, simulate):
    """alpha_i and beta_i as means over the clients, and Gamma(t) = sum_i p_i Gamma_i with p_i = n_i / n.

    Gamma_i here is eq. 189 with the client's own rates. The loss is the clients' at the model that was sent.
    """
    config = c_flag_config(knobs={}, seed=6, aggregation__weights="samples", training__local_epochs=2)
    reference, before, _, run = last_round(config, simulate, {})
    assert run.rounds[0].records == {}
    found = run.rounds[-1].records
    rates = np.array(list(reference.rates.values()))
    assert {r > BETA for r in rates[:, 0]} == {True, False}  # one interferes, one does not
    assert [found["alpha_i"], found["beta_i"]] == pytest.approx(list(rates.mean(0)), rel=1e-9)
    gamma = 0.0
    for k, (alpha, beta) in reference.rates.items():
        a, p = reference.added[k], reference.p[k]
        gamma += p * (L / 2 * beta**2 * 3 * p * (a @ a) - beta * (1 - L * alpha) * (reference.memory @ a))
    assert found["gamma"] == pytest.approx(gamma, rel=1e-9)
    losses = [Softmax.of(before, 4, 6).loss_and_gradient(*samples(reference.federation, k, 1))[0] for k in range(3)]
    assert run.rounds[-1].loss == pytest.approx(np.mean(losses), rel=1e-9)


def test_the_memory_is_filled_before_the_first_exchange_of_a_task_and_frozen_in_it(
    c_flag_config, simulate, monkeypatch
):
    """Class-balanced: 4 slots for what arrived before, none in task 1, the same in both rounds of task 2."""
    held = []
    real = CFlag.Client.gradients

    def spy(self, client, mail):
        held.append((client.id, client.memory.entries().positions.tolist()))
        return real(self, client, mail)

    monkeypatch.setattr(CFlag.Client, "gradients", spy)
    run = simulate(c_flag_config(knobs={}, memory={"capacity": 4}))
    assert [positions for _, positions in held[:6]] == [[]] * 6
    assert held[6:9] == held[9:]
    for client, positions in held[6:9]:
        assert len(positions) == 4
        assert max(positions) < run.simulation.federation.streams[client].size(0)
    host = run.simulation.runner.host
    assert {c.memory.kind.policy for c in host.clients.values()} == {"class_balanced"}
    assert {c.memory.kind.fill for c in host.clients.values()} == {"boundary"}


def test_a_smaller_sample_is_drawn_anew_in_each_round(c_flag_config, simulate, monkeypatch):
    drawn = []
    real = c_flag.replay.gradient_on
    monkeypatch.setattr(
        c_flag.replay,
        "gradient_on",
        lambda c, e, n: drawn.append((c.id, sorted(e.positions.tolist()))) or real(c, e, n),
    )
    simulate(c_flag_config(knobs={"sample_size": 3}))
    assert len(drawn) == 6
    assert {len(set(positions)) for _, positions in drawn} == {3}
    assert drawn[:3] != drawn[3:]


def test_only_the_clients_with_a_memory_count_for_f(c_flag_config, host_of, quiet_torch):
    """F = sum p_i F_i / sum p_i over clients 1 and 2, whose shares are 0.3 and 0.2; client 0 remembers nothing."""
    host = host_of(c_flag_config())
    for client in host.clients.values():
        client.take_up(0)
    order = Order("c_flag.gradients", (0, 1, 2), None, {0: 0.5, 1: 0.3, 2: 0.2}, 3, Phase(3, 1, BETA))
    for client in host.clients.values():
        client.take_up(1)
    host.clients[0].memory.replace(torch.zeros(0, dtype=torch.int64))
    reply = host.perform(order).of("c_flag", CFlag.replies, torch.float64)
    w = host.model.parameters.numpy()
    f = [gradient(w, *samples(host.federation, k, 0)) for k in (1, 2)]
    np.testing.assert_allclose(reply["memory_gradient"], (0.3 * f[0] + 0.2 * f[1]) / 0.5, rtol=0, atol=1e-14)
    g = [gradient(w, *samples(host.federation, k, 1)) for k in range(3)]
    np.testing.assert_allclose(reply["gradient"], 0.5 * g[0] + 0.3 * g[1] + 0.2 * g[2], rtol=0, atol=1e-14)


@pytest.mark.parametrize(("order", "wanted"), [("cyclic", [0, 1, 2, 0, 1]), ("reshuffled", None), ("random", None)])
def test_the_orders_of_components(order, wanted):
    found = choices(order, 5, 3, np.random.default_rng(3))
    assert wanted is None or found == wanted
    assert len(found) == 5
    assert set(found) <= {0, 1, 2}
    assert order != "reshuffled" or sorted(found[:3]) == [0, 1, 2]
    assert choices(order, 0, 0, np.random.default_rng(3)) == []


def test_random_components_are_uniform_and_with_replacement():
    """3,000 draws of 3: each 1000 +- 4 * sqrt(3000 * 2/9); the same twice in a row about a third of the time."""
    found = np.array(choices("random", 3000, 3, np.random.default_rng(0)))
    assert (abs(np.bincount(found) - 1000) < 104).all()
    assert abs((found[1:] == found[:-1]).mean() - 1 / 3) < 0.05


# Models that draw or count


@pytest.mark.parametrize("mode", ["iag", "svrg"])
@pytest.mark.parametrize("model", [{"dropout": 0.4}, {"batch_norm": True}])
def test_keeping_the_tables_gives_the_same_bits(tiny, simulate, model, mode):
    def run(table):
        knobs = {"table": table, "mode": mode}
        model_block = {"name": "mlp", "hidden": [5], **model}
        config = tiny(model=model_block, methods={"c_flag": knobs}, dataset__train=39, training__local_epochs=2)
        return simulate(config)

    kept, rebuilt = run("keep"), run("rebuild")
    assert kept.sha256 == rebuilt.sha256
    assert [r.loss for r in kept.rounds] == [r.loss for r in rebuilt.rounds]


def test_a_component_keeps_its_dropout_mask_in_a_phase_only(tiny, host_of, quiet_torch):
    """Its loss twice at one model is one number; another component's, and the next phase's, is drawn anew."""
    host = host_of(tiny(model={"name": "mlp", "dropout": 0.5}, methods={"c_flag": {}}))
    client = host.clients[0]
    client.take_up(0)
    host.model.module.train()
    first, again, later = (Components(client, phase) for phase in (1, 1, 2))
    losses = [float(c.gradient(0)[0]) for c in (first, first, again, later)]
    assert losses[0] == losses[1] == losses[2] != losses[3]
    x, y = first._shown[0]
    first._shown[1] = (x, y)
    assert float(first.gradient(1)[0]) != losses[0]
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first._shown[2:], later._shown[2:], strict=True))


@pytest.mark.parametrize("table", ["rebuild", "keep"])
def test_statistics_move_in_phase_b_only(tiny, host_of, quiet_torch, table):
    """BatchNorm, one component, one epoch: the table's pass alone moves the mean to 0.1 times the batch's.

    13 samples at 4: the last sample joins the third component, as BatchNorm cannot take it alone.
    """
    config = tiny(model={"name": "mlp", "batch_norm": True}, methods={"c_flag": {"table": table}}, dataset__train=39)
    host = host_of(config)
    order = Order("c_flag.gradients", (0,), None, {0: 1.0}, 1, Phase(1, 0, BETA))
    host.perform(order)
    client = host.clients[0]
    assert Components(client, 1).weights == [4 / 13, 4 / 13, 5 / 13]
    mail = {"c_flag": {"posted": [], "cohort": 1, "past_per_new": 0.0}}
    reply = host.perform(Order("train", (0,), mail, {0: 1.0}, 1, Phase(1, 0, BETA)))
    moved = reply.delta(torch.float32).buffers
    assert (moved != 0).all()
    assert reply.integers[1].tolist() == [5, 5]  # 3 of the table's pass, 2 refreshes; none of phase A's
    buffers = host.posts["model"].value.buffers
    np.testing.assert_allclose(buffers + moved, host.model.buffers, rtol=0, atol=1e-6)


def test_augmented_samples_are_the_same_in_both_phases_of_a_round(tiny, simulate):
    """Else the rebuilt table's sum would not be the gradient that was sent, which is an error."""
    config = tiny(
        dataset={"name": "digits", "augment": ["crop", "flip"]},
        scenario={"kind": "class_incremental", "tasks": 2},
        methods={"c_flag": {}},
        training__batch_size=200,
    )
    assert all(value.isfinite().all() for value in simulate(config).state.values())


def test_a_model_that_draws_elsewhere_is_noticed(c_flag_config, simulate):
    with pytest.raises(RunError, match=r"came out differently .* methods\.c_flag\.table=keep"):
        simulate(c_flag_config(model={"name": "test_c_flag:restless"}))


class Restless(nn.Linear):
    calls = 0

    def forward(self, x):
        Restless.calls += self.training
        return super().forward(x) * (1 + 0.01 * Restless.calls)


def restless(shape, classes):
    """A model whose output depends on how often it was called."""
    return Restless(shape[0], classes)


def test_tables_that_do_not_fit_are_refused_with_the_figure(c_flag_config, simulate, monkeypatch):
    """36 samples of task 1 in batches of 1: 36 rows of 28 float64 for the three clients, 8064 bytes, 0.8 of 10 KB."""
    config = c_flag_config(knobs={"table": "keep"}, training__batch_size=1)

    class Free:
        available, total = 8064 / 0.8 - 1, 2**40

    monkeypatch.setattr("raysim.iag.psutil.virtual_memory", lambda: Free)
    monkeypatch.setattr("raysim.iag.GIB", 1000)
    with pytest.raises(RunError, match=r"methods\.c_flag\.table: keep would take 8\.1 GiB for 3 clients .* 10\.1 GiB"):
        simulate(config)
    Free.available += 1
    simulate(config)


def test_a_client_that_batch_norm_cannot_serve_sends_no_gradients(tiny, simulate):
    """Client 2 has one sample of each task: no component, no step, no F_2; what the others send counts for more."""
    config = tiny(model={"name": "probes:normalised"}, methods={"c_flag": {}}, memory={"capacity": 100})
    federation = build_federation(config)
    few = type(federation.streams[2])([rows[:1] for rows in federation.streams[2].rows])
    streams = [*federation.streams[:2], few]
    run = simulate(config, dataclasses.replace(federation, streams=streams, calendar=calendar(config, streams)))
    assert all(value.isfinite().all() for value in run.state.values())
    size = sum(p.numel() for p in run.simulation.model.module.parameters()) * 8
    kept = run.rounds[0].bytes_up - 5 * size  # statistics
    assert [r.bytes_up - kept for r in run.rounds] == [5 * size] * 2 + [7 * size] * 2
