"""AdapLR, oracles 8 to 12 of the algebra of C-FLAG's paper; and the rates that are refused."""

import numpy as np
import pytest
import torch
from c_flag_oracle import L

from raysim.algorithms.c_flag import CFlag, adapt_rates, forgetting_term
from raysim.engine.compatibility import check_methods
from raysim.system.errors import ConfigError

OFF = {"adaptive": "off"}


def vectors(count, seed=0, size=40):
    draws = np.random.default_rng(seed)
    return [torch.from_numpy(draws.standard_normal(size)) for _ in range(count)]


def along(memory, added, sign):
    """Added, turned over if need be so that <F, A> has the sign."""
    return added * sign * torch.sign(memory.dot(added))


WIDE = {"beta_range": (0.0, 1e9)}


@pytest.mark.parametrize("case", ["average", "worst"])
@pytest.mark.parametrize("seed", range(5))
def test_interference_gives_back_what_the_steps_take_from_the_memory(case, seed):
    """Oracle 8. Lambda < 0: (alpha_i F + beta A) . F / ||F||^2 = alpha_i + beta Lambda / ||F||^2 = alpha.

    For alpha = beta this is Table 1 as printed; for others it is what `interference: exact` extends it to. The limit of
    eq. 14 is out of the way: L is tiny.
    """
    memory, added = vectors(2, seed)
    added = along(memory, added, -1)
    for alpha, beta, reading in ((0.1, 0.1, "as_printed"), (0.1, 0.1, "exact"), (0.1, 0.03, "exact")):
        knobs = CFlag(smoothness=1e-3, adaptive=case, interference=reading)
        alpha_i, beta_i = adapt_rates(knobs, memory, added, alpha, beta, 0.3)
        share = (alpha_i * memory + beta * added).dot(memory) / memory.dot(memory)
        assert float(share) == pytest.approx(alpha, rel=1e-12)
        assert float(alpha_i) >= alpha
        assert float(beta_i) == beta


def test_table_1_as_printed_where_alpha_is_not_beta():
    """alpha_i = alpha (1 - Lambda / ||F||^2) = 0.1 (1 + 6/4) = 0.25; exact is 0.1 + 0.02 * 6/4 = 0.13."""
    memory, added = torch.tensor([2.0, 0.0]).double(), torch.tensor([-3.0, 1.0]).double()
    found = [
        float(adapt_rates(CFlag(interference=reading, smoothness=1.0), memory, added, 0.1, 0.02, 1.0)[0])
        for reading in ("as_printed", "exact")
    ]
    assert found == pytest.approx([0.25, 0.13], rel=1e-14)


def test_neither_case_leaves_both_rates():
    """Oracle 8. Lambda = 0: alpha_i = alpha and beta_i = beta."""
    memory, added = torch.tensor([1.0, 0.0]).double(), torch.tensor([0.0, 1.0]).double()
    assert [float(v) for v in adapt_rates(CFlag(), memory, added, 0.1, 0.07, 0.3)] == [0.1, 0.07]


@pytest.mark.parametrize("weight", [0.2, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_transference_minimises_what_is_forgotten(weight, seed):
    """Oracle 9. Gamma_i(b) = L/2 b^2 w ||A||^2 - b (1 - L a) Lambda is least at b = (1 - L a) Lambda / (L w ||A||^2),

    where it is -((1 - L a) Lambda)^2 / (2 L w ||A||^2) < 0. With Alg. 3's own a_i = beta A, b would be 1 / beta as big.
    """
    memory, added = vectors(2, seed)
    added = along(memory, added, 1)
    alpha_i, beta_i = adapt_rates(CFlag(**WIDE), memory, added, 0.1, 0.1, weight)
    assert float(alpha_i) == 0.1
    inner, square = float(memory.dot(added)), float(added.dot(added))
    least = float(forgetting_term(memory, added, alpha_i, beta_i, L, weight))
    assert least == pytest.approx(-(((1 - 0.5) * inner) ** 2) / (2 * L * weight * square), rel=1e-12)
    for other in (0.99, 1.01):
        assert float(forgetting_term(memory, added, alpha_i, other * beta_i, L, weight)) > least


def test_the_adaptive_rates_scale_as_they_must():
    """Oracle 10. Lambda is linear in both vectors and ||A||^2 quadratic: A -> 7A gives beta_i / 7, F -> 7F gives 7

    beta_i. The worst case is the average one with N p_i for p_i: beta_i / N.
    """
    memory, added = vectors(2)
    added = along(memory, added, 1)

    def beta_i(memory, added, weight=0.25):
        return float(adapt_rates(CFlag(**WIDE), memory, added, 0.1, 0.1, weight)[1])

    one = beta_i(memory, added)
    assert beta_i(memory, 7 * added) == pytest.approx(one / 7, rel=1e-13)
    assert beta_i(7 * memory, added) == pytest.approx(7 * one, rel=1e-13)
    assert beta_i(memory, added, 4 * 0.25) == pytest.approx(one / 4, rel=1e-13)


def test_no_client_forgets_more_than_at_the_fixed_rates():
    """Oracle 11, Lemma 7, rates unlimited: sum_i p_i Gamma_i(adaptive) <= sum_i p_i Gamma_i(alpha, beta)."""
    shares = np.random.default_rng(1).dirichlet(np.ones(6))
    for clients in (1, 6):
        fixed, adaptive, signs = 0.0, 0.0, set()
        for share, seed in zip(shares, range(6), strict=True):
            memory, added = vectors(1)[0], vectors(1, seed + 20)[0]
            signs.add(float(torch.sign(memory.dot(added))))
            weight = clients * share
            rates = adapt_rates(CFlag(**WIDE), memory, added, 0.1, 0.1, weight)
            fixed += share * float(forgetting_term(memory, added, 0.1, 0.1, L, weight))
            adaptive += share * float(forgetting_term(memory, added, *rates, L, weight))
        assert signs == {-1.0, 1.0}
        assert adaptive < fixed


def test_the_rates_stay_within_their_limits():
    """alpha_i <= 2 / (L (1 + m)) = 0.4 / 1.6 = 0.25, and beta_i in its range."""
    memory = torch.tensor([1e-3, 0.0]).double()
    against, with_it = torch.tensor([-1e3, 0.0]).double(), torch.tensor([1e-9, 0.0]).double()
    assert float(adapt_rates(CFlag(bias=0.6), memory, against, 0.1, 0.1, 1.0)[0]) == pytest.approx(0.25, rel=1e-15)
    assert float(adapt_rates(CFlag(), memory, with_it, 0.1, 0.1, 1.0)[1]) == 0.95
    assert float(adapt_rates(CFlag(), memory, -against, 0.1, 0.1, 1.0)[1]) == 1e-4
    assert float(adapt_rates(CFlag(beta_range=(0.01, 0.02)), memory, -against, 0.1, 0.1, 1.0)[1]) == 0.01


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_of_zero_give_no_nan(dtype):
    """Oracle 12. ||F|| = 0 leaves alpha, ||A|| = 0 leaves beta; also where only the squares vanish."""
    zero, one = torch.zeros(3, dtype=dtype), torch.ones(3, dtype=dtype)
    tiny_one = 1e-30 * one if dtype == torch.float32 else 1e-200 * one
    for memory, added in ((zero, one), (one, zero), (zero, zero), (tiny_one, -one), (one, tiny_one)):
        rates = [float(v) for v in adapt_rates(CFlag(), memory, added, 0.1, 0.07, 0.5)]
        assert rates == pytest.approx([0.1, 0.07], rel=1e-15)


def test_in_task_1_adaptive_is_off(c_flag_config, simulate):
    """Oracle 12. Nothing is remembered: the same bits, one task; and other bits once there is a second."""
    for tasks, same in ((1, True), (2, False)):
        found = {simulate(c_flag_config(knobs=k, scenario__tasks=tasks)).sha256 for k in (OFF, {}, {"alpha": 0.01})}
        assert (len(found) == 1) == same


@pytest.mark.parametrize(
    ("knobs", "training", "said"),
    [
        ({"alpha": 0.2}, {}, "found alpha=0.2, allowed: less than 0.2"),
        ({"alpha": 0.01, "smoothness": 200}, {}, "allowed: less than 0.005"),
        ({}, {"training__optimizer": {"lr": 0.3}}, r"found alpha=0.3 \(training.optimizer.lr\)"),
        ({"beta": 0.3}, {}, "found alpha=0.3, allowed"),
        ({"bias": 3.0}, {}, "allowed: less than 0.1"),
        ({"objective_weights": "h"}, {}, "set adaptive=off"),
        ({"objective_weights": "h", "adaptive": "off", "alpha": 0.1}, {}, "leave alpha out"),
        ({"beta_range": [0.5, 0.1]}, {}, "found beta_range"),
        (OFF, {"training__clip_norm": 1.0}, "training.clip_norm: found 1.0, allowed with c_flag"),
        (OFF, {"training__optimizer": {"name": "adam"}}, "needs plain SGD"),
        (OFF, {"training__optimizer": {"momentum": 0.9}}, "needs plain SGD"),
        (OFF, {"training__optimizer": {"weight_decay": 0.1}}, "needs plain SGD"),
        (OFF, {"memory": {"fill": "arrival"}}, "memory.fill: c_flag cannot use arrival"),
        (OFF, {"methods": {"c_flag": OFF, "fed_a_gem": {}}}, "changes the local loop"),
        (OFF, {"methods": {"c_flag": OFF, "fedtrack": {}}}, "each override the hook train"),
    ],
)
def test_what_cannot_work_is_refused_at_start(c_flag_config, knobs, training, said):
    """Oracle 12: 1 - L alpha <= 0 among them."""
    with pytest.raises(ConfigError, match=said):
        check_methods(c_flag_config(knobs=knobs, **training))


@pytest.mark.parametrize(
    "knobs", [{}, {"adaptive": "off", "alpha": 3.0}, {"alpha": 0.19}, {"objective_weights": "h", **OFF}]
)
def test_what_can_work_is_not(c_flag_config, knobs):
    check_methods(c_flag_config(knobs=knobs))
