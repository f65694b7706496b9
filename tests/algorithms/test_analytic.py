"""Analytic: ridge regression in closed form, against derivations by hand, scikit-learn and NumPy."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from raysim import check as check_run
from raysim.algorithms.parts import ridge
from raysim.algorithms.parts.feature_grid import FeatureGrid
from raysim.api import RunError
from raysim.engine.compatibility import check_methods
from raysim.engine.simulation import load_parts
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

SMALL_RUN = {"sends_at_end": True}

LINEAR = {"name": "mlp", "hidden": []}
X = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
Y = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)


def half_of(run):
    (half,) = run.simulation.exchange.halves.values()
    return half


def test_the_head_of_three_samples():
    """G = (2 1; 1 5) and P = (1 1; 0 3). With lambda 1 the determinant is 3 * 6 - 1 = 17: W = (6 -1; -1 3) P / 17."""
    gram, cross = X.T @ X, X.T @ Y
    assert gram.tolist() == [[2, 1], [1, 5]]
    assert ridge.symmetric(ridge.upper(gram), 2).tolist() == gram.tolist()
    expected = torch.tensor([[6, 3], [-1, 8]], dtype=torch.float64) / 17
    torch.testing.assert_close(ridge.solve(gram, cross, 1.0), expected, rtol=1e-15, atol=0)
    without_the_third = torch.tensor([[2.0, 1.0], [-1.0, 2.0]], dtype=torch.float64) / 5
    torch.testing.assert_close(ridge.solve(X[:2].T @ X[:2], X[:2].T @ Y[:2], 1.0), without_the_third)


def test_the_papers_local_solutions_give_the_same_head():
    """AFL with g = 1 for the clients {1, 2} and {3}: W_k = (G_k + I)^-1 P_k, joined, is (G + 2 I)^-1 P, then 2 I is
    taken off. G^-1 = (5 -1; -1 2) / 9, so that W = (5 2; -1 5) / 9."""
    parts = [(x.T @ x, x.T @ y) for x, y in ((X[:2], Y[:2]), (X[2:], Y[2:]))]
    regularized = [gram + torch.eye(2) for gram, _ in parts]
    local = [torch.linalg.solve(c, cross) for c, (_, cross) in zip(regularized, parts, strict=True)]
    total = sum(regularized)
    joined = torch.linalg.solve(total, sum(c @ w for c, w in zip(regularized, local, strict=True)))
    expected = torch.tensor([[0.259259, 0.148148], [-0.037037, 0.407407]], dtype=torch.float64)
    torch.testing.assert_close(joined, expected, rtol=0, atol=1e-6)
    without = torch.linalg.solve(total - 2 * torch.eye(2), total @ joined)
    exact = torch.tensor([[5.0, 2.0], [-1.0, 5.0]], dtype=torch.float64) / 9
    torch.testing.assert_close(without, exact)
    torch.testing.assert_close(ridge.solve(X.T @ X, X.T @ Y, 0.0), exact)


def test_a_large_penalty_gives_class_sums_and_one_hot_features_give_frequencies():
    """(G + lambda I)^-1 P is near P / lambda. One-hot features: G = diag(n_j), so W_jc = n_jc / (n_j + lambda)."""
    torch.testing.assert_close(1e9 * ridge.solve(X.T @ X, X.T @ Y, 1e9), X.T @ Y, rtol=1e-6, atol=1e-6)
    counts = torch.tensor([[3.0, 1.0], [0.0, 2.0]], dtype=torch.float64)
    weight = ridge.solve(counts.sum(1).diag(), counts, 1.0)
    assert weight.tolist() == [[pytest.approx(3 / 5), pytest.approx(1 / 5)], [0, pytest.approx(2 / 3)]]


@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("clients", [1, 3, 8])
def test_a_run_is_scikit_learns_ridge_on_all_data(tiny, simulate, clients, relative):
    """Within 1e-16 times the condition number, and with the same predictions."""
    data = {"name": "synthetic", "classes": 4, "shape": [6], "train": 60, "test": 40}
    keys = {"ridge": 0.3, "ridge_relative": relative}
    scenario = {"kind": "class_incremental", "tasks": 2}
    config = tiny(dataset=data, scenario=scenario, clients__count=clients, model=LINEAR, methods={"analytic": keys})
    federation = build_federation(config)
    run = simulate(config, federation)
    train, test = federation.dataset.train, federation.dataset.test
    x = train.x.astype(np.float64)
    penalty = 0.3 * (np.trace(x.T @ x) / 6 if relative else 1)
    sklearn = Ridge(alpha=penalty, fit_intercept=False, solver="cholesky").fit(x, np.eye(4)[train.y])
    condition = np.linalg.cond(x.T @ x + penalty * np.eye(6))
    difference = np.linalg.norm(half_of(run).solution.numpy().T - sklearn.coef_) / np.linalg.norm(sklearn.coef_)
    assert difference <= 1e-16 * condition
    weight, bias = run.state.values()
    assert torch.equal(weight, half_of(run).solution.T.float())
    assert not bias.any()
    assert np.array_equal((test.x @ weight.numpy().T).argmax(1), sklearn.predict(test.x.astype(np.float64)).argmax(1))


def test_features_are_those_of_the_initial_network_and_no_client_trains(tiny, simulate):
    """ReLU of the first layer in NumPy; its weights are the initial ones."""
    config = tiny(methods={"analytic": {"ridge": 0.5, "ridge_relative": False}}, model__dropout=0.5)
    config = config.model_copy(update={"scenario": tiny(scenario={"kind": "class_incremental", "tasks": 2}).scenario})
    federation = build_federation(config)
    run = simulate(config, federation)
    weight, bias, head, _ = (tensor.double().numpy() for tensor in run.state.values())
    features = np.maximum(federation.dataset.train.x @ weight.T + bias, 0)
    solved = np.linalg.solve(
        features.T @ features + 0.5 * np.eye(5), features.T @ np.eye(4)[federation.dataset.train.y]
    )
    np.testing.assert_allclose(head, solved.T, rtol=1e-4, atol=1e-6)
    assert [done.steps for done in run.rounds] == [0] * 4


def test_what_is_sent_is_known_before(tiny, simulate):
    """M = 5 features and C = 4 classes: 15 + 20 + 2 numbers of 8 bytes from each of 3 clients at each task's end."""
    config = tiny(methods={"analytic": {}})
    run = simulate(config)
    assert [(done.bytes_up, done.bytes_down) for done in run.rounds] == [(0, 0), (3 * 37 * 8, 0)] * 2
    assert check_run(config)["bytes up"].startswith("1,776 (")


def test_features_beyond_the_bound_saturate_and_are_counted(tiny, simulate):
    """Three bits and the bound 1 have the step 1/4 and the integers -4 to 4; a half is rounded to the even one."""
    found, beyond = FeatureGrid(3, 1.0).integers(torch.tensor([[0.3, -0.375, 1.1, 7.0, -1.2, 0.125]]))
    assert found.tolist() == [[1, -2, 4, 4, -4, 0]]
    assert beyond == 2  # 7 and -1.2; 1.1 rounds to 4
    run = simulate(tiny(methods={"analytic": {"grid": 8, "bound": 0.5}}, model=LINEAR))
    x = run.simulation.federation.dataset.train.x.astype(np.float64)
    wanted = int((np.abs(np.rint(x / (0.5 / 128))) > 128).sum())
    assert run.rounds[-1].records["analytic.saturated"] == 2 * wanted  # both tasks permute the same samples
    with pytest.raises(RunError, match=r"^found a feature that is not finite, allowed with a grid: finite features$"):
        FeatureGrid(3, 1.0).integers(torch.tensor([[torch.nan]]))


@pytest.mark.parametrize("bits", [2, 9, 12, 26])
def test_sums_up_to_the_bound_are_exact_and_one_sample_more_is_refused(bits):
    """n samples of the largest integer have n 4^(B-1), at most 2^53."""
    grid = FeatureGrid(bits, 1.0)
    most = 2**53 // 4 ** (bits - 1)
    assert grid.refusal(most) is None
    said = grid.refusal(most + 1)
    assert said is not None
    assert f"found grid={bits} for {most + 1:,} samples" in said
    assert f"at most {bits - 1};" in said


def test_features_do_not_depend_on_the_other_samples(tiny, simulate):
    """Of a network with a wide layer: 1 client with all samples, 7 with few, and three batch sizes have one head."""
    data = {"name": "synthetic", "classes": 4, "shape": [300], "train": 100, "test": 4}
    wide = {"dataset": data, "model": {"name": "mlp", "hidden": [70]}}
    found = set()
    for clients, batch in ((1, 100), (1, 32), (3, 7), (7, 4)):
        keys = {"clients__count": clients, "training__batch_size": batch, "training__rounds_per_task": 1}
        run = simulate(tiny(**wide, **keys, methods={"analytic": {"grid": 22, "bound": 64.0}}))
        found.add(run.sha256)
    assert len(found) == 1


FEW = {"name": "synthetic", "classes": 4, "shape": [6], "train": 4, "test": 4}
TOO_FINE = (
    "methods.{}: found grid=26 for 72 samples, for which sums could pass 2^53, allowed: at most 24; or null for sums "
    "that are rounded"
)
SINGULAR = (
    "methods.analytic.ridge: found 0, with which the features' Gram matrix is singular, allowed: a larger number, such "
    "as 0.01 with ridge_relative=true"
)


@pytest.mark.parametrize(("method", "keys"), [("analytic", {}), ("stsa", {"train_first": False})])
def test_a_grid_that_may_not_be_exact_is_refused_before_the_run(tiny, method, keys):
    """36 samples in each of two tasks: 2^46 * 72 < 2^53 < 2^48 * 72. A check says so, too."""
    load_parts(tiny(methods={method: keys | {"grid": 24}}))
    for refused in (load_parts, check_run):
        with pytest.raises(ConfigError) as error:
            refused(tiny(methods={method: keys | {"grid": 26}}))
        assert str(error.value) == TOO_FINE.format(method)


def test_a_singular_matrix_without_a_penalty_ends_a_run_in_one_line(tiny, simulate):
    """Of four samples of six features."""
    with pytest.raises(RunError) as error:
        simulate(tiny(methods={"analytic": {"ridge": 0.0}}, dataset=FEW, model=LINEAR))
    assert str(error.value).splitlines()[-1].endswith(SINGULAR)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"objective": "next_token", "methods": {"analytic": {}}}, "methods.analytic: needs classes"),
        ({"objective": "multi_label", "methods": {"analytic": {}}}, "methods.analytic: needs classes"),
        (
            {"methods": {"analytic": {}, "fedprox": {}}},
            "methods: analytic never sends the model that fedprox changes, allowed: one of the two",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(tiny, config, said):
    with pytest.raises(ConfigError) as error:
        check_methods(tiny(**config))
    assert str(error.value).startswith(said)
