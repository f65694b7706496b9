"""The diagonal of the Fisher information, in its three forms, against closed forms and plain backward passes.

For softmax regression a sample's gradient is (p - e_y) x^T for the weights and p - e_y for the bias, e_y one-hot, so
that F[W_cj] = mean_i (p_ic - y_ic)^2 x_ij^2 and F[b_c] = mean_i (p_ic - y_ic)^2.
"""

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from softmax_oracle import Softmax
from torch import nn

from raysim.algorithms.parts import sample_gradients
from raysim.algorithms.parts.fisher import fisher_diagonal
from raysim.api.client import Client, cut_into_batches
from raysim.models.flat import FlatModel
from raysim.objectives.classification import Classification


def client_of(module, x, y, batch=4, kept_out=None):
    """A client with these samples and this model."""
    draws = np.random.default_rng(0)
    made = SimpleNamespace(
        model=FlatModel(module),
        arrived=torch.arange(len(y)),
        computes=True,
        generator=lambda purpose: draws,
        samples=lambda positions: (x[positions], y[positions]),
        batches=lambda n, single: cut_into_batches(n, batch, normalises=False),
        rng_scope=lambda purpose: nullcontext(),
        shared=SimpleNamespace(objective=Classification()),
        kept_out=kept_out,
    )
    made.mask_logits = lambda logits: Client.mask_logits(made, logits)
    made.loss = lambda logits, y: Client.loss(made, logits, y)
    return made


def linear(weight, bias):
    module = nn.Linear(len(weight[0]), len(weight)).double()
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weight, dtype=torch.float64))
        module.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    return module


def fisher(client, form, size=1000):
    return fisher_diagonal(client, client.arrived, form, size, "ewc")


@pytest.mark.parametrize("form", ["sample", "batch", "expected"])
def test_one_sample_by_hand(form):
    """x = (1, 2), W = b = 0, two classes: p = 1/2, so (p_c - y_c)^2 = 1/4 for both, whatever the label, times x^2."""
    x = torch.tensor([[1.0, 2.0]]).double()
    found = fisher(client_of(linear([[0.0, 0.0]] * 2, [0.0] * 2), x, torch.tensor([1])), form)
    assert found.tolist() == [0.25, 1.0, 0.25, 1.0, 0.25, 0.25]


def test_gradients_that_cancel_in_a_batch():
    """The same x with labels 0 and 1: p - e_y is (-1/2, 1/2) and (1/2, -1/2). The mean is 0, its square too.

    With batches of one the batch form is the sample form.
    """
    x, y = torch.tensor([[1.0, 2.0]] * 2).double(), torch.tensor([0, 1])
    module = linear([[0.0, 0.0]] * 2, [0.0] * 2)
    assert fisher(client_of(module, x, y), "sample").tolist() == [0.25, 1.0, 0.25, 1.0, 0.25, 0.25]
    assert fisher(client_of(module, x, y), "batch").tolist() == [0.0] * 6
    assert fisher(client_of(module, x, y, batch=1), "batch").tolist() == [0.25, 1.0, 0.25, 1.0, 0.25, 0.25]


@pytest.fixture
def data():
    """Softmax regression in float64, 3 features and 4 classes; x, y of 11 samples."""
    draws = np.random.default_rng(1)
    module = linear(draws.standard_normal((4, 3)).tolist(), draws.standard_normal(4).tolist())
    return module, torch.from_numpy(draws.standard_normal((11, 3))), torch.from_numpy(draws.integers(4, size=11))


def squares(vector, x, y, kept_out=()):
    """Each sample's squared gradient [n, P], in NumPy."""
    model = Softmax.of(vector, 4, 3)
    ones = [model.loss_and_gradient(x[i : i + 1], y[i : i + 1], kept_out)[1] for i in range(len(y))]
    return np.square(ones)


def test_softmax_regressions_closed_form(data):
    """Sample: the mean of the squares; batch: of batches of 4, 4 and 3 in the drawn order, by their sizes."""
    module, x, y = data
    client = client_of(module, x, y)
    w = client.model.parameters.numpy()
    np.testing.assert_allclose(fisher(client, "sample"), squares(w, x.numpy(), y.numpy()).mean(0), rtol=1e-12)
    order = np.random.default_rng(0).permutation(11)
    parts = [order[:4], order[4:8], order[8:]]
    of_batch = [Softmax.of(w, 4, 3).loss_and_gradient(x.numpy()[part], y.numpy()[part])[1] for part in parts]
    wanted = np.average(np.square(of_batch), axis=0, weights=[4, 4, 3])
    np.testing.assert_allclose(fisher(client_of(module, x, y), "batch"), wanted, rtol=1e-12)


def test_two_parts_of_the_data_have_the_fisher_of_the_whole_by_their_sizes(data):
    """A mean over samples, so sum_i p_i F_i does not change if a client is split, for p_i as the samples."""
    module, x, y = data
    whole, first, last = (
        fisher(client_of(module, x[at], y[at]), "sample") for at in (slice(11), slice(5), slice(5, 11))
    )
    torch.testing.assert_close((5 * first + 6 * last) / 11, whole, rtol=1e-12, atol=0)
    assert not torch.allclose((first + last) / 2, whole, rtol=1e-3)


def test_labels_are_drawn_from_the_model():
    """W = 0, p = (0.9, 0.1): E (p_c - y_c)^2 = p (1 - p) = 0.09; all true labels are 0, whose square is 0.01.

    The draws are 0.81 with probability 0.1, else 0.01: variance 0.0576, so 5 sigma of 20,000 are 0.0085.
    """
    bias = [float(np.log(0.9)), float(np.log(0.1))]
    client = client_of(linear([[0.0], [0.0]], bias), torch.zeros(20_000, 1).double(), torch.zeros(20_000).long(), 5_000)
    np.testing.assert_allclose(fisher(client, "sample", 20_000)[2:], 0.01, rtol=1e-12)
    np.testing.assert_allclose(fisher(client, "expected", 20_000)[2:], 0.09, atol=0.0085)


def test_only_labels_that_training_admits_are_drawn():
    """As above with a third class, far more likely than both, that is left out: were it drawn, F[b] were p^2."""
    module = linear([[0.0]] * 3, [float(np.log(0.9)), float(np.log(0.1)), 50.0])
    x, y = torch.zeros(20_000, 1).double(), torch.zeros(20_000).long()
    client = client_of(module, x, y, kept_out=torch.tensor([False, False, True]))
    found = fisher(client, "expected", 20_000)[3:]
    np.testing.assert_allclose(found[:2], 0.09, atol=0.0085)
    assert found[2] == 0


@pytest.mark.parametrize("form", ["sample", "batch", "expected"])
def test_a_class_that_training_leaves_out_needs_nothing(data, form):
    """It has probability 0, so its row is exactly 0, however large its logit."""
    module, x, y = data
    mask = torch.tensor([False, False, True, False])
    y = torch.where(y == 2, 0, y)
    with torch.no_grad():
        module.bias[2] = 50.0
    found = fisher(client_of(module, x, y, kept_out=mask), form)
    assert found.isfinite().all()
    assert not found[6:9].any()
    assert found[:6].all()
    if form == "sample":
        wanted = squares(FlatModel(module).parameters.numpy(), x.numpy(), y.numpy(), kept_out=[2]).mean(0)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_so_many_samples_are_drawn_and_no_more(data):
    """Each once: of 11 samples with one-hot x, F[W] of the feature is 0 where the sample was not drawn."""
    _, _, y = data
    client = client_of(linear([[0.0] * 11] * 4, [0.0] * 4), torch.eye(11).double(), y)
    for size, wanted in ((1, 1), (7, 7), (11, 11), (50, 11)):
        assert int((fisher(client, "sample", size)[:11] > 0).sum()) == wanted


def lively():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, stride=2), nn.BatchNorm2d(3), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(48, 4)
    )  # fmt: skip


@pytest.mark.parametrize("form", ["sample", "batch", "expected"])
def test_it_is_taken_in_evaluation_mode_and_moves_nothing(form, monkeypatch):
    """A CNN with dropout and BatchNorm: plain backward passes give the same, in chunks too; nothing moves."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, x, y = lively(), torch.randn(7, 2, 10, 10), torch.arange(7) % 4
        module(3 * x + 1)
        module.train()
        client = client_of(module, x, y, batch=7)
        model = client.model
        before, state = model.weights(), torch.random.get_rng_state()
        found = fisher(client, form)
        assert module.training
        assert torch.equal(torch.random.get_rng_state(), state)
        for name in ("parameters", "buffers", "integers"):
            assert torch.equal(getattr(model, name), getattr(before, name))
        module.eval()
        whole = [slice(7)] if form == "batch" else [slice(i, i + 1) for i in range(7)]
        wanted = sum(model.gradient_of(client.loss(module(x[at]), y[at])).square() for at in whole) / len(whole)
    if form != "expected":
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-10)
        monkeypatch.setattr(sample_gradients, "CHUNK", {"cpu": 3 * len(model.parameters)})  # 3, 3 and 1
        torch.testing.assert_close(fisher(client, form), wanted, rtol=1e-4, atol=1e-10)
