"""Re-Fed (Li et al., CVPR 2024), oracles 3 and 5 to 13, by number; 1 and 2 are in test_re_fed_pull.py, the norms in
test_sample_gradients.py. They are all that a consistent reading of the paper allows.
"""

from itertools import product, zip_longest
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from exemplar_oracle import numpy_herd, unit
from softmax_oracle import Softmax, sample_norms
from torch import nn

from raysim.algorithms import re_fed
from raysim.algorithms.parts.personalized_model import step_with_pull
from raysim.algorithms.re_fed import ReFed
from raysim.config import ConfigError
from raysim.engine.compatibility import check_methods
from raysim.system import seeding
from raysim.system.errors import Diverged

SMALL_RUN = {"hyperparameters": {"epochs": 2}, "unsure_steps": True}

CLASSES = {"kind": "class_incremental", "tasks": 2}


class Deaf(nn.Module):
    """Its logits are the same whatever the sample and its parameters: every gradient is exactly 0."""

    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.arange(1.0, 1 + classes))

    def forward(self, x):
        return (0 * self.weight).expand(len(x), -1)


def deaf(shape, classes):
    """Deaf."""
    return Deaf(classes)


@pytest.fixture
def begun(monkeypatch):
    """What every `begin_task` saw and left, in order: dicts with client, window, cache, and stored, norms if scored."""
    seen = []
    begin_task, norms = ReFed.Client.begin_task, ReFed.Client._norms

    def spied_norms(half, client, stored):
        found = norms(half, client, stored)
        seen[-1] |= {"stored": stored.tolist(), "norms": found, "w": client.received.clone(), "lr": client.lr,
                     "phase": client.phases, **dict(zip("xy", client.samples(stored), strict=True))}  # fmt: skip
        return found

    def spied(half, client):
        seen.append({"client": client.id, "window": client.window, "finished": client.finished.tolist(),
                     "arrived": client.arrived.tolist(), "before": cached(client)})  # fmt: skip
        begin_task(half, client)
        seen[-1]["cache"] = cached(client)

    monkeypatch.setattr(ReFed.Client, "_norms", spied_norms)
    monkeypatch.setattr(ReFed.Client, "begin_task", spied)
    return seen


def cached(client):
    return client.memory.entries().positions.tolist()


def knobs(**given):
    return {"re_fed": {"epochs": 3, **given}}


# 3


def test_at_the_start_there_is_no_pull():
    """v = w: the step is the plain one, to the last bit."""
    w, gradient = torch.randn(2, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    v = w.clone()
    step_with_pull(v, gradient, w, 0.1, 0.7)
    assert torch.equal(v, w.add(gradient, alpha=-0.1))


def test_without_a_gradient_nothing_moves_and_equals_keep_their_order(tiny, simulate, begun):
    """Every G is 0, so I = 0 for all: the tie goes to the lowest positions; with `late`, to the highest."""
    for emphasis, chosen in (("early", slice(0, 3)), ("late", slice(-3, None))):
        begun.clear()
        config = tiny(model={"name": "test_re_fed:deaf"}, memory__capacity=3, methods=knobs(emphasis=emphasis))
        weights = simulate(config).state["weight"]
        assert weights.tolist() == [1, 2, 3, 4]
        scored = [b for b in begun if "norms" in b]
        assert len(scored) == 3
        for b in scored:
            assert (b["norms"] == 0).all()
            assert b["cache"] == b["stored"][chosen]


# 5, 6, 7, 12 in whole runs: an independent second writing of the PIM, in NumPy


def pim(begun, seed, lam, epochs, size, classes):
    """G^p of every stored sample [epochs, n], and v: eq. 3 and 4 with a batch's mean loss, in the documented order."""
    x, y, w, lr = begun["x"].numpy(), begun["y"].numpy(), begun["w"].numpy(), begun["lr"]
    q = (1 - lam) / (2 * lam)
    stream = seeding.generator(seed, begun["client"], begun["phase"], 0, "re_fed")
    v, table = w.copy(), np.zeros((epochs, len(y)))
    for p in range(epochs):
        order = stream.permutation(len(y))
        for start in range(0, len(y), size):
            rows = order[start : start + size]
            table[p, rows] = sample_norms(v, x[rows], y[rows], classes)  # before the step
            _, gradient = Softmax.of(v, classes, x.shape[1]).loss_and_gradient(x[rows], y[rows])
            v = v - lr * (gradient + q * (v - w))
    return table, v


def best(table, count, emphasis, norm, stored):
    """The `count` positions with the largest sum of weights times G, lower positions first among equals."""
    table = table if norm == "squared" else np.sqrt(table)
    weights = [1.0 if emphasis == "average" else 1 / p for p in range(1, len(table) + 1)]
    importance = sum(w * g for w, g in zip(weights, table, strict=True))
    ranked = sorted(range(len(stored)), key=lambda i: (-importance[i], stored[i]))
    if emphasis == "late":
        ranked = ranked[::-1]
    return sorted(stored[i] for i in ranked[:count])


@pytest.mark.parametrize(
    ("emphasis", "norm", "epochs", "lam"),
    [("early", "squared", 5, 0.3), ("average", "squared", 5, 0.3), ("late", "squared", 5, 0.8),
     ("early", "plain", 5, 0.3), ("early", "squared", 1, 0.5)],
)  # fmt: skip
def test_the_cache_is_the_best_of_what_is_stored(tiny, simulate, begun, emphasis, norm, epochs, lam):
    """Of L, the cache and what arrived since, the top 5 of I = sum_p G^p / p; with one epoch I = G^1.

    Three tasks, so that the last L holds samples that were cached before.
    """
    config = tiny(
        dataset={"name": "synthetic", "classes": 6, "shape": [6], "train": 90, "test": 12},
        scenario={"kind": "class_incremental", "tasks": 3},
        model={"name": "probes:softmax"},
        memory__capacity=5,
        methods=knobs(emphasis=emphasis, norm=norm, epochs=epochs, lam=lam),
    )
    simulate(config)
    assert [(b["client"], b["window"]) for b in begun] == list(product([0, 1, 2], [0])) + [
        (k, t) for t in (1, 2) for k in (0, 1, 2)
    ]
    for b in begun[:3]:
        assert b["cache"] == []
    for b in begun[3:]:
        assert b["stored"] == sorted([*b["before"], *b["finished"]])
        table, _ = pim(b, config.seed, lam, epochs, 4, 6)
        assert np.allclose(b["norms"].numpy(), table if norm == "squared" else np.sqrt(table), rtol=1e-9)
        assert b["cache"] == best(table, 5, emphasis, norm, b["stored"])
        assert max(b["cache"]) < min(b["arrived"])  # nothing of the arriving task
    late_tasks = [b for b in begun if b["window"] == 2]
    assert any(set(b["cache"]) & set(b["before"]) for b in late_tasks)


@pytest.mark.parametrize("personal", ["pim", "trained"])
def test_the_personal_model_can_be_tested(tiny, simulate, begun, personal):
    """As NumPy's v at the last boundary; by default, and where no boundary made a PIM, the model as it was trained."""
    more = {"model": {"name": "probes:softmax"}, "memory__capacity": 5, "evaluation": {"model": "local"}}
    run = simulate(tiny(scenario=CLASSES, methods=knobs(personal=personal, lam=0.3), **more))
    scored = {b["client"]: b for b in begun if "norms" in b}
    assert sorted(scored) == [0, 1, 2]
    for k, b in scored.items():
        _, v = pim(b, 0, 0.3, 3, 4, 4)
        own = run.simulation.runner.host.clients[k].personalized[0].numpy()
        assert np.allclose(own, v, rtol=0, atol=1e-11) is (personal == "pim")
    first = simulate(tiny(scenario__tasks=1, methods=knobs(personal=personal), **more)).simulation.runner.host.clients
    assert first[0].halves["re_fed"].pim is None
    assert len(first[0].personalized) == 3


def test_early_average_and_late(monkeypatch):
    """G^1 = 4, 0, 1 and G^2 = 0, 5, 1 make I = 4, 2.5, 1.5 early and 4, 5, 2 on average; late reverses early."""
    table = torch.tensor([[4.0, 0.0, 1.0], [0.0, 5.0, 1.0]], dtype=torch.float64)
    monkeypatch.setattr(ReFed.Client, "_norms", lambda half, client, stored: table)
    for emphasis, expected in (("early", [0, 1, 2]), ("average", [1, 0, 2]), ("late", [2, 1, 0])):
        half = ReFed.Client("re_fed", ReFed(epochs=2, emphasis=emphasis))
        assert half._ranking(SimpleNamespace(computes=True), torch.arange(3)).tolist() == expected


def test_early_and_late_are_disjoint(tiny, simulate, begun):
    """12 stored and 6 kept: 2k <= |L|."""
    kept = {}
    for emphasis in ("early", "late"):
        begun.clear()
        simulate(tiny(memory__capacity=6, methods=knobs(emphasis=emphasis)))
        kept[emphasis] = {b["client"]: b["cache"] for b in begun if b["window"] == 1}
    for client, cache in kept["early"].items():
        assert len(cache) == 6
        assert sorted(cache + kept["late"][client]) == list(range(12))


class OneLayer(nn.Module):
    """One linear layer, which is its head: what enters it is the sample."""

    def __init__(self, shape, classes):
        super().__init__()
        self.head = nn.Linear(shape[0], classes)

    def forward(self, x):
        return self.head(x)


@pytest.mark.parametrize("importance", ["loss", "herding"])
def test_caches_by_loss_and_by_herding(tiny, simulate, monkeypatch, importance):
    """In NumPy at the model received: the largest -log softmax(Wx + b)_y, or iCaRL's herding, the classes in turn."""
    caches = []
    begin_task = ReFed.Client.begin_task

    def spied(half, client):
        stored = torch.cat([client.memory.entries().positions, client.finished])
        begin_task(half, client)
        if len(stored):
            weight, bias = client.received.reshape(-1)[: 6 * 6].reshape(6, 6), client.received[6 * 6 :]
            x, y = (part.double().numpy() for part in client.samples(stored))
            caches.append((weight.double().numpy(), bias.double().numpy(), x, y, stored.tolist(), cached(client)))

    monkeypatch.setattr(ReFed.Client, "begin_task", spied)
    config = tiny(
        dataset={"name": "synthetic", "classes": 6, "shape": [6], "train": 90, "test": 12},
        scenario={"kind": "class_incremental", "tasks": 3},
        model={"name": "test_re_fed:OneLayer"},
        memory__capacity=5,
        methods=knobs(importance=importance),
    )
    simulate(config)
    assert len(caches) == 6
    for weight, bias, x, y, stored, kept in caches:
        if importance == "loss":
            logits = x @ weight.T + bias
            losses = np.log(np.exp(logits).sum(1)) - logits[range(len(y)), y.astype(int)]
            best_first = np.argsort(-losses, kind="stable")
        else:
            lists = [np.flatnonzero(y == c) for c in np.unique(y)]
            lists = [of[numpy_herd(unit(x[of]), len(of))] for of in lists]
            best_first = [i for turn in zip_longest(*lists) for i in turn if i is not None]
        assert kept == sorted(stored[i] for i in best_first[:5])
    assert any(len(stored) > 5 for *_, stored, _ in caches)


# 8


@pytest.mark.parametrize("scenario", [CLASSES, {"kind": "domain_incremental", "tasks": 3, "shift": "permutation"}])
@pytest.mark.parametrize("participation", [{"fraction": 1.0}, {"count": 1}])
def test_with_room_for_all_it_is_joint_training(tiny, simulate, scenario, participation):
    """All that arrived is cached, in the order of the stream: bitwise Joint (Table 4, its column M = 3000)."""
    shared = {"scenario": scenario, "participation": participation, "model__dropout": 0.2}
    joint = simulate(tiny(methods={"joint": {}}, **shared))
    assert simulate(tiny(methods=knobs(), memory__capacity=1000, **shared)).sha256 == joint.sha256
    assert simulate(tiny(methods=knobs(), memory__capacity=5, **shared)).sha256 != joint.sha256


# 9


def test_task_1_is_fedavg(tiny, simulate):
    """Nothing has arrived before, so there is nothing to score and an epoch runs over the new data alone.

    Dropout and BatchNorm show every draw and every forward pass too many, and the memory has room for 2 of 12 samples.
    """
    shared = {"scenario": {"kind": "class_incremental", "tasks": 1}, "model": {"name": "mlp", "hidden": [5],
              "dropout": 0.3, "batch_norm": True}}  # fmt: skip
    assert simulate(tiny(methods=knobs(), memory__capacity=2, **shared)).sha256 == simulate(tiny(**shared)).sha256


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_pim_leaves_no_trace(tiny, simulate, monkeypatch, momentum):
    """The same cache with the PIM trained or not: the same bits, with dropout, BatchNorm, momentum and augmentation."""
    config = tiny(
        dataset={"name": "synthetic", "classes": 4, "shape": [2, 6, 6], "train": 39, "test": 20, "augment": ["flip"]},
        model={"name": "mlp", "hidden": [5], "dropout": 0.3, "batch_norm": True},
        training__optimizer={"lr": 0.1, "momentum": momentum},
        memory__capacity=3,
        methods=knobs(),
    )
    ranking, scored = ReFed.Client._ranking, []

    def with_pim(half, client, stored):
        ranking(half, client, stored)
        scored.append(client.id)
        return torch.arange(len(stored))

    monkeypatch.setattr(ReFed.Client, "_ranking", lambda half, client, stored: torch.arange(len(stored)))
    without = simulate(config)
    monkeypatch.setattr(ReFed.Client, "_ranking", with_pim)
    assert simulate(config).sha256 == without.sha256
    assert scored == [0, 1, 2]


def test_the_pim_gives_the_model_back(tiny, simulate, monkeypatch):
    """Parameters, statistics and counts of batches after scoring are those that were received."""
    seen = []
    norms = ReFed.Client._norms

    def spied(half, client, stored):
        before = [t.clone() for t in (client.model.parameters, client.model.buffers, client.model.integers)]
        moved = []
        step = ReFed.Client._step

        def spied_step(half, client, x, y):
            step(half, client, x, y)
            moved.append(client.model.integers.clone())

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReFed.Client, "_step", spied_step)
            found = norms(half, client, stored)
        after = (client.model.parameters, client.model.buffers, client.model.integers)
        seen.append(all(torch.equal(was, now) for was, now in zip(before, after, strict=True)))
        assert not torch.equal(moved[-1], before[2])  # its own steps were in train mode
        return found

    monkeypatch.setattr(ReFed.Client, "_norms", spied)
    # 13 samples each: batches of 4, 4, 4 and 1; BatchNorm cannot step on one sample, which is scored all the same
    config = tiny(dataset__train=39, model={"name": "mlp", "hidden": [5], "batch_norm": True}, memory__capacity=3,
                  methods=knobs())  # fmt: skip
    simulate(config)
    assert seen == [True] * 3


def test_every_sample_is_scored_though_batchnorm_leaves_one_out(tiny, simulate, begun):
    config = tiny(dataset__train=39, model={"name": "mlp", "hidden": [5], "batch_norm": True}, memory__capacity=3,
                  methods=knobs())  # fmt: skip
    simulate(config)
    for b in begun[3:]:
        assert b["norms"].shape == (3, 13)
        assert (b["norms"] > 0).all()


# 10


def test_scoring_is_once_and_lazy(tiny, simulate, begun):
    """One of three clients per round, four tasks of two rounds: a client scores at its first phase of a task only.

    What it scores is its cache and all that arrived since it last ran; who is not selected keeps what it has.
    """
    config = tiny(
        scenario={"kind": "domain_incremental", "tasks": 4, "shift": "permutation"},
        participation={"count": 1},
        memory__capacity=5,
        methods=knobs(),
    )
    run = simulate(config)
    took_part = []
    for done in run.rounds:
        (client,), (task,) = done.cohort, done.tasks
        if (client, task - 1) not in took_part:
            took_part.append((client, task - 1))
    assert [(b["client"], b["window"]) for b in begun] == took_part
    scored = [(b["client"], b["window"]) for b in begun if "norms" in b]
    assert scored == [(client, window) for client, window in took_part if window > 0]
    last: dict[int, int] = {}
    caches: dict[int, list[int]] = {}
    for b in begun:
        begin = 12 * last.get(b["client"], 0)
        assert b["finished"] == list(range(begin, 12 * b["window"]))
        assert b["before"] == caches.get(b["client"], [])
        last[b["client"]], caches[b["client"]] = b["window"], b["cache"]
    assert any(len(b["finished"]) > 12 for b in begun)  # somebody missed a task


# 11


def test_the_wire_is_fedavgs(tiny, simulate):
    plain, ours = (
        simulate(tiny(scenario=CLASSES)),
        simulate(tiny(scenario=CLASSES, methods=knobs(), memory__capacity=3)),
    )
    assert [(r.bytes_up, r.bytes_down) for r in plain.rounds] == [(r.bytes_up, r.bytes_down) for r in ours.rounds]


# 13


@pytest.mark.parametrize(("capacity", "cached"), [(5, 0), (12, 0), (16, 4), (100, 12)])
def test_a_total_budget_counts_the_new_data(tiny, simulate, begun, capacity, cached):
    """12 samples arrive per task: k = max(M - 12, 0), of the 12 that are stored."""
    simulate(tiny(memory__capacity=capacity, methods=knobs(budget="total")))
    for b in begun:
        assert len(b["cache"]) == (cached if b["window"] else 0)
        assert len(b["cache"]) + 12 <= max(capacity, 12)


# the baseline, and what is refused


def test_a_random_cache(tiny, simulate, begun):
    """No PIM; 5 of 12, by seed and client: 60 draws, in which a position is held 60 * 5/12 = 25 times.

    The standard deviation is sqrt(60 * 5/12 * 7/12) = 3.8, and none of the 12 counts is 4 of them away.
    """
    counts = np.zeros(12)
    for seed in range(20):
        begun.clear()
        simulate(tiny(seed=seed, memory__capacity=5, methods=knobs(importance="random"), training__rounds_per_task=1))
        for b in begun:
            assert "norms" not in b
            if b["window"]:
                assert len(set(b["cache"])) == 5
                assert b["cache"] == sorted(b["cache"])
                counts[b["cache"]] += 1
    assert counts.sum() == 20 * 3 * 5
    assert counts.min() > 25 - 4 * 3.8
    assert counts.max() < 25 + 4 * 3.8


def test_an_epoch_runs_over_the_cache_and_the_new_data(tiny, simulate, monkeypatch):
    """12 arrive and 5 are cached: in task 2 every epoch shows each of these 17 once."""
    from raysim.engine import local_training

    shown = []
    step = local_training.LocalLoop.step
    monkeypatch.setattr(
        local_training.LocalLoop, "step", lambda loop, s: (shown.append((s.client, s.positions)), step(loop, s))
    )
    simulate(tiny(memory__capacity=5, methods=knobs(), training__rounds_per_task=1))
    for client in {client for client, _ in shown}:
        positions = torch.cat([p for c, p in shown if c is client]).tolist()
        cache = client.memory.entries().positions.tolist()
        assert sorted(positions[12:]) == [*cache, *range(12, 24)]


def test_a_pim_that_diverges_is_named(tiny, simulate, monkeypatch):
    monkeypatch.setattr(re_fed, "squared_norms", lambda model, loss, x, y: torch.full((len(y),), torch.inf))
    with pytest.raises(Diverged, match=r"^client 0 diverged in round 3 \(re_fed, its personalised model\); a smaller"):
        simulate(tiny(memory__capacity=5, methods=knobs()))


def test_what_does_not_go_with_it_is_refused(tiny):
    def refused(**given):
        with pytest.raises(ConfigError) as found:
            check_methods(tiny(**given))
        return str(found.value)

    assert refused(methods=knobs(), memory__policy="reservoir") == (
        "memory.policy: re_fed cannot use reservoir, allowed: importance"
    )
    assert (
        refused(methods=knobs(), memory__fill="arrival") == "memory.fill: re_fed cannot use arrival, allowed: boundary"
    )
    assert refused(methods=knobs(), memory__per="task") == "memory.per: re_fed cannot use task, allowed: client"
    assert refused(methods={"er": {}, "a_gem": {}}, memory__policy="importance") == (
        "memory.policy: importance needs a method that rates samples; otherwise the memory of er, a_gem stays empty; "
        "add the method re_fed, or use another policy"
    )
    assert "re_fed and joint each override the hook samples" in refused(methods={**knobs(), "joint": {}})
    assert refused(methods=knobs(), scenario=CLASSES, training__logits="task") == (
        "methods.re_fed: trains on earlier tasks, but training.logits=task masks their classes; "
        "set training.logits to seen or all"
    )
    check_methods(tiny(methods=knobs(), scenario=CLASSES, training__logits="seen"))
    # without classes every target would be a class: the cache would be the samples with the lowest targets
    assert refused(methods=knobs(importance="herding"), objective="regression") == (
        "methods.re_fed: found importance=herding, allowed without classes: pim, random or loss; or set "
        "objective=classification"
    )
    check_methods(tiny(methods=knobs(importance="loss"), objective="regression"))


@pytest.mark.parametrize("other", ["fedprox", "scaffold", "fedadam", "er", "fed_a_gem", "special"])
def test_it_is_an_add_on(tiny, simulate, other):
    """It runs beside methods that own none of its hooks; their memory is its cache."""
    run = simulate(tiny(scenario=CLASSES, memory__capacity=4, methods={**knobs(), other: {}}))
    assert all(value.isfinite().all() for value in run.state.values())


def test_seen_logits_are_the_pims_too(tiny, simulate, begun):
    """As task t of three begins, 2 t of 6 classes were seen, and p is a softmax over these: the others' logits are

    -infinity in the closed form. One epoch of one batch, so that all norms are taken at the model that was received.
    """
    config = tiny(
        dataset={"name": "synthetic", "classes": 6, "shape": [6], "train": 90, "test": 12},
        scenario={"kind": "class_incremental", "tasks": 3},
        model={"name": "probes:softmax"},
        training__logits="seen",
        training__batch_size=90,
        memory__capacity=4,
        methods=knobs(epochs=1),
    )
    tasks = simulate(config).simulation.federation.tasks
    scored = [b for b in begun if "norms" in b]
    assert {b["window"] for b in scored} == {1, 2}
    for b in scored:
        seen = sorted({c for task in tasks[: b["window"] + 1] for c in task.classes})
        assert len(seen) == 2 * (b["window"] + 1)
        given = (b["w"].numpy(), b["x"].numpy(), b["y"].numpy(), 6)
        np.testing.assert_allclose(b["norms"][0], sample_norms(*given, admitted=seen), rtol=1e-9)
        assert np.allclose(b["norms"][0], sample_norms(*given), rtol=1e-9) == (len(seen) == 6)
