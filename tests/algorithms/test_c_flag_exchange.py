"""C-FLAG, oracle 14 (FedTrack's half is in test_fedtrack.py): bytes, records, memories, the order of components."""

import numpy as np
import pytest
import torch
from c_flag_oracle import BETA, L, gradient, last_round, samples
from softmax_oracle import Softmax

from raysim.algorithms import c_flag
from raysim.algorithms.c_flag import CFlag
from raysim.algorithms.parts.gradient_table import choose_components
from raysim.engine.orders import Call, Order, RoundInfo


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

    def spy(self, client, message):
        held.append((client.id, client.memory.entries().positions.tolist()))
        return real(self, client, message)

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
        client.receive_data(0)
    order = Order(Call("c_flag", "gradients"), (0, 1, 2), {0: 0.5, 1: 0.3, 2: 0.2}, 3, RoundInfo(3, 1, BETA))
    for client in host.clients.values():
        client.receive_data(1)
    host.clients[0].memory.parts.clear()
    reply = host.perform(order, None).of("c_flag", CFlag.replies, torch.float64)
    w = host.model.parameters.numpy()
    f = [gradient(w, *samples(host.federation, k, 0)) for k in (1, 2)]
    np.testing.assert_allclose(reply["memory_gradient"], (0.3 * f[0] + 0.2 * f[1]) / 0.5, rtol=0, atol=1e-14)
    g = [gradient(w, *samples(host.federation, k, 1)) for k in range(3)]
    np.testing.assert_allclose(reply["gradient"], 0.5 * g[0] + 0.3 * g[1] + 0.2 * g[2], rtol=0, atol=1e-14)


@pytest.mark.parametrize(("order", "wanted"), [("cyclic", [0, 1, 2, 0, 1]), ("reshuffled", None), ("random", None)])
def test_the_orders_of_components(order, wanted):
    found = choose_components(order, 5, 3, np.random.default_rng(3))
    assert wanted is None or found == wanted
    assert len(found) == 5
    assert set(found) <= {0, 1, 2}
    assert order != "reshuffled" or sorted(found[:3]) == [0, 1, 2]
    assert choose_components(order, 0, 0, np.random.default_rng(3)) == []


def test_random_components_are_uniform_and_with_replacement():
    """3,000 draws of 3: each 1000 +- 4 * sqrt(3000 * 2/9); the same twice in a row about a third of the time."""
    found = np.array(choose_components("random", 3000, 3, np.random.default_rng(0)))
    assert (abs(np.bincount(found) - 1000) < 104).all()
    assert abs((found[1:] == found[:-1]).mean() - 1 / 3) < 0.05
