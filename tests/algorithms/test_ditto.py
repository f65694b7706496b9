"""Ditto (Li et al., ICML 2021): Algorithm 1 in NumPy, and its limits. That it moves no bit is in the contract grid."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from softmax_oracle import Softmax, batch_order
from test_fedper import initial, owned, samples

from raysim.algorithms.ditto import Ditto
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

LOCAL = {"evaluation": {"model": "local"}}
SOFTMAX = {"model": {"name": "probes:softmax"}}
SKEWED = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 2}


def ditto(config, federation, cohorts, lam, rate):
    """Line 6 in NumPy: v_k after the last round, beside FedAvg's w, on the batches of its steps."""
    w, v, phases = initial(config, federation), {}, {}
    for number, cohort in enumerate(cohorts):
        moves = []
        for k in cohort:
            phases[k] = phases.get(k, 0) + 1
            x, y = samples(federation, k, number // 2)
            own, mine = w.copy(), v.get(k, w).copy()
            for batch in batch_order(config.seed, k, phases[k], len(y), 1, 4):
                own = own - 0.1 * Softmax.of(own, 4, 6).loss_and_gradient(x[batch], y[batch])[1]
                gradient = Softmax.of(mine, 4, 6).loss_and_gradient(x[batch], y[batch])[1]
                mine = mine - rate * (gradient + lam * (mine - w))
            v[k] = mine
            moves.append(own - w)
        w = w + np.mean(moves, axis=0)
    return v


@pytest.mark.parametrize(("lam", "rate"), [(0.7, None), (2.0, 0.05), (0.0, None)])
def test_a_run_is_algorithm_1_in_numpy(tiny, simulate, lam, rate):
    """Two of three unequal clients in a round: v_k waits while its client does, and is pulled to the newest w."""
    config = tiny(
        **SOFTMAX, participation={"count": 2}, methods={"ditto": {"lam": lam, "rate": rate}}, **LOCAL, **SKEWED
    )
    federation = build_federation(config)
    run = simulate(config, federation)
    expected = ditto(config, federation, [done.cohort for done in run.rounds], lam, rate or 0.1)
    for k, found in enumerate(owned(run)):
        assert np.allclose(found, expected[k], rtol=0, atol=1e-11)


def test_without_a_pull_it_is_local_training_alone(tiny, simulate):
    """As FedPer's with all layers: the same batches, and a model that never meets another. All begin in round 1."""
    more = {**SOFTMAX, **LOCAL, **SKEWED}
    alone = owned(simulate(tiny(methods={"fedper": {}}, **more)))
    for found, expected in zip(owned(simulate(tiny(methods={"ditto": {"lam": 0.0}}, **more))), alone, strict=True):
        assert np.allclose(found, expected, rtol=0, atol=1e-12)


def test_a_strong_pull_approaches_the_global_model(tiny, simulate, monkeypatch):
    """v - w <- (v - w - lr g) / (1 + lr lambda), so it tends to -g / lambda: 100 times the pull, a hundredth."""
    distance, personal = {}, Ditto.Client.personalize

    def measured(half, client, own):
        v = personal(half, client, own)
        distance[half.method.lam] = float((v.parameters - client.received).norm())
        return v

    monkeypatch.setattr(Ditto.Client, "personalize", measured)
    for lam in (1e2, 1e4, 1e6):
        simulate(tiny(**SOFTMAX, methods={"ditto": {"lam": lam}}, **LOCAL))
    assert distance[1e4] == pytest.approx(100 * distance[1e6], rel=0.01)
    assert distance[1e2] == pytest.approx(100 * distance[1e4], rel=0.2)


def test_its_statistics_are_its_own(tiny, simulate):
    """BatchNorm of v_k has counted the same batches and seen other activations; the model's are FedAvg's."""
    more = {"model": {"name": "probes:normalised"}, **LOCAL}
    run, plain = simulate(tiny(methods={"ditto": {"lam": 0.1}}, **more)), simulate(tiny(**more))
    assert torch.equal(run.simulation.server.buffers, plain.simulation.server.buffers)
    clients = run.simulation.runner.host.clients
    own = [clients[k].personalized for k in range(3)]
    assert [integers.tolist() for *_, integers in own] == [[12]] * 3  # 3 batches in each of 4 phases
    others = plain.simulation.runner.host.clients
    assert all(own[k][1].tolist() != others[k].personalized[1].tolist() for k in range(3))


def test_data_without_labels_are_left_out():
    """A batch that is not of the stream, as a reviewer of CFeD's has, neither trains v_k nor pulls it."""
    half = Ditto.Client("ditto", Ditto())
    half.own = (torch.ones(3), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    half.observe(SimpleNamespace(positions=torch.zeros(0, dtype=torch.int64)))
    assert half.own[0].tolist() == [1, 1, 1]


def test_a_local_loop_of_anothers_own_is_refused(tiny):
    with pytest.raises(ConfigError, match=r"ditto changes the local loop \(observe\), which c_flag replaces"):
        check_methods(tiny(methods={"ditto": {}, "c_flag": {}}))
