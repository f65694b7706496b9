"""torch.optim is the oracle: the same 20 gradients, drawn once."""

import pytest
import torch

from raysim.config import AdamConfig as AdamKnobs
from raysim.config import SgdConfig as SgdKnobs
from raysim.engine.optimizer import Adam, Sgd, fresh

STEPS = 20
SGD = [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 0.01}]
ADAM = [{}, {"betas": [0.8, 0.95]}, {"weight_decay": 0.1}, {"eps": 0.01}]
DTYPES = pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])


def compare(knobs, oracle, dtype, tolerance):
    draws = torch.Generator().manual_seed(3)
    start = torch.randn(50, generator=draws, dtype=dtype)
    mine, theirs = start.clone(), start.clone().requires_grad_()
    optimizer, other = fresh(knobs), oracle([theirs])
    for number in range(STEPS):
        lr = 0.1 / (1 + number)  # changes with the rounds' decay
        gradient = torch.randn(50, generator=draws, dtype=dtype)
        optimizer.step(mine, gradient.clone(), lr)
        theirs.grad = gradient.clone()
        other.param_groups[0]["lr"] = lr
        other.step()
        assert torch.allclose(mine, theirs.detach(), rtol=tolerance, atol=tolerance)
    assert (mine - start).abs().max() > 0.05
    return mine, theirs.detach()


@DTYPES
@pytest.mark.parametrize("knobs", SGD)
def test_sgd_is_torchs(knobs, dtype, tolerance):
    mine, theirs = compare(
        SgdKnobs(**knobs), lambda w: torch.optim.SGD(w, lr=1.0, foreach=False, **knobs), dtype, tolerance
    )
    assert torch.equal(mine, theirs)


@DTYPES
@pytest.mark.parametrize("knobs", ADAM)
def test_adam_is_torchs(knobs, dtype, tolerance):
    compare(AdamKnobs(**knobs), lambda w: torch.optim.Adam(w, lr=1.0, foreach=False, **knobs), dtype, tolerance)


def test_the_first_step_by_hand():
    """SGD: w - lr (g + wd w) = 2 - 0.5 (1 + 0.1 * 2) = 1.4. Adam: m/(1-b1) = g, v/(1-b2) = g^2: w - lr sign(g)."""
    w = torch.tensor([2.0], dtype=torch.float64)
    Sgd(SgdKnobs(weight_decay=0.1)).step(w, torch.tensor([1.0], dtype=torch.float64), 0.5)
    assert w.item() == pytest.approx(1.4, rel=1e-15)
    w = torch.tensor([2.0], dtype=torch.float64)
    Adam(AdamKnobs()).step(w, torch.tensor([-4.0], dtype=torch.float64), 0.5)
    assert w.item() == pytest.approx(2.5, rel=1e-8)


@pytest.mark.parametrize("knobs", [SgdKnobs(momentum=0.9, weight_decay=0.1), AdamKnobs(weight_decay=0.1)])
def test_the_gradient_is_left_as_it_was(knobs):
    optimizer, gradient = fresh(knobs), torch.ones(3)
    for _ in range(2):
        optimizer.step(torch.ones(3), gradient, 0.1)
    assert gradient.tolist() == [1, 1, 1]


def test_each_call_of_fresh_starts_without_a_past():
    """With momentum the first step is lr * g whatever was done before."""
    knobs = SgdKnobs(momentum=0.9)
    used = fresh(knobs)
    used.step(torch.zeros(1), torch.ones(1), 1.0)
    w = torch.zeros(1)
    fresh(knobs).step(w, torch.ones(1), 1.0)
    assert w.item() == -1.0
    used.step(w, torch.ones(1), 1.0)
    assert w.item() == pytest.approx(-2.9)
