"""A fixed random layer before the head: N(0, 1) numbers of the run's seed, which are neither trained nor sent."""

import numpy as np
import pytest
import torch

from raysim.federation.federation import build_federation
from raysim.models.building import check_model
from raysim.system.errors import ConfigError


def built(config):
    federation = build_federation(config)
    return check_model(config, federation.shape, federation.classes)


def test_the_layer_is_normal_and_frozen_and_the_head_reads_its_relu(tiny):
    """400 units of 5 features: the mean of 2,000 numbers is within 4 / sqrt(2000) of 0, and their deviation near 1."""
    model = built(tiny(model={"name": "mlp", "hidden": [5], "random_features": 400}))
    layer, _, head = model.module.get_submodule("3")
    assert [*model.frozen] == ["3.0.weight"]
    assert model.head == ("3.2.weight", "3.2.bias")
    numbers = layer.weight.detach()
    assert numbers.shape == (400, 5)
    assert abs(float(numbers.mean())) < 0.09
    assert abs(float(numbers.std()) - 1) < 0.1
    x = torch.randn(3, 6)
    rows = model.inputs(x, model.parameters, model.buffers, ["3.2.weight"])["3.2.weight"]
    below = torch.relu(model.module.get_submodule("1")(x))
    torch.testing.assert_close(rows, torch.relu(below @ numbers.T))
    torch.testing.assert_close(model(x), head(rows))


def test_it_depends_on_the_seed_and_leaves_the_other_weights(tiny):
    keys = {"name": "mlp", "hidden": [5]}
    plain, one, two = (
        built(tiny(seed=seed, model=keys | more)).state_dict()
        for seed, more in ((0, {}), (0, {"random_features": 7}), (1, {"random_features": 7}))
    )
    assert torch.equal(one["1.weight"], plain["1.weight"])
    assert not torch.equal(one["3.0.weight"], two["3.0.weight"])


def test_ridge_regression_on_it_is_numpys(tiny, simulate):
    scenario = {"kind": "class_incremental", "tasks": 2}
    keys = {"ridge": 0.5, "ridge_relative": False}
    model = {"name": "mlp", "hidden": [], "random_features": 9}
    run = simulate(tiny(scenario=scenario, model=model, methods={"analytic": keys}))
    train = run.simulation.federation.dataset.train
    features = np.maximum(train.x.astype(np.float64) @ run.state["1.0.weight"].double().numpy().T, 0)
    solved = np.linalg.solve(features.T @ features + 0.5 * np.eye(9), features.T @ np.eye(4)[train.y])
    np.testing.assert_allclose(run.state["1.2.weight"], solved.T, rtol=1e-4, atol=1e-6)


def test_a_trained_trunk_below_it_learns(tiny, simulate):
    """The gradient reaches the first layer through the fixed one."""
    run = simulate(tiny(model={"name": "mlp", "hidden": [5], "random_features": 9}))
    start = run.simulation.model
    assert "3.0.weight" in start.frozen
    assert run.rounds[0].bytes_up == 3 * 4 * (6 * 5 + 5 + 9 * 4 + 4)


@pytest.mark.parametrize("adapters", [{}, {"adapters": {"rank": 2, "where": ["1"]}}])
def test_the_file_of_a_run_has_the_layer_and_begins_another_run_of_any_seed(tiny, tmp_path, adapters):
    """The file's random layer is the run's, not one that the other seed draws. A file without one has a new one."""
    keys = {"name": "mlp", "hidden": [5], **adapters}
    first = built(tiny(model=keys | {"random_features": 9}))
    first.parameters.add_(0.1)
    torch.save(first.state_dict(), tmp_path / "run.pt")
    of_run = {"random_features": 9, "weights": str(tmp_path / "run.pt")}
    second = built(tiny(seed=1, model=keys | of_run)).state_dict()
    assert second.keys() == first.state_dict().keys()
    for name, tensor in first.state_dict().items():
        assert torch.equal(second[name], tensor), name

    plain = built(tiny(model=keys)).state_dict()
    torch.save(plain, tmp_path / "plain.pt")
    third = built(tiny(seed=1, model=keys | of_run | {"weights": str(tmp_path / "plain.pt")})).state_dict()
    layer = "1.base.weight" if adapters else "1.weight"
    assert torch.equal(third[layer], plain[layer])
    assert third["3.0.weight"].shape == (9, 5)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model": {"name": "probes:scaled", "random_features": 9}}, "found no head in scaled ("),
        (
            {"model": {"name": "mlp", "random_features": 9}, "training__logits": "task"},
            "found a head for each domain in mlp",
        ),
    ],
)
def test_a_model_without_one_head_is_refused(tiny, config, said):
    with pytest.raises(ConfigError) as error:
        built(tiny(**config))
    assert str(error.value).startswith(f"model.random_features: {said}")
    assert str(error.value).endswith(", allowed: a model with one head; or null")
