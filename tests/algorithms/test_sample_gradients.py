"""Re-Fed, oracles 4 to 6: the norm of each sample's own gradient."""

import numpy as np
import pytest
import torch
from softmax_oracle import sample_norms
from torch import nn

from raysim.algorithms.parts import sample_gradients
from raysim.algorithms.parts.sample_gradients import squared_norms
from raysim.api import Method
from raysim.engine.simulation import load_parts
from raysim.models.flat import FlatModel
from raysim.system.errors import ConfigError


@pytest.fixture
def cross_entropy():
    return nn.functional.cross_entropy


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, stride=2), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5), nn.Flatten(),
        nn.Linear(12, 7), nn.Tanh(), nn.Linear(7, 4),
    )  # fmt: skip


@pytest.fixture
def cnn():
    """A float32 CNN with BatchNorm (statistics moved) and dropout, a frozen layer in it; x, y of 11 images."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = small_cnn()
        module[6].bias.requires_grad_(False)
        x, y = torch.randn(11, 2, 10, 10), torch.arange(11) % 4
        with torch.no_grad():
            module(3 * x + 1)
    return FlatModel(module), x, y


def one_by_one(model, loss, x, y):
    model.module.eval()
    return torch.stack(
        [
            model.gradient_of(loss(model.module(x[i : i + 1]), y[i : i + 1])).double().square().sum()
            for i in range(len(y))
        ]
    )


def test_vectorised_norms_are_those_of_single_backward_passes(cnn, cross_entropy, monkeypatch):
    """Oracle 4: a loop of plain backward passes, one sample at a time, whatever the chunks; 1e-5, as in float32.

    In eval mode, where no sample's gradient depends on the others: no dropout, BatchNorm by its statistics.
    """
    model, x, y = cnn
    expected = one_by_one(model, cross_entropy, x, y)
    found = squared_norms(model, cross_entropy, x, y)
    assert found.dtype == torch.float32
    assert torch.allclose(found.double(), expected, rtol=1e-5)
    monkeypatch.setattr(sample_gradients, "CHUNK", {"cpu": 3 * len(model.parameters)})  # chunks of 3, 3, 3 and 2
    assert torch.allclose(squared_norms(model, cross_entropy, x, y).double(), expected, rtol=1e-5)
    monkeypatch.setattr(sample_gradients, "CHUNK", {"cpu": 1})
    assert torch.allclose(squared_norms(model, cross_entropy, x, y).double(), expected, rtol=1e-5)


def test_scoring_moves_nothing(cnn, cross_entropy):
    model, x, y = cnn
    model.gradient.fill_(7)
    before = [t.clone() for t in (model.parameters, model.gradient, model.buffers, model.integers)]
    for training in (True, False):
        model.module.train(training)
        state = torch.random.get_rng_state()
        squared_norms(model, cross_entropy, x, y)
        assert torch.equal(torch.random.get_rng_state(), state)
        assert model.module.training is training
    for was, now in zip(before, (model.parameters, model.gradient, model.buffers, model.integers), strict=True):
        assert torch.equal(was, now)


@pytest.fixture
def softmax():
    """Softmax regression in float64, 5 features and 4 classes; x, y of 9 samples."""
    draws = torch.Generator().manual_seed(4)
    module = nn.Linear(5, 4).double()
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=draws, dtype=torch.float64))
    return FlatModel(module), torch.randn(9, 5, generator=draws, dtype=torch.float64), torch.arange(9) % 4


def test_softmax_regressions_closed_form(softmax, cross_entropy):
    """Oracle 5, in NumPy: |(p - y) x^T|^2 + |p - y|^2 = |p - y|^2 (|x|^2 + 1), as |a b^T| = |a| |b|."""
    model, x, y = softmax
    expected = sample_norms(model.parameters.numpy(), x.numpy(), y.numpy(), 4)
    assert np.allclose(squared_norms(model, cross_entropy, x, y).numpy(), expected, rtol=1e-12)


def test_a_loss_c_times_as_large_has_c_squared_times_the_norms(softmax, cross_entropy):
    """Exactly so for c = 4, a power of two: the ranking cannot change."""
    model, x, y = softmax
    once = squared_norms(model, cross_entropy, x, y)
    scaled = squared_norms(model, lambda logits, labels: 4 * cross_entropy(logits, labels), x, y)
    assert torch.equal(scaled, 16 * once)
    assert (once > 0).all()


class Reads(nn.Sequential):
    """A network that reads its input as a number, as transformers' attention masks do: torch.vmap refuses it."""

    def forward(self, x):
        return super().forward(x) if bool((x.abs().sum() >= 0).item()) else x


def reads(shape, classes):
    return Reads(nn.Flatten(), nn.Linear(shape[0], classes))


HERE = "test_sample_gradients:"
MODEL = {"name": f"{HERE}reads"}


class OfSamples(Method):
    needs = frozenset({"sample_gradients"})


@pytest.mark.parametrize(
    ("methods", "way_out"),
    [
        ({"ewc": {}}, "set methods.ewc.fisher=batch"),
        ({"ewc": {"fisher": "expected"}}, "set methods.ewc.fisher=batch"),
        ({"fedcurv": {}}, "set methods.fedcurv.fisher=batch"),
        ({"re_fed": {}}, "set methods.re_fed.importance=loss"),
        ({f"{HERE}OfSamples": {}}, "allowed: models that torch.func.vmap can run"),
    ],
)
def test_a_model_that_vmap_refuses_is_refused_at_the_start(tiny, methods, way_out):
    (name,) = (name.rpartition(":")[2] for name in methods)
    with pytest.raises(ConfigError, match=r"vmap: It looks like you're .*calling .item") as caught:
        load_parts(tiny(model=MODEL, methods=methods))
    words = (
        f"methods.{name}: needs the gradients of single samples, which model.name={HERE}reads refuses (RuntimeError: "
    )
    assert str(caught.value).startswith(words)
    assert str(caught.value).endswith(f"; {way_out}")
    assert f"; Reads.forward, {__file__}:" in str(caught.value)
    assert "file an issue" not in str(caught.value)


@pytest.mark.parametrize(
    "methods", [{"ewc": {"fisher": "batch"}}, {"fedcurv": {"fisher": "batch"}}, {"re_fed": {"importance": "loss"}}]
)
def test_the_way_out_runs(tiny, simulate, methods):
    simulate(tiny(model=MODEL, methods=methods, training__rounds_per_task=1, memory__capacity=4))
