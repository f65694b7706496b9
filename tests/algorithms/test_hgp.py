"""HGP (Salami et al., 2024): the clients' Gaussians, their mixtures and the server's steps, by hand and in NumPy."""

import numpy as np
import pytest
import torch
from replay_oracle import stream_of

from raysim.algorithms.hgp import Hgp, mixtures, normalized_loss
from raysim.algorithms.parts.head_training import trained_head
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.models.flat import FlatModel
from raysim.system.errors import ConfigError

# n, mean and variance of 5 features, of 4 classes
SMALL_RUN = {"hyperparameters": {"batch_size": 8, "rebalance_lr": 0.05}, "bytes_up": 4 * 4 * (2 * 5 + 1)}

CLASSES = {"kind": "class_incremental", "tasks": 2}
ONE_ROUND = {"training__rounds_per_task": 1}


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_a_class_is_the_mixture_of_its_clients():
    """Client 1 has (0, 0), (2, 0), (1, 3): n = 3, mean (1, 1), variance (1, 3). Client 2 has (4, 1), (6, 1).

    Weights .6 and .4. The mixture has the mean (2.6, 1) and the variance .6 (1, 3) + .4 (2, 0) + .6 * .4 (4, 0)^2 =
    (5.24, 1.8). With the threefold variances of draws it is (8.04, 5.4).
    """
    of_clients = {1: rows(3, 1, 1, 1, 3), 2: rows(2, 5, 1, 2, 0)}
    weights, means, variances, labels = mixtures({7: of_clients})
    np.testing.assert_allclose(weights, [0.6, 0.4], atol=1e-15)
    assert labels.tolist() == [7, 7]
    mean = weights @ means.numpy()
    between = weights @ (means.numpy() - mean) ** 2
    np.testing.assert_allclose(mean, [2.6, 1], atol=1e-14)
    np.testing.assert_allclose(weights @ variances.numpy() + between, [5.24, 1.8], atol=1e-14)
    np.testing.assert_allclose(weights @ (3 * variances.numpy()) + between, [8.04, 5.4], atol=1e-14)


def test_classes_are_equally_likely_and_in_order():
    """Class 2 has one client of 9 samples, class 1 two of 1 and 3. Each class has half, whatever it has of samples."""
    weights, means, _, labels = mixtures({2: {0: rows(9, 5, 1)}, 1: {4: rows(3, 8, 1), 3: rows(1, 7, 1)}})
    assert labels.tolist() == [1, 1, 2]
    assert means[:, 0].tolist() == [7, 8, 5]
    np.testing.assert_allclose(weights, [1 / 8, 3 / 8, 1 / 2], atol=1e-15)


def test_a_step_on_normalized_logits():
    """x = (1, 2), W = I, b = 0, y = 0: s = z / |z| / .1 = (4.472136, 8.944272), CE = 4.483494.

    The gradient of b is (I - z z^T / |z|^2) (softmax(s) - e_0) / |z| / .1 = (-5.306, 2.653), and of W its product with
    x. It is orthogonal to z. A step at 1e-3 gives b = (.005306, -.002653). With momentum .9 an equal second gradient
    would move 1.9 times as far: here a second step at rate 0 moves nothing.
    """
    assert normalized_loss(rows([1, 2]), torch.tensor([0]), 0.1).item() == pytest.approx(4.483494, abs=1e-6)
    s = np.array([1, 2]) / np.sqrt(5) / 0.1
    slope = np.exp(s) / np.exp(s).sum() - [1, 0]
    slope = (np.eye(2) - np.outer([1, 2], [1, 2]) / 5) @ slope / np.sqrt(5) / 0.1
    np.testing.assert_allclose(slope, [-5.306, 2.653], atol=5e-4)
    model = FlatModel(torch.nn.Sequential(torch.nn.Linear(2, 2)).double())
    model.head, start = ("0.weight", "0.bias"), rows(1, 0, 0, 1, 0, 0)
    batch = rows([1, 2]), torch.tensor([0])
    found = trained_head(
        model, start, [(*batch, 1e-3), (*batch, 0.0)], lambda z, y: normalized_loss(z, y, 0.1), momentum=0.9
    )
    np.testing.assert_allclose(found[4:], -1e-3 * slope, atol=1e-12)
    np.testing.assert_allclose(found[:4], np.eye(2).ravel() - 1e-3 * np.outer(slope, [1, 2]).ravel(), atol=1e-12)
    assert start.tolist() == [1, 0, 0, 1, 0, 0]


def test_clients_send_what_numpy_computes(tiny, simulate, monkeypatch):
    """Without a hidden layer, the head's inputs are the samples. A class with one sample at a client is not sent."""
    sent, real = [], Hgp.Server.update

    def update(self, server, delta, reply):
        sent.append({k: dict(v) for k, v in reply.items()})
        return real(self, server, delta, reply)

    monkeypatch.setattr(Hgp.Server, "update", update)
    unequal = {"partition": {"kind": "dirichlet", "alpha": 0.4, "min_samples": 2}, "seed": 4}
    config = tiny(model={"name": "mlp", "hidden": []}, scenario=CLASSES, methods={"hgp": {}}, **unequal, **ONE_ROUND)
    federation = build_federation(config)
    simulate(config, federation)
    single = 0
    for task, reply in enumerate(sent):
        for k in range(3):
            x, y = (part[federation.streams[k].span(task, task + 1)] for part in stream_of(federation, k))
            for place, label in enumerate([2 * task, 2 * task + 1]):
                rows = x[y == label]
                single += len(rows) == 1
                assert reply["counts"][k][place] == (len(rows) if len(rows) > 1 else 0)
                if len(rows) > 1:
                    np.testing.assert_allclose(reply["means"][k][place], rows.mean(0), rtol=1e-5, atol=1e-6)
                    np.testing.assert_allclose(reply["variances"][k][place], rows.var(0, ddof=1), rtol=1e-5)
    assert single


def test_old_classes_are_in_the_servers_epochs(tiny, simulate, monkeypatch):
    """In task 2 both tasks' classes are drawn, and their rows of the head move. Task 1 has the rows of its classes."""
    logits, real = [], normalized_loss

    def watched(z, y, temperature):
        logits.append((z.shape[1], y.max().item()))
        return real(z, y, temperature)

    monkeypatch.setattr("raysim.algorithms.hgp.normalized_loss", watched)
    keys = {"scenario": CLASSES, **ONE_ROUND, "training__logits": "task"}
    run = simulate(tiny(**keys, methods={"hgp": {"rebalance_epochs": 2, "batch_size": 40}}))
    assert logits == [(2, 1)] * 4 + [(4, 3)] * 8
    plain = simulate(tiny(**keys))
    assert not torch.equal(run.state["3.weight"], plain.state["3.weight"])


@pytest.mark.parametrize("keeps", ["round", "client"])
def test_whose_gaussians_a_class_has(tiny, simulate, monkeypatch, keeps):
    """One client of three takes part in each of two rounds. The class has its last sender's Gaussian, or both."""
    seen = []
    real = mixtures

    def watched(gaussians):
        seen.append({label: sorted(of_class) for label, of_class in gaussians.items()})
        return real(gaussians)

    monkeypatch.setattr("raysim.algorithms.hgp.mixtures", watched)
    config = tiny(
        scenario={"kind": "class_incremental", "tasks": 1},
        participation={"count": 1},
        methods={"hgp": {"keeps": keeps, "rebalance_epochs": 1}},
    )
    cohorts = [done.cohort[0] for done in simulate(config).rounds]
    assert cohorts[0] != cohorts[1]
    wanted = sorted(cohorts) if keeps == "client" else [cohorts[1]]
    assert seen[1] == dict.fromkeys(range(4), wanted)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"schedule": {"kind": "asynchronous", "concurrency": 2}}, "needs rounds that wait for their clients"),
        ({"training__logits": "task"}, "distills an earlier model, or reads what enters the head"),
    ],
)
def test_what_does_not_suit_it_is_refused(tiny, keys, words):
    with pytest.raises(ConfigError, match=rf"^methods\.hgp: {words}"):
        check_methods(tiny(**keys, methods={"hgp": {}}))
