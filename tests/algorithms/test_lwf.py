"""LwF-FL (Li and Hoiem, TPAMI 2018; federated as in TARGET's code), in float64 against NumPy."""

import math

import numpy as np
import pytest
import torch
from softmax_oracle import Softmax, batch_order

from raysim.algorithms.lwf import LwF
from raysim.algorithms.parts.distillation import distillation_loss
from raysim.cli import main
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.models.flat import FlatModel
from raysim.system.errors import ConfigError

SOFTMAX = {"name": "probes:softmax"}
CLASSES = {"kind": "class_incremental", "tasks": 2}


def doubles(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def distilled(teacher, student, temperature):
    """KD and its gradient with respect to the student's logits."""
    student = student.clone().requires_grad_()
    loss = distillation_loss(teacher, student, temperature)
    (slope,) = torch.autograd.grad(loss, student)
    return loss.item(), slope


def test_distillation_by_hand():
    """Teacher (2, 0), student (0, 0), T = 2: softmax(1, 0) = (.731059, .268941) against (1/2, 1/2).

    KD = ln 2 whatever the teacher; d KD / d z = (p_S - p_T) / T = (-.115530, .115530) for one row, half for two.
    """
    p = 1 / (1 + math.exp(-1))
    assert p == pytest.approx(0.731059, abs=5e-7)
    loss, slope = distilled(doubles([2, 0]), doubles([0, 0]), 2.0)
    assert loss == pytest.approx(math.log(2), rel=1e-15)
    np.testing.assert_allclose(slope, [[(0.5 - p) / 2, (p - 0.5) / 2]], rtol=1e-14)
    np.testing.assert_allclose(slope, [[-0.115530, 0.115530]], atol=1e-6)
    _, slope = distilled(doubles([2, 0], [0, 0]), doubles([0, 0], [0, 0]), 2.0)
    np.testing.assert_allclose(slope, [[(0.5 - p) / 4, (p - 0.5) / 4], [0, 0]], atol=1e-15)


def test_distillation_has_no_gradient_at_the_teacher_and_sees_no_constant():
    generator = torch.Generator().manual_seed(0)
    teacher, student = torch.randn(2, 5, 3, dtype=torch.float64, generator=generator)
    _, slope = distilled(teacher, teacher, 2.0)
    np.testing.assert_allclose(slope, 0, atol=1e-16)
    loss, slope = distilled(teacher, student, 3.0)
    for moved in ((teacher + 7, student), (teacher, student - 4)):
        again, same = distilled(*moved, 3.0)
        assert again == pytest.approx(loss, rel=1e-13)
        np.testing.assert_allclose(same, slope, atol=1e-15)
    loss, slope = distilled(teacher[:, :1], student[:, :1], 2.0)  # one old class
    assert loss == 0
    assert not slope.any()


def reference(config, cohorts, strength, temperature, squared):
    """FedAvg with LwF's loss in NumPy, class-incremental: the model after the last round, and those that end a task."""
    federation = build_federation(config)
    module = build_model(config, federation.shape, federation.classes)
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    training, phases, teacher, ended = config.training, [0] * config.clients.count, None, []
    scale = strength * (temperature**2 if squared else 1)
    for number, cohort in enumerate(cohorts):
        task = number // training.rounds_per_task
        if task and number % training.rounds_per_task == 0:
            teacher = Softmax.of(theta, 4, 6)
            ended.append(theta)
        old = sorted(c for t in federation.tasks[:task] for c in t.classes)
        change = np.zeros_like(theta)
        for k in cohort:
            phases[k] += 1
            rows, data = federation.streams[k].rows[task], federation.dataset.train
            x, y = data.x[rows].astype(np.float64), data.y[rows]
            local = theta
            for batch in batch_order(config.seed, k, phases[k], len(y), training.local_epochs, training.batch_size):
                model = Softmax.of(local, 4, 6)
                gradient = model.loss_and_gradient(x[batch], y[batch])[1]
                if teacher is not None:
                    error = np.zeros((len(batch), 4))
                    error[:, old] = soft(model, x[batch], old, temperature) - soft(teacher, x[batch], old, temperature)
                    error *= scale / temperature / len(batch)
                    gradient = gradient + np.concatenate([(error.T @ x[batch]).reshape(-1), error.sum(0)])
                local = local - 0.1 * gradient
            change = change + local - theta
        theta = theta + change / len(cohort)
    return theta, ended


def soft(model, x, classes, temperature):
    powers = np.exp((x @ model.weight.T + model.bias)[:, classes] / temperature)
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("scenario", "knobs"),
    [
        (CLASSES, {"strength": 3.0}),
        ({**CLASSES, "tasks": 4}, {"strength": 0.7, "temperature": 1.5, "t_squared": True}),
    ],
)
def test_a_run_is_lwf_in_numpy(tiny, simulate, scenario, knobs):
    """Two of three clients a round, two epochs; tasks of one class: in the second there is one old class, and no KD."""
    more = {"scenario": scenario, "participation": {"count": 2}, "training__local_epochs": 2}
    config = tiny(model=SOFTMAX, methods={"lwf": knobs}, **more)
    run = simulate(config)
    method = LwF(**knobs)
    cohorts = [r.cohort for r in run.rounds]
    wanted, _ = reference(config, cohorts, method.strength, method.temperature, method.t_squared)
    np.testing.assert_allclose(run.simulation.server.parameters, wanted, rtol=0, atol=1e-12)
    assert np.abs(wanted - reference(config, cohorts, 0, 2.0, False)[0]).max() > 1e-3


@pytest.mark.parametrize("model", [SOFTMAX, {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}])
def test_strength_0_and_task_1_are_fedavg_bit_for_bit(tiny, simulate, model):
    for tasks, strength, same in ((2, 0.0, True), (1, 5.0, True), (2, 5.0, False)):
        runs = [
            simulate(tiny(model=model, scenario__tasks=tasks, methods=methods)).sha256
            for methods in ({}, {"lwf": {"strength": strength}})
        ]
        assert (len(set(runs)) == 1) == same


def test_where_all_earlier_tasks_had_one_class_there_is_nothing_to_teach(tiny, simulate):
    """Two tasks of one class each: KD over one logit is 0, with its gradient. With a third task, two are known."""
    for tasks, same in ((2, True), (3, False)):
        data = {"name": "synthetic", "classes": tasks, "shape": [6], "train": 36, "test": 20}
        more = {"dataset": data, "scenario": {**CLASSES, "tasks": tasks}, "model": SOFTMAX}
        runs = [simulate(tiny(methods=methods, **more)).sha256 for methods in ({}, {"lwf": {"strength": 5.0}})]
        assert (runs[0] == runs[1]) == same


def test_the_teacher_is_the_last_model_of_the_previous_task(tiny, simulate, monkeypatch):
    """Its bytes, statistics too, in each of two rounds of three tasks: those of the model that began the task."""
    seen, real = [], LwF.Server.announce

    def spy(half, server):
        said = real(half, server)
        models = ((server.parameters, server.buffers), half.teacher)
        seen.append([None if m is None else [t.numpy().tobytes() for t in m] for m in models])
        return said

    monkeypatch.setattr(LwF.Server, "announce", spy)
    simulate(tiny(model={"name": "probes:normalised"}, scenario__tasks=3, methods={"lwf": {}}))
    models, teachers = zip(*seen, strict=True)
    assert list(teachers) == [None] * 2 + [models[2]] * 2 + [models[4]] * 2
    assert len({parameters for parameters, _ in models}) == 6


@pytest.mark.parametrize("count", [1, 3])
def test_the_teacher_is_sent_once_per_task_and_client(tiny, simulate, count):
    """P + B = 28 + 8 parameters and statistics; who misses a task's first rounds is sent it when it comes.

    linear 6 x 4 + 4, BatchNorm 4 + 4, head 4 x 4 + 4: P = 56; B = 8; one count of batches: 65 numbers of 8 bytes.
    """
    more = {"scenario__tasks": 3, "training__rounds_per_task": 4, "participation": {"count": count}}
    run = simulate(tiny(model={"name": "probes:normalised"}, methods={"lwf": {}}, **more))
    served = set()
    for done in run.rounds:
        (task,) = done.tasks
        new = {(task, k) for k in done.cohort if task > 1} - served
        served |= new
        assert done.bytes_up == 8 * 65 * count
        assert done.bytes_down == 8 * (65 * count + 64 * len(new))
    assert len(served) < 8 * count  # somebody came again


@pytest.mark.parametrize(("rows", "wanted"), [("new", [4, 4, 4]), ("all", [8, 8, 8])])
def test_replayed_rows_are_distilled_if_the_knobs_say_so(tiny, simulate, monkeypatch, rows, wanted):
    """Batches of 4 with 4 replayed rows each, in task 2 of one client's."""
    seen, real = [], FlatModel.logits

    def spy(model, x, *weights):
        seen.append(len(x))
        return real(model, x, *weights)

    monkeypatch.setattr(FlatModel, "logits", spy)
    more = {"clients__count": 1, "dataset__train": 12, "training__rounds_per_task": 1}
    simulate(tiny(methods={"lwf": {"rows": rows}, "er": {"sample_size": 4}}, **more))
    assert seen == wanted


def test_old_classes_are_those_that_anyone_had(tiny, simulate, monkeypatch):
    """Task t has the classes 2t and 2t + 1. In one order: the tasks before; with an order per client, the union.

    A client without samples of task 1 (Dirichlet) is told the same.
    """
    heard = []
    monkeypatch.setattr(LwF.Client, "start", lambda half, client, message: heard.append((client.round, message)))
    data = {"name": "synthetic", "classes": 6, "shape": [6], "train": 36, "test": 20}
    more = {"dataset": data, "training__rounds_per_task": 1, "methods": {"lwf": {}}}
    skewed = {"kind": "dirichlet", "alpha": 0.05, "balanced": False, "min_samples": 0}
    simulate(tiny(scenario={**CLASSES, "tasks": 3}, partition=skewed, seed=2, **more))
    assert set(heard) == {(1, None), (2, (0, 1)), (3, (0, 1, 2, 3))}
    heard.clear()
    config = tiny(scenario={**CLASSES, "tasks": 3, "order": "per_client"}, **more)
    simulate(config)
    streams = build_federation(config).streams
    first, both = ({c for s in streams for t in s.tasks[:n] for c in (2 * t, 2 * t + 1)} for n in (1, 2))
    assert len(first) > 2
    assert set(heard) == {(1, None), (2, tuple(sorted(first))), (3, tuple(sorted(both)))}


@pytest.mark.parametrize("method", ["lwf", "flwf", "cfed"])
def test_a_client_with_an_empty_window_is_taught_when_it_has_data(tiny, simulate, method):
    """Some client has no sample of task 1: it takes no part there, and comes in task 2."""
    second = {"name": "synthetic", "classes": 4, "shape": [6], "train": 12, "test": 4}
    data = {**second, "train": 24, "unlabelled": second}
    skewed = {"kind": "dirichlet", "alpha": 0.05, "balanced": False, "min_samples": 0}
    run = simulate(tiny(dataset=data, scenario=CLASSES, partition=skewed, seed=2, methods={method: {}}))
    assert {len(r.cohort) for r in run.rounds} != {3}
    late = set(run.rounds[-1].cohort) - set(run.rounds[0].cohort)
    assert late
    assert all(value.isfinite().all() for value in run.state.values())


@pytest.mark.parametrize(
    "boundaries",
    [
        {"jittered": {"rounds": 1}},
        {"asynchronous": {"window": 4, "rounds_per_window": 1}},
    ],
)
def test_where_no_boundary_is_known_it_is_refused(tiny, boundaries):
    rounds = None if "asynchronous" in boundaries else 3
    config = tiny(scenario__boundaries=boundaries, training__rounds_per_task=rounds, methods={"lwf": {}})
    with pytest.raises(ConfigError, match=r"methods\.lwf: needs boundaries that all clients have at the same time"):
        check_methods(config)


def test_refused_in_one_line_with_exit_status_2(tmp_path, capsys):
    argv = ["run", "configs/quickstart.yaml", "methods={lwf: {}}", "scenario.boundaries={jittered: {rounds: 1}}"]
    assert main([*argv, "--local", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out").exists()
