"""Re-Fed, oracles 1 and 2: the pull towards the global model, on quadratics."""

import numpy as np
import pytest
import torch

from raysim.algorithms.parts.personalized_model import step_with_pull
from raysim.algorithms.re_fed import ReFed
from raysim.config import ConfigError


def test_the_pull():
    """q(lambda) = (1 - lambda) / (2 lambda): q(1/3) = (2/3)/(2/3) = 1, q(1/2) = 1/2, q(.8) = .2/1.6 = 1/8, q(1) = 0."""
    assert ReFed(lam=1 / 3).pull == pytest.approx(1, rel=1e-15)
    assert ReFed(lam=0.5).pull == 0.5
    assert ReFed(lam=0.8).pull == pytest.approx(0.125, rel=1e-15)
    pulls = [ReFed(lam=lam).pull for lam in np.linspace(0.01, 0.999999, 50)]
    assert pulls == sorted(pulls, reverse=True)
    assert len(set(pulls)) == 50
    assert 0 < pulls[-1] < 1e-6


@pytest.mark.parametrize("lam", [0, 1, -0.5, 1.5])
def test_lambda_lies_between_0_and_1(tiny, lam):
    with pytest.raises(ConfigError, match=r"methods.re_fed.lam=.*: found .*, allowed: a number > 0 and < 1$"):
        tiny(methods__re_fed__lam=lam)


# 2


@pytest.fixture
def quadratic():
    """H (eigenvalues 0.5 to 3), b and w of f(v) = 1/2 (v - b)^T H (v - b), in float64."""
    draws = torch.Generator().manual_seed(0)
    rotation = torch.linalg.qr(torch.randn(4, 4, generator=draws, dtype=torch.float64)).Q
    b, w = torch.randn(2, 4, generator=draws, dtype=torch.float64)
    return rotation @ torch.diag(torch.tensor([0.5, 1, 2, 3], dtype=torch.float64)) @ rotation.T, b, w


def fixed_point(quadratic, lam, lr=0.1, steps=2000):
    h, b, w = quadratic
    v = w.clone()
    for _ in range(steps):
        step_with_pull(v, h @ (v - b), w, lr, ReFed(lam=lam).pull)
    return v


@pytest.mark.parametrize("lam", [0.02, 0.05, 0.2, 1 / 3, 0.5, 0.8, 0.99])
def test_on_a_quadratic_the_pim_settles_between_the_global_and_the_local_optimum(quadratic, lam):
    """At rest H (v - b) + q (v - w) = 0, so v = (H + q I)^-1 (H b + q w).

    With lr = 0.1 the pull is explicit while q < 10, lambda > 1/21 = 0.0476, and implicit for 0.02 (q = 24.5); the
    implicit step v' = (v - lr H (v - b) + lr q w) / (1 + lr q) rests where lr q v = -lr H (v - b) + lr q w: the same.
    """
    h, b, w = quadratic
    q = (1 - lam) / (2 * lam)
    expected = torch.linalg.solve(h + q * torch.eye(4, dtype=torch.float64), h @ b + q * w)
    assert torch.allclose(fixed_point(quadratic, lam), expected, rtol=1e-10, atol=1e-12)


def test_the_limits_of_lambda_and_lemma_1(quadratic):
    """lambda -> 1: q -> 0, v = b; lambda -> 0: v = w; ||v - w|| grows with lambda (Lemma 1)."""
    _, b, w = quadratic
    assert torch.allclose(fixed_point(quadratic, 1 - 1e-12), b, atol=1e-9)
    assert torch.allclose(fixed_point(quadratic, 1e-9), w, atol=1e-7)
    distances = [float((fixed_point(quadratic, lam) - w).norm()) for lam in (1e-6, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)]
    assert distances == sorted(distances)
    assert distances[0] < distances[-1]


def test_the_pull_switches_where_the_explicit_step_would_overshoot():
    """f = 0, w = 0, v = 1: explicit gives 1 - lr q, implicit 1 / (1 + lr q). lr q = 0.9: 0.1; 1: 0.5; 4: 0.2."""
    for pull, expected in ((9.0, 0.1), (10.0, 0.5), (40.0, 0.2)):
        v = torch.ones(1, dtype=torch.float64)
        step_with_pull(v, torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64), 0.1, pull)
        assert v.item() == pytest.approx(expected, rel=1e-12)
