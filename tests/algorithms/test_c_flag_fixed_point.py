"""C-FLAG, oracle 13: who computes where, and where it all leads."""

import dataclasses

import numpy as np
import pytest
import torch
from c_flag_oracle import samples, vector

from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.availability import plan_availability
from raysim.federation.federation import build_federation
from raysim.system import seeding

OFF = {"adaptive": "off"}


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
    other = dataclasses.replace(federation, streams=streams, availability=plan_availability(config, streams))
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
            model={"name": "c_flag_oracle:linear"},
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
