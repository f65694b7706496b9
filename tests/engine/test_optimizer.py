"""torch.optim's own classes are the oracle: the same gradients, the same bits."""

import subprocess
import sys

import pytest
import torch

from raysim.config import ConfigError, load
from raysim.engine.compatibility import check_methods
from raysim.engine.optimizer import Adam, AdamW, ScaledOptimizer, Sgd

STEPS = 200
SGD = [
    {},
    {"momentum": 0.9},
    {"weight_decay": 0.1},
    {"momentum": 0.5, "weight_decay": 0.01},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.5, "nesterov": True, "weight_decay": 0.01},
]
ADAM = [{}, {"betas": [0.8, 0.95]}, {"weight_decay": 0.1}, {"eps": 0.01}]
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


def compare(optimizer, oracle, dtype):
    draws = torch.Generator().manual_seed(3)
    start = torch.randn(50, generator=draws, dtype=dtype)
    mine, theirs = start.clone(), start.clone().requires_grad_()
    other = oracle([theirs])
    for number in range(STEPS):
        lr = 0.1 / (1 + number % 20)  # changes with the rounds' decay
        gradient = torch.randn(50, generator=draws, dtype=dtype)
        optimizer.step(mine, gradient.clone(), lr)
        theirs.grad = gradient.clone()
        other.param_groups[0]["lr"] = lr
        other.step()
        assert torch.equal(mine, theirs.detach())
    assert (mine - start).abs().max() > 0.05


@DTYPES
@pytest.mark.parametrize("keys", SGD)
def test_sgd_is_torchs(keys, dtype):
    compare(Sgd(**keys), lambda w: torch.optim.SGD(w, lr=1.0, foreach=False, **keys), dtype)


@DTYPES
@pytest.mark.parametrize("keys", ADAM)
def test_adam_is_torchs(keys, dtype):
    compare(Adam(**keys), lambda w: torch.optim.Adam(w, lr=1.0, foreach=False, **keys), dtype)


@DTYPES
@pytest.mark.parametrize("keys", ADAM)
def test_adamw_is_torchs_with_its_defaults(keys, dtype):
    compare(AdamW(**keys), lambda w: torch.optim.AdamW(w, lr=1.0, foreach=False, **keys), dtype)


def test_the_first_step_by_hand():
    """SGD: w - lr (g + wd w) = 2 - 0.5 (1 + 0.1 * 2) = 1.4; with Nesterov's momentum mu the first velocity is the
    gradient, and g + mu g = 1.9 is taken: 2 - 0.5 * 1.9 = 1.05. Adam: m/(1-b1) = g, v/(1-b2) = g^2: w - lr sign(g).
    AdamW takes lr wd w off before: 2 - 0.5 * 0.1 * 2 = 1.9, then 1.9 + 0.5.
    """
    for optimizer, gradient, wanted in (
        (Sgd(weight_decay=0.1), 1.0, pytest.approx(1.4, rel=1e-15)),
        (Sgd(momentum=0.9, nesterov=True), 1.0, pytest.approx(1.05, rel=1e-15)),
        (Adam(), -4.0, pytest.approx(2.5, rel=1e-8)),
        (AdamW(weight_decay=0.1), -4.0, pytest.approx(2.4, rel=1e-8)),
    ):
        w = torch.tensor([2.0], dtype=torch.float64)
        optimizer.step(w, torch.tensor([gradient], dtype=torch.float64), 0.5)
        assert w.item() == wanted


@pytest.mark.parametrize(
    "optimizer",
    [Sgd(momentum=0.9, weight_decay=0.1), Sgd(momentum=0.9, nesterov=True), Adam(weight_decay=0.1), AdamW()],
)
def test_the_gradient_is_left_as_it_was(optimizer):
    gradient = torch.ones(3)
    for _ in range(2):
        optimizer.step(torch.ones(3), gradient, 0.1)
    assert gradient.tolist() == [1, 1, 1]


def test_every_optimizer_starts_without_a_past():
    """With momentum the first step is lr * g whatever was done before."""
    used = Sgd(momentum=0.9)
    used.step(torch.zeros(1), torch.ones(1), 1.0)
    w = torch.zeros(1)
    Sgd(momentum=0.9).step(w, torch.ones(1), 1.0)
    assert w.item() == -1.0
    used.step(w, torch.ones(1), 1.0)
    assert w.item() == pytest.approx(-2.9)


def test_no_step_imports_torchs_compiler():
    steps = """
import sys
import torch
from raysim.engine.optimizer import Adam, AdamW, Sgd
for optimizer in (Sgd(momentum=0.9, nesterov=True), Adam(), AdamW()):
    optimizer.step(torch.zeros(3), torch.ones(3), 0.1)
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", steps], check=True)


REQUIRED = {
    "name": "tiny",
    "dataset": {"name": "digits"},
    "scenario": {"kind": "domain_incremental", "tasks": 1},
    "clients": {"count": 2},
    "model": {"name": "mlp"},
    "training": {"rounds_per_task": 1},
}


def test_nesterov_needs_momentum():
    with pytest.raises(ConfigError) as refused:
        load(REQUIRED | {"training": {"rounds_per_task": 1, "optimizer": {"nesterov": True}}})
    words = "training.optimizer.nesterov: found true: allowed with a momentum above 0 only"
    assert str(refused.value) == words
    assert load(REQUIRED, ["training.optimizer={nesterov: true, momentum: 0.9}"]).training.optimizer.keys()["nesterov"]


def test_adamw_has_keys_of_its_own():
    """Its decay is torch's default; Adam's is none."""
    found = [load(REQUIRED, [f"training.optimizer.name={name}"]).training.optimizer for name in ("adam", "adamw")]
    assert [(knobs.lr, knobs.keys()["weight_decay"]) for knobs in found] == [(0.001, 0.0), (0.001, 0.01)]


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_parts_of_a_model_have_learning_rates_of_their_own(name):
    """Of w [2], b [1], v [1] with scales {"[bv]": 10, "v": 3}: w has lr, b and v have 10 lr. SGD's and Adam's first
    steps with gradient g are -lr g and -lr g / (|g| + eps).
    """
    settings = load(REQUIRED, [f"training.optimizer={name}"]).training.optimizer
    layout = {"w": torch.Size([2]), "b": torch.Size([1]), "v": torch.Size([1])}
    parameters, gradient = torch.zeros(4), torch.tensor([1.0, -2.0, 4.0, -4.0])
    ScaledOptimizer(settings, layout, {"[bv]": 10.0, "v": 3.0}).step(parameters, gradient, 0.1)
    expected = {"sgd": [-0.1, 0.2, -4.0, 4.0], "adam": [-0.1, 0.1, -1.0, 1.0]}[name]
    torch.testing.assert_close(parameters, torch.tensor(expected))


def test_scaled_rates_reach_the_run(tiny, simulate):
    """After one step with 10 times the rate for the head: the body is FedAvg's, the head changed 10 times as much."""
    one = {"scenario__tasks": 1, "training__rounds_per_task": 1, "training__batch_size": 36, "clients": {"count": 1}}
    plain, scaled = simulate(tiny(**one)), simulate(tiny(**one, training__lr_scales={"3.*": 10.0}))
    initial = simulate(tiny(**one, training__optimizer={"lr": 1e-30}))
    for key, tensor in scaled.state.items():
        change, of_plain = tensor - initial.state[key], plain.state[key] - initial.state[key]
        torch.testing.assert_close(change, (10 if key.startswith("3") else 1) * of_plain)
    assert plain.sha256 == simulate(tiny(**one, training__lr_scales={"*": 1.0})).sha256


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            ["training.lr_scales={head: 0}"],
            "training.lr_scales={head: 0}: found {head: 0}, allowed: a block of patterns, each with a factor > 0",
        ),
        (
            ["training.lr_scales={head: 2}", "training.keep_optimizer=true"],
            "training.keep_optimizer=true: found true, allowed: false with training.lr_scales",
        ),
        (
            ["training.lr_scales={head: 2}", "methods={scaffold: {}}"],
            "methods.scaffold: needs plain SGD; .*, without training.lr_scales",
        ),
    ],
)
def test_scales_that_cannot_be_are_one_line(keys, words):
    with pytest.raises(ConfigError, match=f"^{words}"):
        check_methods(load(REQUIRED, keys))
