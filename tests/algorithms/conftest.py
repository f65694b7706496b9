"""What the tests of several methods share, and those of C-FLAG."""

import pytest
import torch
from c_flag_oracle import BETA
from torch import nn

import raysim
from raysim.algorithms import c_flag
from raysim.algorithms.c_flag import CFlag
from raysim.engine.events import RoundDone
from raysim.engine.orders import Call, Order, RoundInfo, Train

SOFTMAX = {"name": "probes:softmax"}
OFF = {"adaptive": "off"}
UNEVEN = {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}, "seed": 1}
KEEP_ALL = {"memory": {"capacity": 100}}


def pytest_collection_modifyitems(items):
    """Put all tests of a method in the grid together: one worker has most of them, whose runs are cached."""
    places = [place for place, item in enumerate(items) if item.path.name == "test_contract_grid.py"]
    for place, item in zip(places, sorted((items[place] for place in places), key=_method_of), strict=True):
        items[place] = item


def _method_of(item):
    return item.callspec.params.get("name", "") if hasattr(item, "callspec") else ""


class Outage(Exception):
    """The power fails."""


class Failing:
    """Loses a run after a round."""

    def __init__(self, after):
        self.after = after

    def take(self, event):
        if isinstance(event, RoundDone) and event.round == self.after:
            raise Outage

    def say(self, text):
        """Nothing."""


@pytest.fixture
def resumed(tiny, tmp_path):
    """A function: the model of a run, and that of one that is lost after this round and resumed from its checkpoint."""

    def run(after, **overrides):
        config = tiny(checkpoint__every_rounds=1, logging__tensorboard=False, **overrides)
        whole, lost = tmp_path / "whole", tmp_path / "lost"
        with pytest.raises(Outage):
            raysim.run(config, out=lost, local=True, display=Failing(after))
        found = [raysim.run(config, out=whole, local=True), raysim.run(config, out=lost, local=True, resume=True)]
        return [result.model_sha256 for result in found]

    return run


@pytest.fixture
def squares(monkeypatch):
    """Every cross-entropy becomes 1/2 ||W x - onehot(y)||^2, mean over the batch."""

    def loss(logits, y):
        return 0.5 * ((logits - nn.functional.one_hot(y, logits.shape[1])) ** 2).sum(1).mean()

    monkeypatch.setattr(nn.functional, "cross_entropy", loss)


@pytest.fixture
def c_flag_config(tiny):
    """A function: a config of C-FLAG (or another method) on softmax regression, 3 unequal clients, 2 tasks."""

    def make(method="c_flag", knobs=OFF, **overrides):
        return tiny(**{"model": SOFTMAX, "methods": {method: knobs}, **UNEVEN, **KEEP_ALL, **overrides})

    return make


@pytest.fixture
def phases(host_of, quiet_torch):
    """A function: C-FLAG's host, its G_i sent, a spy's view of every refresh of client 0's phase B, and its call."""

    def make(config, monkeypatch):
        host = host_of(config)
        model = host.broadcasts["model"].value
        order = Order(Call("c_flag", "gradients"), (0,), {0: 1.0}, 1, RoundInfo(1, 0, BETA))
        sent = host.perform(order, None).of("c_flag", CFlag.replies, torch.float64)["gradient"]
        seen, real = [], c_flag.refresh

        def spy(rows, total, components, component):
            before = rows.clone()
            real(rows, total, components, component)
            seen.append((component, before, rows.clone(), total.clone(), components, host.model.parameters.clone()))

        monkeypatch.setattr(c_flag, "refresh", spy)
        message = {"c_flag": {"posted": [], "cohort": 1, "past_per_new": 0.0}}
        order = Order(Train(), (0,), {0: 1.0}, 1, RoundInfo(1, 0, BETA))
        return host, model, sent, seen, lambda: host.perform(order, message)

    return make
