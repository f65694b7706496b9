"""GPM (Saha et al., ICLR 2021), in float64 against NumPy, and its guarantee on the server's model."""

import math

import numpy as np
import pytest
import torch
from softmax_oracle import Softmax, batch_order

import raysim
from raysim.algorithms.parts.subspace import extend_basis, remove_span
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.launch.check import estimate_run
from raysim.models.building import build_model
from raysim.system import seeding
from raysim.system.errors import ConfigError

SOFTMAX = {"name": "probes:softmax"}
DEEP = {"name": "mlp", "hidden": [5]}
DATA = {"name": "synthetic", "classes": 4, "shape": [6], "train": 36, "test": 20}


def moment(*rows):
    inputs = torch.tensor(rows, dtype=torch.float64)
    return inputs @ inputs.T


def empty(d):
    return torch.zeros(d, 0, dtype=torch.float64)


@pytest.mark.parametrize(("threshold", "columns"), [(0, 0), (0.5, 1), (0.9, 1), (0.95, 2), (1, 2)])
def test_directions_of_a_first_task(threshold, columns):
    """R = diag(3, 1): of the energy 10, e1 holds 9 and e2 the rest. The authors' code adds one fewer each time."""
    found = extend_basis(empty(2), moment([3, 0], [0, 1]), threshold)
    np.testing.assert_allclose(found.abs(), np.eye(2)[:, :columns], atol=1e-15)


@pytest.mark.parametrize(("threshold", "columns"), [(0.75, 1), (0.8, 1), (0.9, 2), (1, 2)])
def test_directions_of_a_second_task(threshold, columns):
    """M = e1, R = diag(2, 1): e1 covers 4 of 5; what is missing to a threshold above .8 is e2."""
    found = extend_basis(torch.eye(2, dtype=torch.float64)[:, :1], moment([2, 0], [0, 1]), threshold)
    np.testing.assert_allclose(found.abs(), np.eye(2)[:, :columns], atol=1e-15)


def test_no_input_is_no_direction_and_a_full_basis_stays():
    assert extend_basis(empty(3), torch.zeros(3, 3, dtype=torch.float64), 1.0).shape == (3, 0)
    full = extend_basis(empty(3), torch.eye(3, dtype=torch.float64), 1.0)
    assert extend_basis(full, torch.eye(3, dtype=torch.float64), 1.0).shape == (3, 3)


def test_a_basis_is_orthonormal_and_what_is_projected_has_no_part_in_it():
    draws = np.random.default_rng(0)
    first, second = (torch.from_numpy(draws.normal(size=(7, 40)) * draws.exponential(size=(7, 1))) for _ in range(2))
    basis = extend_basis(extend_basis(empty(7), first @ first.T, 0.6), second @ second.T, 0.8)
    assert 2 < basis.shape[1] < 7
    np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-10)
    gradient = torch.from_numpy(draws.normal(size=(4, 7)))
    once = gradient.clone()
    remove_span({"w": once}, {"w": basis})
    np.testing.assert_allclose(once @ basis, 0, atol=1e-14)
    twice = once.clone()
    remove_span({"w": twice}, {"w": basis})
    np.testing.assert_allclose(twice, once, atol=1e-14)
    by_hand = torch.tensor([[5.0, 7.0]])
    remove_span({"w": by_hand}, {"w": torch.tensor([[1.0], [0.0]])})
    assert by_hand.tolist() == [[0.0, 7.0]]


def numpy_basis(basis, inputs, threshold):
    """Eq. 9 of the paper with the singular value decomposition of the inputs' rest, [d, n]."""
    total = (inputs**2).sum()
    rest = inputs - basis @ (basis.T @ inputs)
    directions, values, _ = np.linalg.svd(rest)
    covered, columns = 1 - (rest**2).sum() / total, 0
    while covered < threshold - 1e-12 and columns < len(values):
        covered += values[columns] ** 2 / total
        columns += 1
    return np.hstack([basis, directions[:, :columns]])


def reference(config, cohorts, threshold, per_task, samples, freeze):
    """FedAvg with GPM in NumPy on softmax regression: the final model, and each client's bases with what they hold."""
    federation = build_federation(config)
    module = build_model(config, federation.shape, federation.classes)
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    training, count = config.training, config.clients.count
    phases, begun, bases = [0] * count, [0] * count, [np.zeros((6, 0)) for _ in range(count)]
    known = [0] * count
    for number, cohort in enumerate(cohorts):
        task = number // training.rounds_per_task
        change = np.zeros_like(theta)
        for k in cohort:
            phases[k] += 1
            stream, source = federation.streams[k], federation.source("train", torch.device("cpu"))
            shown = [
                (source.fetch(torch.from_numpy(r.astype(np.int64)), t).double().numpy(), federation.dataset.train.y[r])
                for t, r in zip(stream.tasks, stream.rows, strict=True)
            ]
            if phases[k] > 1 and begun[k] < task:
                finished = np.concatenate([shown[t][0] for t in range(begun[k], task)])
                order = seeding.generator(config.seed, k, phases[k], 0, "gpm").permutation(len(finished))
                share = min(threshold + known[k] * per_task, 1)
                bases[k] = numpy_basis(bases[k], finished[order[:samples]].T, share)
                known[k] += 1
            begun[k] = task
            x, y = shown[task]
            local = theta
            for batch in batch_order(config.seed, k, phases[k], len(y), training.local_epochs, training.batch_size):
                gradient = Softmax.of(local, 4, 6).loss_and_gradient(x[batch], y[batch])[1]
                weight = gradient[:24].reshape(4, 6)
                gradient[:24] = (weight - weight @ bases[k] @ bases[k].T).reshape(-1)
                if freeze and known[k]:
                    gradient[24:] = 0
                local = local - 0.1 * gradient
            change = change + local - theta
        theta = theta + change / len(cohort)
    return theta, bases


@pytest.mark.parametrize("freeze", [True, False])
def test_a_run_is_gpm_in_numpy(tiny, simulate, freeze):
    """One of three clients a round: who misses a task's first rounds, or a whole task, looks back when it comes."""
    knobs = {"threshold": [0.6], "per_task": 0.15, "samples": 9, "freeze_rest": freeze}
    more = {"scenario__tasks": 3, "training__rounds_per_task": 5, "training__local_epochs": 2}
    config = tiny(model=SOFTMAX, methods={"gpm": knobs}, participation={"count": 1}, **more)
    run = simulate(config)
    wanted, bases = reference(config, [r.cohort for r in run.rounds], 0.6, 0.15, 9, freeze)
    np.testing.assert_allclose(run.simulation.server.parameters, wanted, rtol=0, atol=1e-10)
    clients = run.simulation.runner.host.clients
    for k, basis in enumerate(bases):
        (held,) = (clients[k].halves["gpm"].bases or {"none": np.zeros((6, 0))}).values()
        np.testing.assert_allclose(held @ held.T, basis @ basis.T, atol=1e-10)
    assert any(clients[k].halves["gpm"].tasks == 2 and 0 < basis.shape[1] < 6 for k, basis in enumerate(bases))


def inputs_of_the_first_task(run):
    federation, held = run.simulation.federation, []
    for stream in federation.streams:
        rows = torch.from_numpy(stream.rows[0].astype(np.int64))
        held.append(federation.source("train", torch.device("cpu")).fetch(rows, 0).numpy())
    return held


@pytest.mark.parametrize("optimizer", [{"lr": 0.1}, {"lr": 0.1, "momentum": 0.9, "nesterov": True}])
def test_the_servers_model_of_one_client_answers_inputs_in_the_span_as_before(tiny, simulate, optimizer):
    """The guarantee: (W + D) x = W x for every x in the span of M, D being what a later task added to the server's W.

    Of a full basis (threshold 1) nothing moves at all; without GPM it does.
    """
    more = {"clients__count": 1, "training__optimizer": optimizer, "training__local_epochs": 2}

    def weights(tasks, **knobs):
        methods = {"gpm": knobs} if knobs else {}
        run = simulate(tiny(model=SOFTMAX, scenario__tasks=tasks, methods=methods, **more))
        return run, run.simulation.server.parameters[:24].view(4, 6)

    _, before = weights(1, threshold=[0.7])
    run, after = weights(2, threshold=[0.7])
    (basis,) = run.simulation.runner.host.clients[0].halves["gpm"].bases.values()
    assert 0 < basis.shape[1] < 6
    (inputs,) = inputs_of_the_first_task(run)
    within = torch.from_numpy(inputs).double() @ basis @ basis.T
    np.testing.assert_allclose(within @ after.T, within @ before.T, atol=1e-12)
    assert (after - before).abs().max() > 0.01
    assert ((within @ (weights(2)[1] - before).T).abs().max()) > 0.01
    np.testing.assert_allclose(weights(2, threshold=[1.0])[1], before, atol=1e-12)


def test_of_several_clients_the_mean_is_orthogonal_to_what_all_spans_share(tiny, simulate):
    """Spans of 5 of 6 dimensions share at least 4: nothing is added there, but to each client's span as a whole."""
    more = {"model": SOFTMAX, "clients__count": 2, "methods": {"gpm": {"threshold": [0.9]}}}
    before = simulate(tiny(scenario__tasks=1, **more)).simulation.server.parameters[:24].view(4, 6)
    run = simulate(tiny(**more))
    change = (run.simulation.server.parameters[:24].view(4, 6) - before).numpy()
    clients = run.simulation.runner.host.clients
    bases = [next(iter(clients[k].halves["gpm"].bases.values())).numpy() for k in range(2)]
    outside = np.hstack([np.linalg.svd(basis)[0][:, basis.shape[1] :] for basis in bases])
    directions, values, _ = np.linalg.svd(outside)
    shared = directions[:, (values > 1e-10).sum() :]
    assert shared.shape[1] == 6 - outside.shape[1] > 0
    np.testing.assert_allclose(change @ shared, 0, atol=1e-12)
    assert all(np.abs(change @ basis).max() > 1e-3 for basis in bases)


@pytest.mark.parametrize(
    ("knobs", "moving"),
    [
        ({"threshold": [1.0]}, []),
        ({"threshold": [1.0], "head": "free"}, ["3.weight", "3.bias"]),
        ({"threshold": [1.0], "freeze_rest": False}, ["1.bias", "3.bias"]),
        ({"threshold": [0.0, 1.0], "freeze_rest": False}, ["1.weight", "1.bias", "3.bias"]),
    ],
)
def test_what_is_projected_and_what_is_free(tiny, simulate, knobs, moving):
    """Hidden units may be dead, so of a full basis a layer's weight has what ten batches of ReLU leave: all of it."""
    more = {"clients__count": 1, "model": {"name": "mlp", "hidden": [3]}, "dataset": {**DATA, "train": 60}}
    states = [simulate(tiny(scenario__tasks=tasks, methods={"gpm": knobs}, **more)).state for tasks in (1, 2)]
    assert list(states[0]) == ["1.weight", "1.bias", "3.weight", "3.bias"]
    moved = [name for name in states[0] if (states[0][name] - states[1][name]).abs().max() > 1e-5]
    assert moved == moving


def test_task_1_is_fedavg_bit_for_bit(tiny, simulate):
    for tasks, same in ((1, True), (2, False)):
        runs = [simulate(tiny(scenario__tasks=tasks, methods=m)).sha256 for m in ({}, {"gpm": {}})]
        assert (runs[0] == runs[1]) == same


def test_of_a_convolution_patches_are_kept(tiny, simulate):
    """3 x 3 patches of one channel: d = 9; a group of its own for each of two channels has the same."""
    data = {"name": "synthetic", "classes": 4, "shape": [1, 5, 5], "train": 24, "test": 8}
    run = simulate(tiny(dataset=data, model={"name": "probes:convolutions"}, methods={"gpm": {"threshold": [0.8]}}))
    for client in run.simulation.runner.host.clients.values():
        bases = client.halves["gpm"].bases
        assert {name: len(basis) for name, basis in bases.items()} == {"0.weight": 9, "1.weight": 9, "3.weight": 2}
        for basis in bases.values():
            np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-6)


def test_a_resumed_run_has_the_same_bits(resumed):
    whole, again = resumed(3, model=DEEP, methods={"gpm": {"head": "free"}}, scenario__tasks=3)
    assert whole == again


def test_what_it_sends_is_fedavgs(tiny, simulate):
    runs = [simulate(tiny(methods=methods)).rounds for methods in ({}, {"gpm": {}})]
    assert [(r.bytes_up, r.bytes_down) for r in runs[0]] == [(r.bytes_up, r.bytes_down) for r in runs[1]]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"training__optimizer": {"name": "adam"}}, r"methods\.gpm: needs updates that are linear combinations"),
        ({"training__optimizer__weight_decay": 0.1}, r"methods\.gpm: needs updates that are linear combinations"),
        (
            {"scenario__boundaries": {"asynchronous": {"window": 4, "rounds_per_window": 1}},
             "training__rounds_per_task": None},
            r"methods\.gpm: needs to know when a client's task ends",
        ),
    ],
)  # fmt: skip
def test_what_does_not_suit_it_is_refused(tiny, overrides, message):
    with pytest.raises(ConfigError, match=message):
        check_methods(tiny(methods={"gpm": {}}, **overrides))


@pytest.mark.parametrize("threshold", [[], [1.5], [-0.1], 0.9])
def test_thresholds_are_shares(tiny, threshold):
    with pytest.raises(ConfigError, match=r"methods\.gpm\.threshold"):
        tiny(methods={"gpm": {"threshold": threshold}})


def test_without_a_head_a_free_one_is_refused_before_anything_starts(tiny, tmp_path):
    more = {"model": {"name": "probes:scaled"}, "logging__tensorboard": False}
    with pytest.raises(
        ConfigError, match=r"^methods\.gpm: found no head in model\.name=probes:scaled, allowed: [^\n]*$"
    ):
        raysim.run(tiny(methods={"gpm": {"head": "free"}}, **more), out=tmp_path / "no", local=True)
    assert not (tmp_path / "no").exists()
    with pytest.raises(ConfigError, match=r"^methods\.gpm: found no head"):
        list(estimate_run(tiny(methods={"gpm": {"head": "free"}}, **more)))
    result = raysim.run(tiny(methods={"gpm": {}}, **more), out=tmp_path / "yes", local=True)
    assert math.isfinite(result.evaluation["domain_il"]["average_accuracy"])
