"""STSA (Guan et al., WWW 2026): features of task 1, then the ridge head of all samples, against NumPy."""

import numpy as np
import pytest
import torch

from raysim.algorithms.stsa import score
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

SMALL_RUN = {"sends_at_end": True}

TRAINED = (
    "methods.stsa: found grid=8 with train_first=true, whose features depend on how task 1 is divided, allowed: "
    "grid=null, or train_first=false"
)
CLASSES = {"kind": "class_incremental", "tasks": 2}


def test_task_one_is_fedavg_and_then_the_features_stay(tiny, simulate):
    """The first layer is that of FedAvg after task 1. The head is the ridge regression on its ReLU features."""
    keys = {"scenario": CLASSES}
    config = tiny(**keys, methods={"stsa": {"ridge": 0.5, "ridge_relative": False}})
    federation = build_federation(config)
    run = simulate(config, federation)
    assert [done.steps > 0 for done in run.rounds] == [True, True, False, False]
    fedavg = simulate(tiny(**keys, methods={"fixed": {}}))
    for name in ("1.weight", "1.bias"):
        assert torch.equal(run.state[name], fedavg.state[name])
    weight, bias, head, head_bias = (tensor.double().numpy() for tensor in run.state.values())
    train = federation.dataset.train
    features = np.maximum(train.x @ weight.T + bias, 0)
    solved = np.linalg.solve(features.T @ features + 0.5 * np.eye(5), features.T @ np.eye(4)[train.y])
    np.testing.assert_allclose(head, solved.T, rtol=1e-4, atol=1e-6)
    assert not head_bias.any()
    assert not torch.equal(run.state["3.weight"], fedavg.state["3.weight"])


def test_the_cosine_head_scores_by_angles():
    """W = ((3, 4), (0, 2), 0): z = (1, 0) has the logits .6, 0 and 0, that is its cosines with the columns."""
    weight = score(torch.tensor([[3.0, 0.0, 0.0], [4.0, 2.0, 0.0]]), "cosine")
    torch.testing.assert_close(weight @ torch.tensor([1.0, 0.0]), torch.tensor([0.6, 0.0, 0.0]))
    torch.testing.assert_close(weight.norm(dim=1), torch.tensor([1.0, 1.0, 0.0]))


def test_a_large_penalty_and_the_cosine_head_are_the_nearest_class_mean(tiny, simulate):
    """W lambda -> P, the sums of a class's features, whose directions are those of the means."""
    data = {"name": "synthetic", "classes": 4, "shape": [6], "train": 40, "test": 40}
    keys = {"train_first": False, "head": "cosine", "ridge": 1e9, "ridge_relative": False}
    config = tiny(dataset=data, scenario=CLASSES, model={"name": "mlp", "hidden": []}, methods={"stsa": keys})
    federation = build_federation(config)
    run = simulate(config, federation)
    train, test = federation.dataset.train, federation.dataset.test
    means = np.stack([train.x[train.y == label].mean(0) for label in range(4)])
    cosines = test.x @ (means / np.linalg.norm(means, axis=1, keepdims=True)).T
    weight = run.state["1.weight"].numpy()
    assert np.array_equal((test.x @ weight.T).argmax(1), cosines.argmax(1))


def test_a_run_without_training_first_trains_nothing(tiny, simulate):
    run = simulate(tiny(methods={"stsa": {"train_first": False}}))
    assert [done.steps for done in run.rounds] == [0] * 4
    analytic = simulate(tiny(methods={"analytic": {}}))
    assert run.sha256 == analytic.sha256


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"methods": {"stsa": {"grid": 8}}}, TRAINED),
        ({"methods": {"stsa": {}}, "schedule": {"kind": "asynchronous", "concurrency": 2}}, "methods.stsa: "),
    ],
)
def test_what_makes_no_sense_is_refused(tiny, config, said):
    with pytest.raises(ConfigError) as error:
        check_methods(tiny(**config))
    assert str(error.value).startswith(said)


@pytest.mark.parametrize("method", ["analytic", "stsa", "stsa_e"])
def test_no_client_has_the_model_that_is_evaluated(tiny, method):
    """A personalized model would have the initial head."""
    keys = {"scenario": CLASSES, "methods": {method: {}}}
    words = rf"^evaluation.model: found local, allowed with {method}, whose head the clients never have: global or"
    with pytest.raises(ConfigError, match=words):
        check_methods(tiny(**keys, evaluation__model="local"))
    check_methods(tiny(**keys, evaluation__model="global_per_client"))


def test_features_of_layers_that_stay_at_clients_are_refused(tiny):
    """Sums of the features of different models are of no model."""
    keys = {"scenario": CLASSES, "model": {"name": "mlp", "hidden": [5], "local": ["1.*"]}}
    with pytest.raises(ConfigError, match=r"^model.local: found layers that stay at the client, allowed with stsa, "):
        check_methods(tiny(**keys, methods={"stsa": {}}))
    keys["model"] = {"name": "mlp", "hidden": [5]}
    with pytest.raises(ConfigError, match=r"^methods.fedper: found layers that stay at the client, allowed with st"):
        check_methods(tiny(**keys, methods={"stsa": {}, "fedper": {}}))
