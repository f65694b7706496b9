"""STSA-E (Guan et al., WWW 2026): Gram matrices from sums of groups, against derivations by hand."""

import itertools

import numpy as np
import pytest
import torch

from raysim.algorithms.stsa_e import StsaE, by_class, estimate_gram, solve_raised
from raysim.api import RunError
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

SMALL_RUN = {"sends_at_end": True}

LINEAR = {"name": "mlp", "hidden": []}
SETS = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0], [3.0, 1.0]], dtype=torch.float64)


def test_the_estimate_of_two_groups():
    """Sums (2, 0) of 2 and (1, 3) of 1: N = 3, K = 2, a = 2, b = 1/3, and P = (3, 3).

    a ((4 0; 0 0) / 2 + (1 3; 3 9)) - b (9 9; 9 9) = (6 6; 6 18) - (3 3; 3 3).
    """
    found = estimate_gram(torch.tensor([[2.0, 0.0], [1.0, 3.0]]).double(), torch.tensor([2.0, 1.0]).double())
    torch.testing.assert_close(found, torch.tensor([[3.0, 3.0], [3.0, 15.0]]).double())


def test_groups_of_one_sample_give_the_gram_and_one_group_the_mean():
    """K = N: a = 1 and b = 0. K = 1: P P^T / N."""
    torch.testing.assert_close(estimate_gram(SETS, torch.ones(4).double()), SETS.T @ SETS)
    total = SETS.sum(0)
    torch.testing.assert_close(estimate_gram(total[None], torch.tensor([4.0]).double()), torch.outer(total, total) / 4)


def test_the_estimate_is_unbiased():
    """Over the six divisions of four samples into 2 + 2, the mean is (11 4; 4 6), which is their Gram."""
    halves = [([*half], [k for k in range(4) if k not in half]) for half in itertools.combinations(range(4), 2)]
    estimates = [
        estimate_gram(torch.stack([SETS[a].sum(0), SETS[b].sum(0)]), torch.tensor([2.0, 2.0]).double())
        for a, b in halves
    ]
    torch.testing.assert_close(torch.stack(estimates).mean(0), torch.tensor([[11.0, 4.0], [4.0, 6.0]]).double())


@pytest.mark.parametrize("clients", [1, 3])
def test_a_group_for_each_sample_is_ridge_regression(tiny, simulate, clients):
    """Each client has at most 60 samples of a task, so that 60 groups have one sample or none each."""
    data = {"name": "synthetic", "classes": 4, "shape": [6], "train": 60, "test": 20}
    keys = {"groups": 60, "ridge": 0.3, "ridge_relative": False, "train_first": False}
    scenario = {"kind": "class_incremental", "tasks": 2}
    config = tiny(dataset=data, scenario=scenario, clients__count=clients, model=LINEAR, methods={"stsa_e": keys})
    federation = build_federation(config)
    run = simulate(config, federation)
    train = federation.dataset.train
    x = train.x.astype(np.float64)
    solved = np.linalg.solve(x.T @ x + 0.3 * np.eye(6), x.T @ np.eye(4)[train.y])
    (half,) = run.simulation.exchange.halves.values()
    np.testing.assert_allclose(half.solution, solved, rtol=1e-9, atol=1e-12)


def test_a_client_sends_groups_sums_of_its_classes_alone(tiny, simulate):
    """5 groups of 2 classes: 5 * 2 * (6 + 1) sums and counts and 2 classes, of 8 bytes, for each of 3 clients."""
    scenario = {"kind": "class_incremental", "tasks": 2}
    run = simulate(tiny(scenario=scenario, model=LINEAR, methods={"stsa_e": {"train_first": False}}))
    assert [done.bytes_up for done in run.rounds] == [0, 3 * 8 * (5 * 2 * 7 + 2)] * 2


def test_a_class_without_samples_is_in_no_estimate():
    """Client 4 has class 2 in its second group alone, and class 7, which its task has, in none."""
    sums = torch.tensor([[[0.0], [0.0]], [[3.0], [0.0]]]).double()
    reply = {"sums": {4: sums}, "counts": {4: (sums > 0).double()[..., 0]}, "classes": {4: torch.tensor([2.0, 7.0])}}
    found = by_class(reply)
    assert [*found] == [2]
    assert [part.tolist() for part in found[2]] == [[[3.0]], [1.0]]


def test_no_estimate_has_negative_eigenvalues():
    """v^T G v >= (v^T P)^2 / N for each v. Groups of 1 to 8 samples, 1 to 6 of them, with a common mean."""
    draws = torch.Generator().manual_seed(0)
    for groups in range(1, 7):
        counts = torch.randint(1, 9, (groups,), generator=draws).double()
        mean, noise = (torch.randn(size, 4, generator=draws).double() for size in (1, groups))
        sums = 5 * mean * counts[:, None] + noise
        gram, total = estimate_gram(sums, counts), sums.sum(0)
        rest = gram - torch.outer(total, total) / counts.sum()
        assert float(torch.linalg.eigvalsh(rest)[0]) >= -1e-12 * float(gram.diagonal().max())


def test_a_penalty_is_raised_where_rounding_leaves_negative_eigenvalues():
    """The eigenvalues 3 and -2 with lambda 1: lambda becomes 3, and W = diag(1/6, 1) P."""
    gram = torch.tensor([[3.0, 0.0], [0.0, -2.0]], dtype=torch.float64)
    cross = torch.ones(2, 1, dtype=torch.float64)
    weight, raised = solve_raised(gram, cross, StsaE(ridge=1.0, ridge_relative=False), "stsa_e")
    assert raised == pytest.approx(2)
    torch.testing.assert_close(weight, torch.tensor([[1 / 6], [1.0]], dtype=torch.float64))
    with pytest.raises(RunError, match=r"^methods\.stsa_e\.ridge: found 0, with which the features' Gram"):
        solve_raised(gram, cross, StsaE(ridge=0.0), "stsa_e")


def test_a_grid_is_refused(tiny):
    with pytest.raises(ConfigError, match=r"methods\.stsa_e\.grid: unknown key 'grid' of 'stsa_e'"):
        check_methods(tiny(methods={"stsa_e": {"grid": 8}}))
