"""C-FLAG against a second writing in NumPy (c_flag_oracle.py), and what one round comes to: oracles 1 to 7, in float64.

Two losses: the cross-entropy of softmax regression (tests/softmax_oracle.py), and least squares onto one-hot labels,
which `squares` puts in its place, so that every client's loss is a quadratic whose minimum is a linear system's.
"""

import itertools

import numpy as np
import pytest
import torch
from c_flag_oracle import BETA, Reference, gradient, initial, last_round, samples, vector

from raysim.algorithms import c_flag
from raysim.engine.orders import RoundInfo
from raysim.federation.federation import build_federation

SMALL_RUN = {"hyperparameters": {"alpha": 0.01}, "unsure_bytes": True}

SOFTMAX = {"name": "probes:softmax"}
OFF = {"adaptive": "off"}


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


# Oracles 1 and 2: the table


def test_the_sum_is_the_tables_and_one_row_changes_per_step_after_the_first(c_flag_config, phases, monkeypatch):
    """Oracle 1. E epochs of c components are E c steps, all but the first refreshing one row: E c - 1 refreshes.

    The row is the component's gradient at the model of that moment, and the kept sum is sum_j w_j T[j] recomputed.
    """
    _, _, _, seen, train = phases(c_flag_config(training__local_epochs=3), monkeypatch)
    train()
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
    host, _, sent, _, train = phases(tiny(model=kind, methods={"c_flag": {}}, dataset__train=39), monkeypatch)
    half = host.clients[0].halves["c_flag"]
    own, seen = half.own.clone(), []
    real = type(half)._table
    monkeypatch.setattr(type(half), "_table", lambda self, *a: seen.append(real(self, *a)) or seen[-1])
    monkeypatch.setattr(c_flag, "refresh", lambda *a: None)
    train()
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
    client.receive_data(0)
    client.begin_exchange("c_flag", RoundInfo(1, 0, BETA), 0.5)
    half.gradients(client, None)
    client.begin_phase(RoundInfo(1, 0, BETA), 0.5)
    draws = np.random.default_rng(0)
    big_g, big_f = (torch.from_numpy(draws.standard_normal(len(client.received))) for _ in range(2))
    host.receive([c_flag.Broadcast("c_flag.gradient", 1, big_g), c_flag.Broadcast("c_flag.memory_gradient", 1, big_f)])
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
