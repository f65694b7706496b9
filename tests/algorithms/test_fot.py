"""FOT (Bakman et al., ICLR 2024), in float64 against NumPy, and its guarantee on the server's model."""

import numpy as np
import pytest
import torch
from softmax_oracle import Softmax, batch_order
from test_gpm import numpy_basis

from raysim.algorithms import fot
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.system import seeding
from raysim.system.errors import ConfigError

SMALL_RUN = {"sends_at_end": True}

SOFTMAX = {"name": "probes:softmax"}


def shown(federation, k, task):
    rows = torch.from_numpy(federation.streams[k].rows[task].astype(np.int64))
    x = federation.source("train", torch.device("cpu")).fetch(rows, task)
    return x.double().numpy(), federation.dataset.train.y[federation.streams[k].rows[task]]


def reference(config, cohorts, epsilon, increment, columns, samples):
    """FedAvg with FOT in NumPy on softmax regression: the final model, and the server's basis.

    The paper's protocol: clients take the basis out of their inputs before they sketch them.
    """
    federation = build_federation(config)
    module = build_model(config, federation.shape, federation.classes)
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    training, count = config.training, config.clients.count
    phases, asked, basis = [0] * count, [0] * count, np.zeros((6, 0))
    for number, cohort in enumerate(cohorts):
        task, change = number // training.rounds_per_task, np.zeros_like(theta)
        for k in cohort:
            phases[k], asked[k] = phases[k] + 1, 0
            x, y = shown(federation, k, task)
            local = theta
            for batch in batch_order(config.seed, k, phases[k], len(y), training.local_epochs, training.batch_size):
                local = local - 0.1 * Softmax.of(local, 4, 6).loss_and_gradient(x[batch], y[batch])[1]
            change = change + (local - theta) / len(cohort)
        weight = change[:24].reshape(4, 6)
        change[:24] = (weight - weight @ basis @ basis.T).reshape(-1)
        theta = theta + change
        if (number + 1) % training.rounds_per_task == 0:
            rest = total = 0
            for k in range(count):
                asked[k] += 1  # since its last phase
                draws = seeding.generator(config.seed, k, phases[k], asked[k], "fot")
                x, _ = shown(federation, k, task)
                x = x[draws.permutation(len(x))[:samples]]
                parts = [x[start : start + training.batch_size] for start in range(0, len(x), training.batch_size)]
                for part in parts:
                    omega = draws.standard_normal((len(part), 6 * columns), dtype=np.float32)
                    total = total + part.T @ omega
                    rest = rest + (part.T - basis @ (basis.T @ part.T)) @ omega
            covered = 1 - (rest**2).sum() / (total**2).sum()
            want = epsilon + increment * task
            directions, values, _ = np.linalg.svd(rest)
            more = 0
            while covered < want:
                covered += values[more] ** 2 / (total**2).sum()
                more += 1
            basis = np.hstack([basis, directions[:, :more]])
    return theta, basis


def test_a_run_is_fot_in_numpy(tiny, simulate):
    knobs = {"epsilon": 0.6, "increment": 0.15, "columns": 2, "samples": 10}
    more = {"scenario__tasks": 3, "participation": {"count": 2}, "training__local_epochs": 2}
    config = tiny(model=SOFTMAX, methods={"fot": knobs}, **more)
    run = simulate(config)
    wanted, basis = reference(config, [r.cohort for r in run.rounds], 0.6, 0.15, 2, 10)
    np.testing.assert_allclose(run.simulation.server.parameters, wanted, rtol=0, atol=1e-9)
    (held,) = run.simulation.exchange.halves["fot"].bases.values()
    np.testing.assert_allclose(held @ held.T, basis @ basis.T, atol=1e-7)
    np.testing.assert_allclose(held.T @ held, np.eye(held.shape[1]), atol=1e-10)
    assert 0 < basis.shape[1] < 6


@pytest.mark.parametrize("optimizer", [{"lr": 0.1, "momentum": 0.9}, {"name": "adam", "lr": 0.01, "weight_decay": 0.1}])
def test_the_servers_model_answers_inputs_in_the_span_as_before(tiny, simulate, optimizer):
    """The guarantee, on the mean of three clients however they train: (W + D) x = W x for every x in O's span."""
    more = {"model": SOFTMAX, "training__optimizer": optimizer}

    def weights(tasks, methods):
        run = simulate(tiny(scenario__tasks=tasks, methods=methods, **more))
        return run, run.simulation.server.parameters[:24].view(4, 6).numpy()

    run, before = weights(1, {"fot": {"epsilon": 0.7}})
    (basis,) = run.simulation.exchange.halves["fot"].bases.values()
    assert 0 < basis.shape[1] < 6
    for methods, same in (({"fot": {"epsilon": 0.7}}, True), ({}, False)):
        change = weights(2, methods)[1] - before
        assert (np.abs(change @ basis.numpy()).max() < 1e-12) == same
        assert np.abs(change).max() > 1e-3
    np.testing.assert_allclose(weights(2, {"fot": {"epsilon": 1.0}})[1], before, atol=1e-12)


def test_a_projected_update_still_descends(tiny, simulate):
    """<D, D'> = ||D'||^2 >= 0, as D' is a projection of D: with one step, D is -lr times the gradient."""
    run = simulate(tiny(model=SOFTMAX, methods={"fot": {"epsilon": 0.7}}))
    half, server = run.simulation.exchange.halves["fot"], run.simulation.server
    delta = fot.Delta(torch.randn(28, dtype=torch.float64), torch.zeros(0))
    kept = delta.parameters.clone()
    projected = half.update(server, delta, {}).parameters
    assert torch.equal(delta.parameters, kept)
    assert projected.dot(kept).item() == pytest.approx(projected.dot(projected).item(), rel=1e-12)
    assert torch.equal(projected[24:], kept[24:])


def test_sketched_with_the_identity_a_client_has_gpms_memory(tiny, simulate, monkeypatch):
    """S = A if Omega = I (one batch of 6 samples, d = 6): then FOT's basis of a task spans what GPM's does."""
    monkeypatch.setattr(fot, "random_matrix", lambda draws, rows, columns: torch.eye(rows, columns))
    data = {"name": "synthetic", "classes": 4, "shape": [6], "train": 6, "test": 8}
    more = {"clients__count": 1, "dataset": data, "training__batch_size": 6, "model": SOFTMAX}
    found = simulate(tiny(scenario__tasks=1, methods={"fot": {"epsilon": 0.8}}, **more))
    (basis,) = found.simulation.exchange.halves["fot"].bases.values()
    x, _ = shown(found.simulation.federation, 0, 0)
    wanted = numpy_basis(np.zeros((6, 0)), x.T, 0.8)
    np.testing.assert_allclose(basis @ basis.T, wanted @ wanted.T, atol=1e-10)


def test_epsilon_0_and_task_1_are_fedavg_bit_for_bit(tiny, simulate):
    for tasks, epsilon, same in ((2, 0.0, True), (1, 0.9, True), (2, 0.9, False)):
        runs = [simulate(tiny(scenario__tasks=tasks, methods=m)).sha256 for m in ({}, {"fot": {"epsilon": epsilon}})]
        assert (runs[0] == runs[1]) == same


@pytest.mark.parametrize(("knobs", "numbers"), [({}, 36 + 25), ({"columns": 3}, 183), ({"head": "free"}, 36)])
def test_a_sketch_is_sent_once_per_task_and_nothing_comes_down(tiny, simulate, knobs, numbers):
    """Layers of d = 6 and 5: d^2 numbers each. For it the new model comes early, so that the next round need not."""
    runs = [simulate(tiny(methods=methods)) for methods in ({}, {"fot": knobs})]
    plain, found = ([(r.bytes_up, r.bytes_down) for r in run.rounds] for run in runs)
    model = runs[0].simulation.model.weights().nbytes
    more = [(up - up_0, down - down_0) for (up, down), (up_0, down_0) in zip(found, plain, strict=True)]
    sent = 3 * 4 * numbers
    assert more == [(0, 0), (sent, 3 * model), (0, -3 * model), (sent, 3 * model)]
    idle = simulate(tiny(methods={"fot": {**knobs, "epsilon": 0.0}}))
    assert [(r.bytes_up, r.bytes_down) for r in idle.rounds] == plain


def test_without_clients_at_a_tasks_end_the_bases_stay(tiny, simulate):
    """All three clients leave at round 4, the last round of the second task."""
    leave = {"clients__leave": [{"round": 4, "clients": [0, 1, 2]}]}
    half = simulate(tiny(methods={"fot": {}}, **leave)).simulation.exchange.halves["fot"]
    whole = simulate(tiny(methods={"fot": {}})).simulation.exchange.halves["fot"]
    assert (half.tasks, whole.tasks) == (2, 2)
    assert half.bases.keys() == whole.bases.keys()
    assert all(half.bases[name].shape[1] <= whole.bases[name].shape[1] for name in half.bases)


def test_a_resumed_run_has_the_same_bits(resumed):
    whole, again = resumed(3, methods={"fot": {"head": "free", "samples": 5}}, scenario__tasks=3)
    assert whole == again


def test_where_no_boundary_is_known_it_is_refused(tiny):
    config = tiny(scenario__boundaries={"jittered": {"rounds": 1}}, training__rounds_per_task=3, methods={"fot": {}})
    with pytest.raises(ConfigError, match=r"methods\.fot: needs boundaries that all clients have at the same time"):
        check_methods(config)
