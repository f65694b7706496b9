"""NCCL at every client (Han et al., UAI 2023), in float64; the rates are C-FLAG's for one client and one step."""

from pathlib import Path

import numpy as np
import pytest
import torch
from costs import cost_of
from replay_oracle import LIVELY, recorded, stream_of, vector
from softmax_oracle import Softmax

from raysim.algorithms.nccl import Nccl, adapt_step_rates
from raysim.algorithms.parts import replay
from raysim.algorithms.parts.projection import project
from raysim.cli import main
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

QUICKSTART = str(Path(__file__).parents[2] / "configs" / "quickstart.yaml")
SOFTMAX = {"name": "probes:softmax"}


def of(*values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(
    ("batch", "cap", "rates", "step"),
    [
        ((-1.0, 1.0), True, (0.2, 0.1), (-0.1, -0.1)),
        ((1.0, 1.0), True, (0.1, 0.05), (-0.15, -0.05)),
        ((0.0, 1.0), True, (0.1, 0.1), (-0.1, -0.1)),
        ((0.1, 0.0), True, (0.1, 0.1), (-0.11, 0.0)),
        ((0.1, 0.0), False, (0.1, 1.0), (-0.2, 0.0)),
        ((0.0, 0.0), True, (0.1, 0.1), (-0.1, 0.0)),
    ],
)
def test_the_rates_by_hand(batch, cap, rates, step):
    """alpha = 0.1, L = 5, F = (1, 0).

    g = (-1, 1): <F, g> = -1, a = 0.1 (1 + 1) and b = 0.1. g = (1, 1): b = (1 - 0.5) 1 / (5 * 2) = 0.05. Orthogonal:
    both 0.1. g = (0.1, 0): b = 0.5 * 0.1 / (5 * 0.01) = 1, capped at 0.1. g = 0: <F, g> = 0, along F alone.
    """
    memory, batch = of(1, 0), of(*batch)
    a, b = adapt_step_rates(Nccl(smoothness=5.0, cap=cap), memory, batch, 0.1)
    np.testing.assert_allclose([a, b], rates, rtol=1e-14)
    np.testing.assert_allclose(-(a * memory + b * batch), step, rtol=1e-14, atol=1e-17)


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_that_interferes_takes_nothing_from_the_memory(seed):
    """<a F + b g, F> / |F|^2 = a + alpha <F, g> / |F|^2 = alpha; the step is A-GEM's and -alpha F."""
    draws, alpha = np.random.default_rng(seed), 0.07
    memory, batch = (torch.from_numpy(draws.standard_normal(40)) for _ in range(2))
    batch = -batch * torch.sign(memory.dot(batch))
    a, b = adapt_step_rates(Nccl(), memory, batch, alpha)
    moved = a * memory + b * batch
    assert float(moved.dot(memory) / memory.dot(memory)) == pytest.approx(alpha, rel=1e-12)
    torch.testing.assert_close(moved, alpha * project(batch, memory) + alpha * memory, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("seed", range(5))
def test_the_batchs_rate_is_where_the_memorys_bound_is_least(seed):
    """f(w - a F - b g) <= f - <F, a F + b g> + L/2 |a F + b g|^2: no b near the one given has a lower bound."""
    draws, alpha, smooth = np.random.default_rng(seed), 0.1, 2.0
    memory, batch = (torch.from_numpy(draws.standard_normal(40)) for _ in range(2))
    batch = batch * torch.sign(memory.dot(batch))
    a, b = adapt_step_rates(Nccl(smoothness=smooth, cap=False), memory, batch, alpha)

    def bound(b):
        step = a * memory + b * batch
        return float(-memory.dot(step) + smooth / 2 * step.dot(step))

    assert bound(b) < min(bound(b + 1e-4), bound(b - 1e-4))


@pytest.mark.parametrize("alpha", [None, 0.03])
def test_every_step_of_a_run_is_along_both(tiny, simulate, monkeypatch, alpha):
    """w' - w = -(a F + b g), F on the whole memory and g on the batch in NumPy; plain steps without a memory."""
    steps, config = recorded(monkeypatch), tiny(model=SOFTMAX, methods={"nccl": {"alpha": alpha, "smoothness": 2.0}})
    federation = build_federation(config)
    memories, real = {}, replay.gradient_on
    monkeypatch.setattr(
        "raysim.algorithms.parts.replay.gradient_on",
        lambda c, e, name: memories.setdefault(c.id, e.positions) is None or real(c, e, name),
    )
    simulate(config, federation)
    seen = set()
    for step in steps:
        x, y = stream_of(federation, step.client)
        g = Softmax.of(step.before, 4, 6).loss_and_gradient(x[step.positions], y[step.positions])[1]
        wanted = -0.1 * g
        assert step.held == (0 if step.phase <= 2 else 12)
        if step.held:
            f = Softmax.of(step.before, 4, 6).loss_and_gradient(x[memories[step.client]], y[memories[step.client]])[1]
            rate, inner = alpha or 0.1, f @ g
            seen.add(bool(inner > 0))
            if inner <= 0:
                wanted = -(rate * (1 - inner / (f @ f)) * f + rate * g)
            else:
                wanted = -(rate * f + min(rate, (1 - 2 * rate) * inner / (2 * (g @ g))) * g)
        np.testing.assert_allclose(step.after - step.before, wanted, rtol=0, atol=1e-13)
    assert seen == {True, False}


def test_without_a_memory_it_is_fedavg_bit_for_bit(tiny, simulate):
    """Task 1, whatever alpha; and later if one sample is held, of which BatchNorm has no statistics."""
    for more, same in (({"scenario__tasks": 1}, True), ({"memory": {"capacity": 1}}, True), ({}, False)):
        nccl = {"nccl": {"alpha": 0.05}}
        assert (
            simulate(tiny(model=LIVELY, methods=nccl, **more)).sha256 == simulate(tiny(model=LIVELY, **more)).sha256
        ) == same


@pytest.mark.parametrize(("cap", "most"), [(True, 0.1), (False, 1e9)])
def test_of_one_client_and_one_step_it_is_c_flag(tiny, simulate, cap, most):
    """C-FLAG's average case with p = 1, G = G_1 and E = 1: -alpha_1 F - beta_1 g_1, beta_1 in the range that is given.

    A phase is one batch. C-FLAG bounds alpha_1 by 2/L = 2 besides, which is far.
    """
    one = {
        "model": SOFTMAX, "clients__count": 1, "training__batch_size": 36, "training__rounds_per_task": 5,
        "scenario__tasks": 3,
    }  # fmt: skip
    nccl = {"nccl": {"smoothness": 1.0, "cap": cap}}
    c_flag = {"c_flag": {"smoothness": 1.0, "adaptive": "average", "beta_range": [0.0, most]}}
    found = [vector(simulate(tiny(methods=methods, **one)).state) for methods in (nccl, c_flag, {})]
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-12)
    assert np.abs(found[0] - found[2]).max() > 1e-3


def test_a_memory_that_is_fitted_perfectly_changes_nothing(tiny, simulate, monkeypatch):
    """F = 0: the plain step, not 0/0."""
    monkeypatch.setattr(replay, "gradient_on", lambda client, *_: torch.zeros_like(client.model.parameters))
    assert simulate(tiny(methods={"nccl": {"alpha": 0.05}})).sha256 == simulate(tiny()).sha256


def zero_in_task_2(lr, progress):
    """A schedule with the rate 0 from task 2 on, when there is a memory."""
    return lr * (progress.task < 1)


@pytest.mark.parametrize("alpha", [None, 0.1])
def test_at_a_rate_of_zero_nothing_moves(tiny, simulate, alpha):
    """The step is lr times what the method returns: no finite number times 0 is a step along F."""
    given = {"methods": {"nccl": {"alpha": alpha}}, "training__lr_decay": {"name": "test_nccl:zero_in_task_2"}}
    one = simulate(tiny(**given, scenario__tasks=1))
    assert simulate(tiny(**given)).sha256 == one.sha256


def test_it_sends_what_fedavg_sends_and_it_is_known_before(tiny, simulate):
    config = tiny(model=LIVELY, participation={"count": 2}, memory={"capacity": 5, "per": "task"}, methods={"nccl": {}})
    federation = build_federation(config)
    run, plain = simulate(config, federation), simulate(config.model_copy(update={"methods": {}}), federation)
    before, counted = cost_of(config, federation), run.simulation.exchange
    assert (sum(before.up.values()), sum(before.down.values())) == (counted.traffic.up, counted.traffic.down)
    assert [(r.bytes_up, r.bytes_down) for r in run.rounds] == [(r.bytes_up, r.bytes_down) for r in plain.rounds]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"training__optimizer": {"momentum": 0.9}}, "needs plain SGD"),
        (
            {"methods": {"nccl": {"smoothness": 10.0}}},
            r"found alpha=0.1 \(training.optimizer.lr\), allowed: less than 0.1",
        ),
        (
            {"methods": {"nccl": {"alpha": 0.3}}},
            r"found alpha=0.3, allowed: less than 0.2, as the rates need 1 - smooth",
        ),
        (
            {
                "scenario__boundaries": {"asynchronous": {"window": 4, "rounds_per_window": 1}},
                "training__rounds_per_task": None,
            },
            "fill their memory when a client's task ends",
        ),
        # the step a F + b g is then shorter than the one that keeps the memory's loss
        ({"training__clip_norm": 0.05}, "updates that are linear combinations of the gradients, without clipping"),
    ],
)
def test_what_it_cannot_have_is_refused(tiny, more, said):
    with pytest.raises(ConfigError, match=said):
        check_methods(tiny(**{"methods": {"nccl": {}}, **more}))


def test_the_refusal_is_one_line_before_anything_starts(capsys, tmp_path):
    given = [QUICKSTART, "methods={nccl: {}}", "training.optimizer.lr=0.25"]
    assert main(["run", *given, "--local", "--out", str(tmp_path / "run")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "run").exists()
