"""CCVR (Luo et al., NeurIPS 2021): the pooled Gaussians by hand, their draws, and what a run changes."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from raysim.algorithms.ccvr import Ccvr
from raysim.algorithms.parts.class_moments import MOMENTS
from raysim.engine.compatibility import check_methods
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

SMALL_RUN = {"hyperparameters": {"virtual": 8, "batch_size": 8, "lr": 0.05}, "sends_at_end": True}

LONG = {"training__rounds_per_task": 3}
CLASSES = {"kind": "class_incremental", "tasks": 2}


def test_the_sums_of_clients_are_the_pooled_gaussian():
    """Two clients with n = 2, means 0 and 2 and variances 1, so N = 4 and mu = 1.

    S = (1/3)(1 + 1) + (2/3)(0 + 4) - (4/3) 1 = 2.
    """
    z = torch.tensor([[-(0.5**0.5)], [0.5**0.5], [2 - 0.5**0.5], [2 + 0.5**0.5]], dtype=torch.float64)
    assert z[:2].var().item() == pytest.approx(1)
    for moments in MOMENTS.values():
        squares = moments.squares(z[:2]) + moments.squares(z[2:])
        assert moments.covariance(torch.tensor(4.0), z.sum(0), squares).item() == pytest.approx(2, abs=1e-14)
        assert moments.covariance(torch.tensor(1.0), z[0], moments.squares(z[:1])).item() == 0


@pytest.mark.parametrize("kind", ["full", "diagonal"])
def test_draws_have_the_mean_and_the_covariance_of_the_samples(kind):
    """Those of NumPy; a factor 1e-8 is added. With n draws, a covariance is off by some 1 / sqrt(n)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 3)) @ [[2, 1, 0], [0, 1, 0], [0, 0, 0.5]] + [1, 2, 3]
    z, moments = torch.from_numpy(x), MOMENTS[kind]
    sums = torch.tensor(30.0).double(), z.sum(0), moments.squares(z)
    drawn = moments.draw(*sums, 200_000, np.random.default_rng(1)).numpy()
    wanted = np.cov(x.T) if kind == "full" else np.diag(x.var(0, ddof=1))
    np.testing.assert_allclose(drawn.mean(0), x.mean(0), atol=0.02)
    np.testing.assert_allclose(np.cov(drawn.T), wanted, atol=0.06)
    assert len(sums[2]) == {"full": 6, "diagonal": 3}[kind]


def test_fewer_samples_than_features_have_draws():
    """Two samples of five features: the draws are on the line through both."""
    z = torch.randn(2, 5, dtype=torch.float64)
    sums = torch.tensor(2.0).double(), z.sum(0), MOMENTS["full"].squares(z)
    drawn = MOMENTS["full"].draw(*sums, 50, np.random.default_rng(0)) - z.mean(0)
    along = (z[0] - z[1]) / (z[0] - z[1]).norm()
    assert (drawn - torch.outer(drawn @ along, along)).abs().max() < 1e-3
    assert (drawn @ along).abs().max() > 0.1


def test_large_means_leave_the_covariance_a_factor():
    """Ten samples of 20 features near 10,000: S has 11 eigenvalues of 0, which rounding moves by some 1e-8."""
    z = 1e4 + torch.from_numpy(np.random.default_rng(0).standard_normal((10, 20)).astype(np.float32)).double()
    sums = torch.tensor(10.0).double(), z.sum(0), MOMENTS["full"].squares(z)
    drawn = MOMENTS["full"].draw(*sums, 20_000, np.random.default_rng(1))
    np.testing.assert_allclose(np.cov(drawn.numpy().T), np.cov(z.numpy().T), atol=0.06)
    assert MOMENTS["full"].deviates(torch.ones(2, 1), torch.tensor([torch.nan])).isnan().all()


def test_a_run_is_fedavg_and_then_another_head(tiny, simulate):
    """With one task, all but the head are FedAvg's to the bit. The epochs lower the loss on balanced classes."""
    keys = {"scenario": {"kind": "class_incremental", "tasks": 1}, "partition": {"kind": "dirichlet", "alpha": 0.3}}
    config = tiny(**keys, methods={"ccvr": {"virtual": 50, "lr": 0.1}})
    federation = build_federation(config)
    found, plain = simulate(config, federation), simulate(tiny(**keys), federation)
    assert [name for name in found.state if not torch.equal(found.state[name], plain.state[name])] == [
        "3.weight",
        "3.bias",
    ]
    train = federation.dataset.train
    x, y = torch.from_numpy(train.x).float(), torch.from_numpy(train.y)

    def loss(state):
        hidden = torch.relu(x @ state["1.weight"].T + state["1.bias"])
        logits = hidden @ state["3.weight"].T + state["3.bias"]
        counts = y.bincount()
        return functional.cross_entropy(logits, y, 1 / counts.float())

    assert loss(found.state) < loss(plain.state) - 0.01


@pytest.mark.parametrize("earlier", [True, False])
def test_classes_of_earlier_tasks(tiny, simulate, monkeypatch, earlier):
    """Task 2's epochs have the four classes of both tasks or its own two. So the head's other rows stay or move."""
    replaced, real = [], Ccvr.Server._calibrate

    def calibrate(self, server):
        before = server.parameters.clone()
        real(self, server)
        moved = server.network.named(server.parameters - before)["3.weight"].abs().sum(1) > 0
        replaced.append((sorted(self.sums), moved.tolist()))

    monkeypatch.setattr(Ccvr.Server, "_calibrate", calibrate)
    simulate(tiny(scenario=CLASSES, methods={"ccvr": {"virtual": 8, "earlier": earlier}}))
    assert replaced[0] == ([0, 1], [True, True, False, False])
    assert replaced[1] == (([0, 1, 2, 3], [True] * 4) if earlier else ([2, 3], [False, False, True, True]))


def test_a_client_without_samples_of_the_task_sends_nothing(tiny, host_of):
    """Its task is over before a sample of it has arrived."""
    host = host_of(tiny(scenario=CLASSES, methods={"ccvr": {}}))
    client = host.clients[0]
    client.stream = client.stream.leaving_out(torch.arange(len(client.stream)))
    assert client.halves["ccvr"].moments(client, (0, 1)) == {}


def test_without_epochs_nothing_is_asked(tiny, simulate):
    plain = simulate(tiny(scenario=CLASSES))
    run = simulate(tiny(scenario=CLASSES, methods={"ccvr": {"epochs": 0}}))
    assert run.sha256 == plain.sha256
    assert [done.bytes_up for done in run.rounds] == [done.bytes_up for done in plain.rounds]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"scenario__boundaries": {"jittered": {"rounds": 1}}, **LONG},
            "needs boundaries that all clients have at the same",
        ),
        ({"training__logits": "task"}, "distills an earlier model, or reads what enters the head"),
    ],
)
def test_what_does_not_suit_it_is_refused(tiny, keys, words):
    with pytest.raises(ConfigError, match=rf"^methods\.ccvr: {words}"):
        check_methods(tiny(**keys, methods={"ccvr": {}}))
