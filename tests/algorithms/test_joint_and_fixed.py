"""Joint training, the upper bound of continual learning, and Fixed, the lower one of Re-Fed (Li et al., CVPR 2024)."""

import numpy as np
import pytest
import torch
from softmax_oracle import batch_order, local_phase

from raysim.engine import local_training
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

SOFTMAX = {"name": "probes:softmax"}
UNEVEN = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 2}
CLASSES = {"kind": "class_incremental", "tasks": 2}
JOINT, FIXED = {"joint": {}}, {"fixed": {}}


def pooled(federation, client, tasks):
    """A client's samples of the first tasks in the order of their arrival, each seen through its own task's map."""
    data, parts = federation.dataset.train, []
    for task in range(tasks):
        rows, pixels = federation.streams[client].rows[task], federation.tasks[task].pixels
        x = data.x[rows].astype(np.float64)
        parts.append((x if pixels is None else x[:, pixels], data.y[rows]))
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def fedavg_on_all(config, federation, cohorts):
    """FedAvg in NumPy whose clients train on all their data so far, and count by them under `samples`."""
    model = build_model(config, federation.shape, federation.classes)
    w = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
    phases = [0] * config.clients.count
    for number, cohort in enumerate(cohorts):
        deltas, sizes = [], []
        for k in cohort:
            phases[k] += 1
            x, y = pooled(federation, k, number // config.training.rounds_per_task + 1)
            order = batch_order(config.seed, k, phases[k], len(y), config.training.local_epochs, 4)
            deltas.append(local_phase(w, x, y, order, config.training.optimizer.lr, 4)[0])
            sizes.append(len(y) if config.aggregation.weights == "samples" else 1)
        w = w + np.average(deltas, axis=0, weights=sizes)
    return w


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("shift", ["permutation", "classes"])
def test_joint_is_fedavg_on_all_that_arrived(tiny, simulate, weights, shift):
    """Unequal clients, two of three in a task's one round: who missed a task trains on its data all the same."""
    scenario = {"kind": "domain_incremental", "tasks": 3, "shift": "permutation"}
    config = tiny(
        model=SOFTMAX,
        **UNEVEN,
        scenario=CLASSES if shift == "classes" else scenario,
        aggregation__weights=weights,
        participation={"count": 2},
        training__rounds_per_task=1,
        training__local_epochs=2,
        methods=JOINT,
    )
    federation = build_federation(config)
    run = simulate(config, federation)
    cohorts = [r.cohort for r in run.rounds]
    assert set(cohorts[1]) - set(cohorts[0])
    wanted = fedavg_on_all(config, federation, cohorts)
    np.testing.assert_allclose(run.simulation.server.parameters, wanted, rtol=0, atol=1e-12)


def test_in_task_1_joint_is_fedavg_bit_for_bit(tiny, simulate):
    model = {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}
    for tasks, same in ((1, True), (2, False)):
        runs = [simulate(tiny(model=model, scenario__tasks=tasks, methods=m)).sha256 for m in ({}, JOINT)]
        assert (runs[0] == runs[1]) == same


def test_an_epoch_of_joint_shows_every_sample_that_arrived_once(tiny, simulate, monkeypatch):
    """12 samples arrive per task: an epoch has 12, 24 and 36, and a client keeps no memory."""
    shown, step = {}, local_training.LocalLoop.step

    def spy(loop, taken):
        shown.setdefault((taken.client.id, taken.client.phases), []).extend(taken.positions.tolist())
        step(loop, taken)

    monkeypatch.setattr(local_training.LocalLoop, "step", spy)
    run = simulate(tiny(scenario__tasks=3, training__rounds_per_task=1, methods=JOINT))
    assert len(shown) == 9
    for (_, phase), positions in shown.items():
        assert sorted(positions) == list(range(12 * phase))
    assert all(client.memory is None for client in run.simulation.runner.host.clients.values())


def test_one_full_batch_step_of_joint_is_a_step_on_the_mean_loss_of_all_tasks(tiny, simulate):
    """One client: w - lr * (g_1 + g_2) / 2 in task 2, as both tasks have 36 samples."""
    one = {"model": SOFTMAX, "clients__count": 1, "training__batch_size": 100, "training__rounds_per_task": 1}
    config = tiny(**one, methods=JOINT)
    federation = build_federation(config)
    model = build_model(config, federation.shape, federation.classes)
    w = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()
    of_task = [pooled(federation, 0, 1), [part[36:] for part in pooled(federation, 0, 2)]]
    w = w + local_phase(w, *of_task[0], [np.arange(36)], 0.1, 4)[0]
    w = w + sum(local_phase(w, x, y, [np.arange(36)], 0.1, 4)[0] for x, y in of_task) / 2
    np.testing.assert_allclose(simulate(config, federation).simulation.server.parameters, w, rtol=0, atol=1e-12)


def test_joint_sends_what_fedavg_sends(tiny, simulate):
    plain, joint = (simulate(tiny(methods=m)).rounds for m in ({}, JOINT))
    assert [(r.bytes_up, r.bytes_down) for r in plain] == [(r.bytes_up, r.bytes_down) for r in joint]


def test_joint_needs_the_logits_of_earlier_classes(tiny):
    """With the present task's logits alone an earlier class would have no probability."""
    with pytest.raises(
        ConfigError, match=r"methods\.joint: .* training\.logits=task masks .*; set training\.logits to seen"
    ):
        check_methods(tiny(methods=JOINT, scenario=CLASSES, training__logits="task"))
    for logits in ("seen", "all"):
        check_methods(tiny(methods=JOINT, scenario=CLASSES, training__logits=logits))


@pytest.mark.parametrize("scenario", [CLASSES, {"kind": "domain_incremental", "tasks": 3, "shift": "permutation"}])
def test_fixed_is_fedavg_in_task_1_and_never_moves_again(tiny, simulate, scenario):
    """The same cohorts and the same models up to the end of task 1; then nobody trains and nothing is sent."""
    more = {"scenario": scenario, "participation": {"count": 2}, "training__rounds_per_task": 3}
    plain, fixed = simulate(tiny(**more)), simulate(tiny(methods=FIXED, **more))
    for done, wanted in zip(fixed.rounds[:3], plain.rounds[:3], strict=True):
        assert (done.cohort, done.loss, done.bytes_up, done.bytes_down) == (
            wanted.cohort, wanted.loss, wanted.bytes_up, wanted.bytes_down,
        )  # fmt: skip
        assert done.evaluation == wanted.evaluation
    for done in fixed.rounds[3:]:
        assert (done.cohort, done.loss, done.bytes_up, done.bytes_down) == ([], None, 0, 0)
    assert fixed.sha256 != plain.sha256


def test_fixed_is_evaluated_on_every_task_with_the_model_of_task_1(tiny, simulate, log):
    """Every later row of accuracies is the first; the model's last version is that of round 2, the end of task 1."""
    fixed = simulate(tiny(scenario__tasks=3, dataset__test=400, methods={"probes:LateToSpeak": {}, **FIXED}))
    rows = [r.evaluation for r in fixed.rounds if r.task_done]
    assert rows == [rows[0]] * 3
    assert rows[0] != fixed.started.evaluation
    assert len(log) == 2
    assert fixed.simulation.server.version == 2


def test_fixed_and_another_that_selects_the_clients_are_refused(tiny):
    with pytest.raises(ConfigError, match="fixed and OwnSelect each override the hook select"):
        check_methods(tiny(methods={**FIXED, "probes:OwnSelect": {}}))
