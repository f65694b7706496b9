"""GLFC's core (Dong et al., CVPR 2022), in float64 against NumPy."""

import numpy as np
import pytest
import torch
from costs import cost_of
from exemplar_oracle import keep, logits_of, sigmoid
from softmax_oracle import batch_order

import raysim
from raysim.algorithms.glfc import balance
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

SMALL_RUN = {"unsure_steps": True, "sends_at_end": True}

SOFTMAX = {"name": "probes:softmax"}
CLASSES = {"kind": "class_incremental", "tasks": 2}
UNEVEN = {"kind": "dirichlet", "alpha": 0.7, "balanced": False, "min_samples": 3}


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_balance_by_hand():
    """Old .2 and .6 of mean .4: .5 and 1.5; new .5 and 1.5 of mean 1: themselves. A group that is alone, or all 0."""
    old = torch.tensor([[True], [False], [True], [False]])
    np.testing.assert_allclose(balance(column(0.2, 0.5, 0.6, 1.5), old), column(0.5, 0.5, 1.5, 1.5), rtol=1e-15)
    alone = torch.zeros(2, 1, dtype=torch.bool)
    np.testing.assert_allclose(balance(column(1, 3), alone), column(0.5, 1.5), rtol=1e-15)
    np.testing.assert_allclose(balance(column(1, 3), ~alone), column(0.5, 1.5), rtol=1e-15)
    np.testing.assert_array_equal(balance(column(0, 3, 0, 1), old), column(1, 1.5, 1, 0.5))


def test_equal_sizes_weigh_1():
    old = torch.tensor([[True], [False], [False]])
    np.testing.assert_allclose(balance(column(0.3, 0.3, 0.3), old), 1, rtol=1e-15)


def weights_of(z, y, old):
    """One row at a time."""
    sizes = [abs(sigmoid(row[label]) - 1) for row, label in zip(z, y, strict=True)]
    groups = [label in old for label in y]
    means = {one: np.mean([size for size, group in zip(sizes, groups, strict=True) if group == one]) for one in groups}
    return np.array([size / means[group] for size, group in zip(sizes, groups, strict=True)])[:, None]


def reference(config, cohorts, capacity, strength):
    """FedAvg with GLFC in NumPy on one linear layer, where f(x) = x: the model, and the exemplars."""
    federation = build_federation(config)
    module = build_model(config, federation.shape, federation.classes)
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()]).numpy()
    training, count, data = config.training, config.clients.count, federation.dataset.train
    phases, exemplars, teacher = [0] * count, [{} for _ in range(count)], None
    for number, cohort in enumerate(cohorts):
        task, change = number // training.rounds_per_task, np.zeros_like(theta)
        if number == task * training.rounds_per_task:
            teacher = theta
        old = sorted(c for t in federation.tasks[:task] for c in t.classes)
        seen = sorted([*old, *federation.tasks[task].classes])
        for k in cohort:
            phases[k] += 1
            rows = np.concatenate([*exemplars[k].values(), federation.streams[k].rows[task]]).astype(int)
            x, y, local = data.x[rows].astype(np.float64), data.y[rows], theta
            for batch in batch_order(config.seed, k, phases[k], len(y), training.local_epochs, training.batch_size):
                z, label = logits_of(local, x[batch]), np.eye(4)[y[batch]]
                error = sigmoid(z) - label
                if old:
                    target = label.copy()
                    target[:, old] = sigmoid(logits_of(teacher, x[batch]))[:, old]
                    balanced = weights_of(z, y[batch], old) * error
                    error = (1 - strength) * balanced + strength * (sigmoid(z) - target)
                error = error / (len(batch) * len(seen))
                error[:, [c for c in range(4) if c not in seen]] = 0
                local = local - 0.1 * np.concatenate([(error.T @ x[batch]).reshape(-1), error.sum(0)])
            change = change + (local - theta) / len(cohort)
        theta = theta + change
        if (number + 1) % training.rounds_per_task == 0:
            for k in range(count):
                exemplars[k] = keep(exemplars[k], federation.streams[k].rows[task], data, capacity)
    return theta, exemplars


@pytest.mark.parametrize(("capacity", "partition", "strength"), [(4, {"kind": "iid"}, 0.5), (7, UNEVEN, 0.2)])
def test_a_run_is_glfc_in_numpy(tiny, simulate, capacity, partition, strength):
    """Two of three clients a round; the model, who keeps what; the head that is trained is the one evaluated."""
    more = {"memory__capacity": capacity, "participation": {"count": 2}, "partition": partition, "seed": 1}
    methods = {"glfc": {"strength": strength}}
    config = tiny(model=SOFTMAX, scenario=CLASSES, methods=methods, training__local_epochs=2, **more)
    run = simulate(config)
    theta, exemplars = reference(config, [r.cohort for r in run.rounds], capacity, strength)
    np.testing.assert_allclose(run.simulation.server.parameters, theta, rtol=0, atol=1e-12)
    np.testing.assert_allclose(torch.cat([v.reshape(-1) for v in run.state.values()]), theta, rtol=0, atol=1e-12)
    for k, client in run.simulation.runner.host.clients.items():
        rows, _ = client.stream.locate(client.memory.entries().positions)
        assert rows.tolist() == [row for held in exemplars[k].values() for row in held]


@pytest.mark.parametrize("model", [SOFTMAX, {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}])
def test_without_old_classes_it_is_icarls_loss_bit_for_bit(tiny, simulate, model):
    """Task 1, and every task where no class is new: the binary cross-entropy, from task 2 on exemplars too.

    Both methods draw aside alike here, as herding draws nothing.
    """
    icarl = {"icarl": {"classifier": "linear"}}
    for scenario, same in (
        ({**CLASSES, "tasks": 1}, True),
        ({"kind": "domain_incremental", "shift": "permutation", "tasks": 2}, True),
        (CLASSES, False),
    ):
        more = {"scenario": scenario, "model": model, "memory__capacity": 8}
        runs = [simulate(tiny(methods=methods, **more)).sha256 for methods in ({"glfc": {}}, icarl)]
        assert (runs[0] == runs[1]) == same, scenario


def test_where_the_model_is_the_old_one_distillation_alone_moves_no_old_class(tiny, simulate):
    """One full batch a task: task 2's one step begins at the old model, whose sigmoids are then the targets."""
    more = {"scenario": CLASSES, "model": SOFTMAX, "training__batch_size": 100, "training__rounds_per_task": 1}
    for strength, still in ((1.0, True), (0.5, False)):
        run = simulate(tiny(methods={"glfc": {"strength": strength}}, memory__capacity=8, **more))
        before, after = run.simulation.exchange.halves["glfc"].teacher[0], run.simulation.server.parameters
        moved = (after - before)[:24].view(4, 6).abs().amax(1)
        assert (moved[:2] < 1e-15).all() == still
        assert (moved[2:] > 1e-3).all()


@pytest.mark.parametrize("kind", ["class_incremental", "domain_incremental"])
def test_what_is_sent_and_how_many_steps_are_known_before(tiny, simulate, kind):
    """Nothing more up; down the model at a task's end, when exemplars are chosen, and the old one where classes are."""
    scenario = {"kind": kind, "tasks": 2, **({"shift": "permutation"} if "domain" in kind else {})}
    config = tiny(scenario=scenario, memory__capacity=9, partition=UNEVEN, methods={"glfc": {}})
    run, before = simulate(config), cost_of(config)
    plain = simulate(tiny(scenario=scenario, partition=UNEVEN))
    model = 3 * plain.simulation.model.weights().nbytes
    teacher = model if kind == "class_incremental" else 0
    assert [r.bytes_up - p.bytes_up for r, p in zip(run.rounds, plain.rounds, strict=True)] == [0] * 4
    down = [r.bytes_down - p.bytes_down for r, p in zip(run.rounds, plain.rounds, strict=True)]
    assert down == [0, model, teacher - model, model]
    counted = run.simulation.exchange
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)
    assert before.steps == counted.steps


def test_resuming_gives_the_same(resumed):
    whole, again = resumed(3, scenario=CLASSES, memory__capacity=8, methods={"glfc": {}})
    assert whole == again


def test_what_does_not_suit_it_is_refused_before_anything_starts(tiny, tmp_path):
    def refusal(**overrides):
        more = {"logging__tensorboard": False, "methods": {"glfc": {}}, **overrides}
        with pytest.raises(ConfigError) as found:
            raysim.run(tiny(**more), out=tmp_path / "run", local=True)
        assert not (tmp_path / "run").exists()
        return str(found.value)

    few = refusal(memory__capacity=3)
    assert few == "memory.capacity: found 3, allowed with glfc: at least 4, one for each class"
    assert "found no head in model.name=probes:scaled" in refusal(model={"name": "probes:scaled"})
    jittered = {"scenario__boundaries": {"jittered": {"rounds": 1}}, "training__rounds_per_task": 3}
    assert "methods.glfc: needs boundaries that all" in refusal(**jittered)
    untold = {"scenario__boundaries": {"asynchronous": {"window": 6}}, "training__rounds_per_task": None}
    assert "methods.glfc: needs boundaries that all" in refusal(**untold)
    assert "trains on earlier tasks" in refusal(scenario=CLASSES, training__logits="task")
    proxy = refusal(methods={"glfc": {"old_model": "proxy"}})
    assert proxy == "methods.glfc: found old_model proxy, for which raysim has no server, allowed: previous_task"
    assert "icarl and glfc each override the hook samples" in refusal(methods={"icarl": {}, "glfc": {}})
