"""EWC (Kirkpatrick et al., PNAS 2017; online: Schwarz et al., ICML 2018) against a second writing in NumPy, float64."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from costs import cost_of
from replay_oracle import LIVELY, LR, gradient, stream_of, vector
from softmax_oracle import batch_order

from raysim.algorithms.ewc import Ewc, consolidate
from raysim.cli import main
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.models.building import build_model
from raysim.system.errors import ConfigError

QUICKSTART = str(Path(__file__).parents[2] / "configs" / "quickstart.yaml")
SOFTMAX = {"name": "probes:softmax"}
UNEVEN = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 1}
P = 28 * 8  # bytes of 28 float64 parameters


def fisher_of(w, x, y):
    """F of the sample form: the mean of single samples' squared gradients."""
    return np.mean([gradient(w, x[i : i + 1], y[i : i + 1]) ** 2 for i in range(len(y))], axis=0)


def second_writing(config, federation, cohorts):
    """FedAvg with one penalty for each past task, or one around the last model."""
    knobs, training, tasks = config.methods["ewc"], config.training, config.scenario.tasks
    clients = range(config.clients.count)
    streams = [stream_of(federation, k) for k in clients]
    data = [
        [(x[at], y[at]) for at in (s.span(t, t + 1) for t in range(tasks))]
        for (x, y), s in zip(streams, federation.streams, strict=True)
    ]
    penalties = [[] for _ in clients]  # by client: F and w* of each
    phases, w = Counter(), vector(build_model(config, federation.shape, federation.classes).state_dict())
    for number, cohort in enumerate(cohorts, 1):
        task, ends = (number - 1) // training.rounds_per_task, []
        for k in cohort:
            phases[k] += 1
            v, (x, y) = w, data[k][task]
            for batch in batch_order(config.seed, k, phases[k], len(y), training.local_epochs, training.batch_size):
                pull = sum(f * (v - a) for f, a in penalties[k])
                v = v - LR * (gradient(v, x[batch], y[batch]) + knobs["strength"] * pull)
            ends.append(v)
        sizes = [len(data[k][task][1]) for k in clients]
        w = np.average(ends, axis=0, weights=[sizes[k] for k in cohort])
        if number % training.rounds_per_task == 0:
            own = [fisher_of(w, *data[k][task]) for k in clients]
            for k in clients:
                f = np.average(own, axis=0, weights=sizes) if knobs["scope"] == "global" else own[k]
                if knobs["clip"] is not None:
                    f = (
                        np.mean([np.minimum(own[j], knobs["clip"]) * sizes[j] for j in clients], axis=0)
                        * len(sizes)
                        / sum(sizes)
                    )
                older = [(knobs["decay"] * f, a) for f, a in penalties[k]]
                if knobs["mode"] == "separate":
                    penalties[k] = [*older, (f, w)]
                else:
                    penalties[k] = [(f + sum(f for f, _ in older), w)]
    return w


WRITINGS = {
    "online": {},
    "separate": {"mode": "separate"},
    "decayed": {"decay": 0.5},
    "separate, decayed": {"decay": 0.5, "mode": "separate"},
    "clipped": {"clip": 0.02},
    "its own": {"scope": "client"},
    "its own, separate": {"scope": "client", "mode": "separate"},
}


@pytest.mark.parametrize("count", [3, 1])
@pytest.mark.parametrize("knobs", WRITINGS.values(), ids=WRITINGS)
def test_a_run_is_the_sum_of_the_penalties(tiny, simulate, knobs, count):
    """Three tasks, unequal clients with weights by samples; with one client a round, who was not in a task's last round

    is asked as well.
    """
    config = tiny(
        model=SOFTMAX,
        **UNEVEN,
        scenario__tasks=3,
        participation={"count": count},
        aggregation__weights="samples",
        methods={"ewc": {"strength": 4.0, **knobs}},
    )
    federation = build_federation(config)
    run = simulate(config, federation)
    wanted = second_writing(config, federation, [r.cohort for r in run.rounds])
    np.testing.assert_allclose(vector(run.state), wanted, rtol=0, atol=1e-11)
    plain = simulate(config.model_copy(update={"methods": {}}), federation)
    assert np.abs(vector(plain.state) - wanted).max() > 1e-3


@pytest.mark.parametrize(("strength", "tasks", "same"), [(0.0, 2, True), (7.0, 1, True), (7.0, 2, False)])
@pytest.mark.parametrize("scope", ["global", "client"])
def test_it_is_fedavg_bit_for_bit_at_strength_0_and_in_task_1(tiny, simulate, scope, strength, tasks, same):
    more = {"model": LIVELY, "scenario__tasks": tasks}
    ewc = {"ewc": {"strength": strength, "scope": scope, "fisher": "expected"}}
    assert (simulate(tiny(methods=ewc, **more)).sha256 == simulate(tiny(**more)).sha256) == same


def sha(tiny, simulate, more, knobs):
    return simulate(tiny(model=LIVELY, methods={"ewc": {"strength": 4.0, **knobs}}, **more)).sha256


def test_what_coincides_is_equal_bit_for_bit(tiny, simulate):
    """Separate with one past task is online; of one client the mean Fisher is its own. Later, or with more, neither."""
    for more, same in (({"scenario__tasks": 2}, True), ({"scenario__tasks": 3}, False)):
        assert (sha(tiny, simulate, more, {}) == sha(tiny, simulate, more, {"mode": "separate"})) == same
    for count, same in ((1, True), (3, False)):
        more = {"clients__count": count, "scenario__tasks": 3}
        assert (sha(tiny, simulate, more, {}) == sha(tiny, simulate, more, {"scope": "client"})) == same


# the penalty


def pulled(held, w, strength=1.0):
    """What the client half adds to a gradient of 0 at w, at a rate so small that no step passes the anchor."""
    half = Ewc.Client("ewc", Ewc(strength=strength))
    half.start(None, True)
    client = SimpleNamespace(lr=1e-9, model=SimpleNamespace(parameters=w), from_server=lambda name: held)
    return half.gradient(SimpleNamespace(client=client), torch.zeros_like(w))


def vectors(count, seed=0):
    draws = np.random.default_rng(seed)
    return [torch.from_numpy(draws.standard_normal(9)) for _ in range(count)]


def test_at_the_anchor_nothing_is_pulled():
    """F (w - w*) = 0 exactly, in float32 as well, where F w - F w* need not be."""
    fisher, anchor = (v.float() for v in vectors(2))
    assert not pulled((fisher.square(), anchor), anchor.clone(), 1e6).any()


def test_quadratics_settle_at_the_weighted_mean():
    """h/2 (w - b)^2 + lambda F/2 (w - a)^2 is least at (h b + lambda F a) / (h + lambda F).

    For h = F = a = 1 and b = 3 that is 2.
    """
    one = torch.ones(1).double()
    w = 5 * one
    for _ in range(60):
        w = w - 0.4 * (w - 3 + pulled((one, one), w))
    assert w.item() == pytest.approx(2, abs=1e-12)
    h, b, fisher, a = vectors(4)
    h, fisher, strength = h.square(), fisher.square(), 7.0
    least = (h * b + strength * fisher * a) / (h + strength * fisher)
    np.testing.assert_allclose(h * (least - b) + pulled((fisher, a), least, strength), 0, atol=1e-14)


@pytest.mark.parametrize("decay", [1.0, 0.6])
def test_one_parabola_has_the_gradient_of_the_penalties_of_all_tasks(decay):
    """sum_t decay^(T - t) F_t (w - w*_t), four tasks; what no task needs has gradient 0 and not 0/0."""
    knobs, held, tasks = Ewc(mode="separate", decay=decay), None, []
    for number in range(4):
        fisher, model = vectors(2, number)
        fisher = fisher.square()
        fisher[:2] = 0
        fisher[2] *= number == 3
        held = consolidate(knobs, held, fisher, model)
        tasks.append((fisher, model))
    (w,) = vectors(1, 9)
    wanted = sum(decay ** (3 - t) * fisher * (w - model) for t, (fisher, model) in enumerate(tasks))
    np.testing.assert_allclose(pulled(held, w), wanted, rtol=1e-12, atol=1e-13)
    assert pulled(held, w)[:2].tolist() == [0, 0]


def test_what_is_left_of_older_tasks():
    """F <- gamma F + F_t around the new model: gamma = 0 leaves F_t, 1 the sum, 1/2 half."""
    (old, anchor), (new, model) = ([v.square() for v in vectors(2, seed)] for seed in (1, 2))
    for decay in (0.0, 0.5, 1.0):
        fisher, at = consolidate(Ewc(decay=decay), (old, anchor), new, model)
        assert torch.equal(fisher, decay * old + new)
        assert torch.equal(at, model)


# what it sends and needs


def test_a_fisher_goes_up_per_task_and_two_vectors_come_down(tiny, simulate):
    """Three clients, three tasks of two rounds. Up: a vector more when a task is over. Down: F and the anchor with the

    next task's first round; the model that ended a task is the next round's anyway, but for the last. With scope client
    only that last model is sent more than in FedAvg.
    """
    more = {"model": SOFTMAX, "scenario__tasks": 3}
    for knobs, up, down in (
        ({}, [1, 2, 1, 2, 1, 2], [1, 2, 2, 2, 2, 2]),
        ({"scope": "client"}, [1] * 6, [1, 2, 0, 2, 0, 2]),
    ):
        run = simulate(tiny(methods={"ewc": knobs}, **more))
        assert [r.bytes_up / P / 3 for r in run.rounds] == up
        assert [r.bytes_down / P / 3 for r in run.rounds] == down


@pytest.mark.parametrize("knobs", [{}, {"mode": "separate", "fisher": "expected"}, {"scope": "client"}])
def test_its_bytes_are_known_before(tiny, simulate, knobs):
    """With half of the clients in a round, of whom one comes in task 2."""
    late = {"clients": {"count": 3, "arrive": {"at": [{"round": 3, "clients": [2]}]}}}
    config = tiny(model=LIVELY, scenario__tasks=3, participation={"fraction": 0.5}, methods={"ewc": knobs}, **late)
    federation = build_federation(config)
    before, counted = cost_of(config, federation), simulate(config, federation).simulation.exchange
    assert before.unsure_bytes == ("scope" in knobs)  # its terms never come in a rehearsal, either
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)
    assert before.steps == counted.steps


@pytest.mark.parametrize("knobs", [{}, {"mode": "separate"}, {"scope": "client"}])
def test_a_resumed_run_has_its_penalties(resumed, knobs):
    """Lost in task 3, of whose penalties both earlier tasks are part."""
    known = {"ewc": {"strength": 4.0, **knobs}}
    whole, again = resumed(5, model=LIVELY, scenario__tasks=3, participation={"count": 2}, methods=known)
    assert again == whole


@pytest.mark.parametrize(
    ("boundaries", "rounds"), [({"asynchronous": {"window": 4}}, None), ({"jittered": {"rounds": 1}}, 4)]
)
def test_boundaries_that_are_not_everybodys_are_refused(tiny, boundaries, rounds):
    config = tiny(methods={"ewc": {}}, scenario__boundaries=boundaries, training__rounds_per_task=rounds)
    with pytest.raises(ConfigError, match=r"^methods\.ewc: needs boundaries that all clients have at the same time;.*"):
        check_methods(config)


def test_the_refusal_is_one_line_before_anything_starts(capsys, tmp_path):
    given = [QUICKSTART, "methods={ewc: {}}", "scenario.boundaries={jittered: {rounds: 2}}"]
    assert main(["run", *given, "--local", "--out", str(tmp_path / "run")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("fisher", "factor"), [(0.0, 1.0), (0.9, 1.0), (1.1, 2.1), (1e6, 1e6 + 1)])
def test_a_large_fisher_pulls_to_the_anchor_and_not_past_it(fisher, factor):
    """lr = 0.1, strength = 10, so a = fisher. For a > 1 the step solves w' = w - lr (g + strength F (w' - anchor)).

    w' = (w - lr g + a anchor) / (1 + a) = w - lr (g + strength F (w - anchor)) / (1 + a): the gradient over 1 + a.
    """
    half = Ewc.Client("ewc", Ewc(strength=10.0))
    half.own = torch.tensor([fisher], dtype=torch.float64), torch.tensor([3.0], dtype=torch.float64)
    w, g = torch.tensor([5.0], dtype=torch.float64), torch.tensor([0.7], dtype=torch.float64)
    step = SimpleNamespace(client=SimpleNamespace(lr=0.1, model=SimpleNamespace(parameters=w)))
    result = half.gradient(step, g.clone())
    torch.testing.assert_close(result, (g + 10 * fisher * (w - 3)) / factor, rtol=1e-15, atol=0)
    if factor > 1:
        new = w - 0.1 * result
        torch.testing.assert_close(new, w - 0.1 * (g + 10 * fisher * (new - 3)), rtol=1e-9, atol=0)


def test_no_strength_diverges(tiny, simulate):
    """lr strength F is far above 2 here, where a plain step along the penalty diverges within a few steps."""
    run = simulate(tiny(model=SOFTMAX, methods={"ewc": {"strength": 1e8}}, training__rounds_per_task=6))
    assert all(value.isfinite().all() for value in run.state.values())
