"""FedAvgM (Hsu et al., 2019, arXiv 1909.06335), FedAdam and FedYogi (Reddi et al., 2021, arXiv 2003.00295) in float64.

d is the cohort's mean update.
"""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from raysim.algorithms.fedadam import FedAdam
from raysim.algorithms.fedavgm import FedAvgM
from raysim.algorithms.fedyogi import FedYogi
from raysim.api.messages import Delta
from raysim.config.lookup import resolve
from raysim.system.errors import ConfigError

SOFTMAX = {"name": "probes:softmax"}
METHODS = ["fedavgm", "fedadam", "fedyogi"]
NORMALISED = {"name": "probes:normalised"}


@pytest.fixture
def models(tiny, simulate, log):
    """A function: the models w^0, w^1, ... of a run, and its d^0, d^1, ..., taken at the clients."""

    def run(methods, **overrides):
        log.clear()
        config = tiny(**{"model": SOFTMAX, **overrides}, methods={"probes:LateToSpeak": {}, **methods})
        last = simulate(config).simulation.server.parameters
        told = [entry for entry in log if torch.is_tensor(entry[0])]
        updates = [np.mean([end - sent for end in ends.values()], axis=0) for sent, ends in told]
        return np.array([sent.numpy() for sent, _ in told] + [last.numpy()]), updates

    return run


def recursion(name, updates, lr, beta=0.9, beta1=0.9, beta2=0.99, tau=1e-3):
    """The changes of the model in NumPy: momentum, or Algorithm 2 of Reddi et al. with v_0 = tau^2."""
    m, v, changes = np.zeros_like(updates[0]), np.full_like(updates[0], tau**2), []
    for d in updates:
        if name == "fedavgm":
            m = beta * m + d
            changes.append(lr * m)
            continue
        m = beta1 * m + (1 - beta1) * d
        moved = {"fedadam": d**2 - v, "fedyogi": -(d**2) * np.sign(v - d**2)}
        v = v + (1 - beta2) * moved[name]
        changes.append(lr * m / (np.sqrt(v) + tau))
    return np.array(changes)


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("fedavgm", {"lr": 0.7, "beta": 0.6}),
        ("fedadam", {"lr": 0.03, "beta1": 0.8, "beta2": 0.95, "tau": 0.01}),
        ("fedyogi", {"lr": 0.03, "beta1": 0.8, "beta2": 0.5, "tau": 0.05}),
        ("fedavgm", {"lr": 1.0, "beta": 0.9}),
        ("fedadam", {"lr": 0.1}),
        ("fedyogi", {"lr": 0.1}),
    ],
)
def test_a_run_follows_the_recursion(models, name, knobs):
    """Two tasks of four rounds, two of three clients: the moments go on through rounds, cohorts and tasks.

    Where only lr is given, the others are the papers': 0.9, 0.99 and 1e-3.
    """
    found, updates = models({name: knobs}, training__rounds_per_task=4, participation={"count": 2})
    wanted = found[0] + np.cumsum(recursion(name, updates, **knobs), axis=0)
    np.testing.assert_allclose(found[1:], wanted, rtol=0, atol=1e-10)
    assert min(np.abs(d).max() for d in updates) > 1e-2


def test_the_defaults_are_those_that_train():
    """The papers' 0.9 and 0.1 end at chance on split digits: see test_defaults_train.py."""
    assert (FedAvgM().lr, FedAvgM().beta, FedAdam().lr, FedYogi().lr) == (1.0, 0.3, 0.002, 0.002)


@pytest.mark.parametrize("model", [SOFTMAX, {"name": "mlp", "hidden": [5], "dropout": 0.4, "batch_norm": True}])
def test_fedavgm_without_momentum_is_fedavg_bit_for_bit(tiny, simulate, model):
    more = {"model": model, "participation": {"count": 2}}
    knobs = ({"beta": 0.0, "lr": 1.0}, {"beta": 0.5, "lr": 1.0}, {"beta": 0.0, "lr": 0.5})
    plain, *others = (simulate(tiny(methods=m, **more)).sha256 for m in ({}, *({"fedavgm": knob} for knob in knobs)))
    assert [other == plain for other in others] == [True, False, False]


def constant(models, method, rounds):
    """The models w^0, w^1, ... where d = 1/4 in every round and coordinate."""
    return models({"probes:Zero": {"plus": 0.25}, **method}, training__rounds_per_task=rounds, scenario__tasks=1)[0]


def test_under_a_constant_update_momentum_is_a_geometric_sum(models):
    """m_t = d (1 - beta^t) / (1 - beta): with beta = 1/2, lr = 3, d = 1/4 changes of 0.75, 1.125, 1.3125, to 1.5."""
    changes = np.diff(constant(models, {"fedavgm": {"beta": 0.5, "lr": 3.0}}, 4), axis=0)
    np.testing.assert_allclose(changes, np.outer([0.75, 1.125, 1.3125, 1.40625], np.ones(28)), rtol=1e-13)


def test_under_a_constant_update_both_moments_have_closed_forms(models):
    """m_t = d (1 - b1^t) for both, without a correction of the bias; lr = 1, tau = 0.1, b1 = 0.6, b2 = 0.5, d = 0.25.

    Adam: v_t = b2^t tau^2 + (1 - b2^t) d^2. Yogi, while v < d^2 = 0.0625: v_t = tau^2 + t (1 - b2) d^2 = 0.01 +
    0.03125 t, so 0.04125 and then 0.0725, above d^2: back to 0.04125, and so on. Adam's v never passes d^2.
    """
    knobs, t = {"lr": 1.0, "tau": 0.1, "beta1": 0.6, "beta2": 0.5}, np.arange(1, 5)
    second = {"fedadam": 0.5**t * 0.01 + (1 - 0.5**t) * 0.0625, "fedyogi": np.array([0.04125, 0.0725, 0.04125, 0.0725])}
    for name, v in second.items():
        wanted = 0.25 * (1 - 0.6**t) / (np.sqrt(v) + 0.1)
        changes = np.diff(constant(models, {name: knobs}, 4), axis=0)
        np.testing.assert_allclose(changes, np.outer(wanted, np.ones(28)), rtol=1e-12)


def updated(half, *updates):
    """The parameters of what the server's half returns for each of these updates."""
    none = torch.zeros(0, dtype=torch.float64)
    given = [Delta(torch.tensor(d, dtype=torch.float64), none) for d in updates]
    return [half.update(SimpleNamespace(), d, {}).parameters.tolist() for d in given]


def test_the_second_moments_by_hand():
    """In units of tau, tau = 0.01: d = (3, 0, 1, 1/2) from v_0 = 1, with 1 - b2 = 0.01, and then d = 0 and d = 1.

    Adam, v = 0.99 v + 0.01 d^2: (1.08, 0.99, 1, 0.9925), 0.99 times that, and that times 0.99 plus 0.01.
    Yogi, v = v - 0.01 d^2 sign(v - d^2): d^2 = 9 > 1 adds 0.09; 0 and 1 = v nothing; 1/4 < 1 takes off 0.0025. Then d =
    0 keeps v, where Adam forgets; and d^2 = 1 takes 0.01 off 1.09, leaves 1 as it is, and adds 0.01 to 0.9975.
    """
    first = [1.08, 0.99, 1.0, 0.9925]
    adam = [first, [0.99 * v for v in first], [0.99**2 * v + 0.01 for v in first]]
    yogi = [[1.09, 1.0, 1.0, 0.9975]] * 2 + [[1.08, 1.0, 1.0, 1.0075]]
    for kind, wanted in ((FedAdam, adam), (FedYogi, yogi)):
        half = kind.Server("adaptive", kind(tau=0.01))
        for d, v in zip(([0.03, 0, 0.01, 0.005], [0.0] * 4, [0.01] * 4), wanted, strict=True):
            updated(half, d)
            np.testing.assert_allclose(half.second / 0.01**2, v, rtol=1e-12)


def test_the_first_change_is_scale_free():
    """d = 3 tau: lr (1 - b1) d / (sqrt(v) + tau) = 0.1 * 0.1 * 3 / (1 + sqrt(v / tau^2)), v / tau^2 = 1.08, or 1.09."""
    for kind, v in ((FedAdam, 1.08), (FedYogi, 1.09)):
        for tau in (1e-3, 0.5):
            ((change,),) = updated(kind.Server("adaptive", kind(lr=0.1, tau=tau)), [3 * tau])
            assert change == pytest.approx(0.03 / (1 + v**0.5), rel=1e-13)


@pytest.mark.parametrize("name", METHODS)
def test_statistics_are_averaged_as_ever(tiny, simulate, name):
    """One round from the same model: FedAvg's statistics, bit for bit, beside other parameters."""
    one = {"model": NORMALISED, "scenario__tasks": 1, "training__rounds_per_task": 1}
    plain, ours = (simulate(tiny(methods=m, **one)).simulation.server for m in ({}, {name: {"lr": 0.3}}))
    assert torch.equal(plain.buffers, ours.buffers)
    assert torch.equal(plain.integers, ours.integers)
    assert not torch.equal(plain.parameters, ours.parameters)


@pytest.mark.parametrize("name", METHODS)
def test_nothing_more_is_sent_and_the_clients_train_as_ever(tiny, simulate, name):
    """FedAvg's bytes in every round; the first round's loss is FedAvg's, the second's is not."""
    plain, ours = (simulate(tiny(model=SOFTMAX, methods=m)).rounds for m in ({}, {name: {}}))
    assert [(r.bytes_up, r.bytes_down) for r in plain] == [(r.bytes_up, r.bytes_down) for r in ours]
    assert [a.loss == b.loss for a, b in zip(plain, ours, strict=True)][:2] == [True, name == "fedavgm"]


@pytest.mark.parametrize("name", METHODS)
def test_a_knob_outside_its_range_is_refused(tiny, name):
    """Rates and tau are above 0; the betas are at least 0 and below 1."""
    outside = {"lr": (0, -1), "tau": (0, -1), **dict.fromkeys(("beta", "beta1", "beta2"), (1, -0.1))}
    for knob in (field.name for field in dataclasses.fields(resolve("method", name))):
        for value in outside[knob]:
            with pytest.raises(ConfigError, match=rf"methods\.{name}\.{knob}"):
                tiny(methods={name: {knob: value}})
