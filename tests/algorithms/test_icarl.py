"""iCaRL (Rebuffi et al., CVPR 2017), in float64 against NumPy, and what is evaluated instead of the model."""

import itertools
import math

import numpy as np
import pytest
import torch
from costs import cost_of
from exemplar_oracle import keep, logits_of, numpy_herd, sigmoid, unit
from softmax_oracle import batch_order

import raysim
from raysim.algorithms.icarl import ICarl
from raysim.algorithms.parts.exemplars import binary_loss, herd, in_turn
from raysim.engine.compatibility import check_methods
from raysim.evaluation.finished_run import evaluate
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

SMALL_RUN = {"unsure_steps": True, "sends_at_end": True}

SOFTMAX = {"name": "probes:softmax"}
CLASSES = {"kind": "class_incremental", "tasks": 2}
UNEVEN = {"kind": "dirichlet", "alpha": 0.7, "balanced": False, "min_samples": 3}


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


def test_herding_by_hand():
    """0, 4, 5, 11 with mean 5: 5; then (5 + 4)/2 = 4.5 beats 2.5 and 8; (9 + 11)/3 = 6.67 beats 3; 0 is left.

    Without "not chosen yet" 5 would be nearest each time. Of equals the first: 1 and 3 around 2.
    """
    assert herd(column(0, 4, 5, 11), 4).tolist() == [2, 1, 3, 0]
    assert herd(column(0, 4, 5, 11), 9).tolist() == [2, 1, 3, 0]
    assert herd(column(1, 3), 2).tolist() == [0, 1]
    assert herd(column(1, 3), 0).tolist() == []


def test_rounding_does_not_choose_among_equals():
    """Two samples are equally far from their mean, the first is chosen. Rounding made the second nearer in 1 of 8."""
    pairs = torch.nn.functional.normalize(torch.randn(200, 2, 100, dtype=torch.float64), dim=2)
    assert [herd(pair, 1).tolist() for pair in pairs] == [[0]] * 200


def test_herding_is_numpys_and_a_prefix_is_that_of_fewer():
    features = np.random.default_rng(0).normal(size=(25, 6))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    found = herd(torch.from_numpy(features), 25).tolist()
    assert found == numpy_herd(features, 25)
    assert herd(torch.from_numpy(features), 7).tolist() == found[:7]


def test_the_binary_loss_by_hand():
    """Logits (0, 0): ln 2 whatever the targets. Class 0 old, teacher's logit 2; class 1 new, the label.

    The gradient is (1/2 - target)/2: (1/2 - .8808)/2 = -.1904 and (1/2 - 1)/2 = -.25; a class not seen has none.
    """
    logits = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([[2.0, -9.0, 5.0]], dtype=torch.float64)
    old, seen = torch.tensor([0]), torch.tensor([0, 1])
    loss = binary_loss(logits, torch.tensor([1]), teacher, old, seen)
    assert loss.item() == pytest.approx(math.log(2), rel=1e-15)
    (slope,) = torch.autograd.grad(loss, logits)
    np.testing.assert_allclose(slope, [[(0.5 - 1 / (1 + math.exp(-2))) / 2, -0.25, 0]], rtol=1e-14)
    np.testing.assert_allclose(slope, [[-0.1904, -0.25, 0]], atol=5e-5)


def test_lists_of_several_tasks_take_turns():
    lists = [torch.tensor([7, 3, 9]), torch.tensor([], dtype=torch.int64), torch.tensor([12, 20])]
    assert in_turn(lists).tolist() == [7, 12, 3, 20, 9]


def reference(config, cohorts, capacity):
    """FedAvg with iCaRL in NumPy on one linear layer, where f(x) = x: the model, the exemplars, and the means."""
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
                target = np.eye(4)[y[batch]]
                target[:, old] = sigmoid(logits_of(teacher, x[batch]))[:, old]
                error = (sigmoid(logits_of(local, x[batch])) - target) / (len(batch) * len(seen))
                error[:, [c for c in range(4) if c not in seen]] = 0
                local = local - 0.1 * np.concatenate([(error.T @ x[batch]).reshape(-1), error.sum(0)])
            change = change + (local - theta) / len(cohort)
        theta = theta + change
        if (number + 1) % training.rounds_per_task == 0:
            for k in range(count):
                exemplars[k] = keep(exemplars[k], federation.streams[k].rows[task], data, capacity)
    means = np.zeros((4, 6))
    for held in exemplars:
        for label, rows in held.items():
            means[label] += unit(data.x[rows].astype(np.float64)).sum(0)
    return theta, exemplars, means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)


@pytest.mark.parametrize(("capacity", "partition"), [(4, {"kind": "iid"}), (7, UNEVEN)])
def test_a_run_is_icarl_in_numpy(tiny, simulate, capacity, partition):
    """Two of three clients a round. The trained model, who keeps what, the evaluated model, what it answers right."""
    more = {"memory__capacity": capacity, "participation": {"count": 2}, "partition": partition, "seed": 1}
    config = tiny(model=SOFTMAX, scenario=CLASSES, methods={"icarl": {}}, training__local_epochs=2, **more)
    run = simulate(config)
    theta, exemplars, means = reference(config, [r.cohort for r in run.rounds], capacity)
    np.testing.assert_allclose(run.simulation.server.parameters, theta, rtol=0, atol=1e-12)
    federation = run.simulation.federation
    for k, client in run.simulation.runner.host.clients.items():
        rows, _ = client.stream.locate(client.memory.entries().positions)
        assert rows.tolist() == [row for held in exemplars[k].values() for row in held]
        assert len(rows) <= capacity
    np.testing.assert_allclose(run.state["1.weight"], means, atol=1e-12)
    test = federation.dataset.test
    right = []
    for task in federation.tasks:
        x, y = unit(test.x[task.test].astype(np.float64)), test.y[task.test]
        distances = np.linalg.norm(x[:, None] - means, axis=2)
        distances[:, ~means.any(1)] = np.inf
        right.append((distances.argmin(1) == y).mean())
    assert run.rounds[-1].evaluation["class_il"] == pytest.approx(right)


def test_within_a_task_the_means_of_the_last_boundary_stand(tiny, simulate):
    """In task 1 the network's head is evaluated; in task 2 classes of task 2 have no means, and are never answered."""
    plain = {"methods": {"icarl": {"classifier": "linear"}}, "evaluation__every_rounds": 1}
    more = {"scenario": CLASSES, "memory__capacity": 8}
    head, means = (simulate(tiny(**more, **{**plain, "methods": m})) for m in (plain["methods"], {"icarl": {}}))
    assert means.rounds[0].evaluation == head.rounds[0].evaluation
    assert means.rounds[1].evaluation != head.rounds[1].evaluation
    assert means.rounds[2].evaluation["class_il"][1] == 0
    assert means.rounds[3].evaluation["class_il"][1] > 0
    assert torch.equal(means.simulation.server.parameters, head.simulation.server.parameters)
    assert not torch.equal(means.state["3.weight"], head.state["3.weight"])
    assert torch.equal(means.state["1.weight"], head.state["1.weight"])


def test_a_class_without_exemplars_is_never_answered(simulate, tiny):
    """Inputs are features here, and may lie behind every mean: 0 would then be the largest product."""
    half = ICarl.Server("icarl", ICarl())
    half.means = torch.zeros(4, 6, dtype=torch.float64)
    half.means[1, 0] = half.means[2, 1] = 1.0
    run = simulate(tiny(model=SOFTMAX))
    weights = half.evaluated(run.simulation.server)
    x = -torch.eye(6, dtype=torch.float64)
    answers = (x @ weights.parameters[:24].view(4, 6).T + weights.parameters[24:]).argmax(1)
    assert answers.tolist() == [2, 1, 1, 1, 1, 1]


def test_no_exemplar_is_of_the_task_in_training(tiny, simulate, monkeypatch):
    seen, real = [], ICarl.Client.samples

    def spy(half, client):
        positions = real(half, client)
        stored = client.memory.entries().positions
        seen.append((client.id, len(stored), bool(torch.isin(stored, client.arrived).any())))
        return positions

    monkeypatch.setattr(ICarl.Client, "samples", spy)
    simulate(tiny(scenario=CLASSES, memory__capacity=5, methods={"icarl": {}}))
    assert [number for _, number, _ in seen] == [0] * 6 + [4] * 6  # 2 classes held: 5 // 2 of each
    assert not any(twice for _, _, twice in seen)


@pytest.mark.parametrize("model", [SOFTMAX, {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}])
def test_task_1_with_cross_entropy_and_the_head_is_fedavg_bit_for_bit(tiny, simulate, model):
    knobs = {"loss": "ce_kd", "classifier": "linear"}
    for tasks, same in ((1, True), (2, False)):
        more = {"scenario": {**CLASSES, "tasks": tasks}, "model": model}
        runs = [simulate(tiny(methods=methods, **more)).sha256 for methods in ({}, {"icarl": knobs})]
        assert (runs[0] == runs[1]) == same


@pytest.mark.parametrize("kind", ["class_incremental", "domain_incremental"])
@pytest.mark.parametrize("partition", [{"kind": "shards", "shards_per_client": 3}, UNEVEN])
def test_what_is_sent_and_how_many_steps_are_known_before(tiny, simulate, kind, partition):
    """Sums of features once per task, 4 classes x 5 units; the teacher once where there are old classes.

    How many exemplars a client keeps, and so its steps, depend on its labels: they are foreseen within 10%.
    """
    scenario = {"kind": kind, "tasks": 2, **({"shift": "permutation"} if "domain" in kind else {})}
    config = tiny(scenario=scenario, memory__capacity=9, partition=partition, methods={"icarl": {}})
    run, before = simulate(config), cost_of(config)
    plain = simulate(tiny(scenario=scenario, partition=partition))
    more = [r.bytes_up - p.bytes_up for r, p in zip(run.rounds, plain.rounds, strict=True)]
    assert more == [0, 3 * 4 * 20, 0, 3 * 4 * 20]
    model = 3 * plain.simulation.model.weights().nbytes
    teacher = model if kind == "class_incremental" else 0
    down = [r.bytes_down - p.bytes_down for r, p in zip(run.rounds, plain.rounds, strict=True)]
    assert down == [0, model, teacher - model, model]
    counted = run.simulation.exchange
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)
    assert before.unsure_steps
    assert before.steps == pytest.approx(counted.steps, rel=0.1)


def test_resuming_and_evaluating_again_give_the_same(resumed, tiny, tmp_path):
    more = {"scenario": CLASSES, "memory__capacity": 8, "methods": {"icarl": {}}}
    whole, again = resumed(3, **more)
    assert whole == again
    again = raysim.load(tmp_path / "lost")
    found = evaluate(tmp_path / "whole").evaluation["class_il"]
    assert found["average_accuracy"] == again.evaluation["class_il"]["average_accuracy"]


def test_the_last_row_is_that_of_the_newest_means_though_no_client_took_part(tiny, simulate):
    """A task's exemplars and means are newer than the model if its last round had no client."""
    data = {"name": "synthetic", "classes": 4, "shape": [6], "train": 36, "test": 400}
    more = {"dataset": data, "scenario": CLASSES, "methods": {"icarl": {}}, "participation": {"count": 1}, "seed": 2}
    more |= {"clients": {"count": 3, "dropout": 0.6}, "training__rounds_per_task": 3, "training__optimizer__lr": 0.5}
    often, rarely = simulate(tiny(**more, evaluation__every_rounds=1)), simulate(tiny(**more))
    empty = [done for done in rarely.rounds if done.task_done and not done.cohort]
    assert empty
    for one, other in zip(often.rounds, rarely.rounds, strict=True):
        assert other.evaluation is None or one.evaluation == other.evaluation


def refusal(tiny, tmp_path, **overrides):
    more = {"logging__tensorboard": False, "methods": {"icarl": {}}, **overrides}
    with pytest.raises(ConfigError) as found:
        raysim.run(tiny(**more), out=tmp_path / "run", local=True)
    assert "\n" not in str(found.value)
    assert not (tmp_path / "run").exists()
    return str(found.value)


def test_what_does_not_suit_it_is_refused_before_anything_starts(tiny, tmp_path):
    few = refusal(tiny, tmp_path, memory__capacity=3)
    assert few == "memory.capacity: found 3, allowed with icarl: at least 4, one for each class"
    assert "found no head in model.name=probes:scaled" in refusal(tiny, tmp_path, model={"name": "probes:scaled"})
    assert "nn.Linear with a bias" in refusal(tiny, tmp_path, model={"name": "probes:unbiased"})
    methods = {"icarl": {}, "probes:OwnTested": {}}
    assert "icarl and OwnTested each override the hook evaluated" in refusal(tiny, tmp_path, methods=methods)
    jittered = {"scenario__boundaries": {"jittered": {"rounds": 1}}, "training__rounds_per_task": 3}
    assert "methods.icarl: needs boundaries that all" in refusal(tiny, tmp_path, **jittered)
    task = {"scenario": CLASSES, "training__logits": "task"}
    assert "trains on earlier tasks" in refusal(tiny, tmp_path, **task)


def test_without_nearest_means_no_bias_is_needed(tiny, simulate):
    check_methods(tiny(methods={"icarl": {"classifier": "linear"}}))
    config = tiny(model={"name": "probes:unbiased"}, methods={"icarl": {"classifier": "linear"}})
    run = simulate(config)
    assert all(value.isfinite().all() for value in run.state.values())


def test_where_a_class_comes_in_every_task_all_tasks_are_kept(tiny, simulate):
    """Two domains, four classes, room for two of each: one of either, unless a client lacks one."""
    run = simulate(tiny(memory__capacity=8, dataset__train=120, methods={"icarl": {}}))
    for client in run.simulation.runner.host.clients.values():
        positions = client.memory.entries().positions
        _, tasks = client.stream.locate(positions)
        pairs = list(zip(client.labels(positions).tolist(), tasks.tolist(), strict=True))
        assert sorted(pairs) == list(itertools.product(range(4), range(2)))
