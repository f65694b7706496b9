"""Mammoth's models as client halves, with a stand-in: as alone in a plain loop, and the same bits after a resume."""

import copy
import random
from argparse import Namespace

import mammoth_stand_in
import numpy as np
import pytest
import torch
from torch import nn

from raysim.engine.events import Checkpoint, Finished
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.models.building import check_model
from raysim.models.flat import FlatModel
from raysim.records.run_directory import sha256
from raysim.system import seeding
from raysim.system.errors import ConfigError, RunError
from raysim.system.state import decode

ARGS = {
    "Er": {"buffer_size": 10, "minibatch_size": 4, "optim_mom": 0.5},
    "Derpp": {"buffer_size": 10, "minibatch_size": 4, "alpha": 0.3, "beta": 0.7},
    "EwcOn": {"e_lambda": 20.0, "gamma": 0.9, "batch_size": 5},
    "Si": {"c": 0.5, "xi": 1.0},
    "Lwf": {"alpha": 0.5},
}
IMAGES = {
    "dataset": {"name": "synthetic", "classes": 4, "shape": [1, 6, 6], "train": 24, "test": 20, "augment": ["crop"]},
    "scenario__tasks": 3,
    "training__batch_size": 5,
    "training__local_epochs": 2,
}


def method(name):
    return {"examples.mammoth:Mammoth": {"model": f"mammoth_stand_in:{name}", "args": ARGS.get(name, {})}}


def seed_globals(stream):
    """What `global_draws` does, with the next three numbers of a stream."""
    for_torch, for_numpy, for_python = (int(number) for number in stream.integers(2**32, size=3))
    torch.manual_seed(for_torch)
    np.random.seed(for_numpy)
    random.seed(for_python)


class Backbone(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)

    def get_params(self):
        return torch.cat([p.reshape(-1) for p in self.parameters()])

    def get_grads(self):
        return torch.cat([p.grad.reshape(-1) for p in self.parameters()])


def test_mammoth_that_is_not_on_the_path_is_one_line(tiny, simulate):
    missing = {"examples.mammoth:Mammoth": {"model": "models.er:Er"}}
    with pytest.raises(
        ConfigError, match=r"^model: the module models\.er cannot be imported \(.*\); put Mammoth's fold"
    ):
        simulate(tiny(**IMAGES, methods=missing))


def train_alone(config, name):
    """Mammoth's own loop, on raysim's batches and seeds. Return the weights after the last task.

    The server rounds a change to multiples of 2^-44 and adds it to the model that it sent, in float32. So the weights
    may differ in their last bit from those that the task ended with.
    """
    federation = build_federation(config)
    source = federation.source("train", torch.device("cpu"))
    # flat, as in raysim: some CPUs multiply with weights at another alignment in another order
    net = FlatModel(copy.deepcopy(check_model(config, federation.shape, federation.classes).module)).module
    sent = [p.detach().clone() for p in net.parameters()]
    args = {"lr": 0.1, "optim_wd": 0.0, "optim_mom": 0.0, "optim_nesterov": False} | ARGS[name]
    model = getattr(mammoth_stand_in, name)(Backbone(net), nn.functional.cross_entropy, Namespace(**args), None)
    model.train()

    def batches(task, order, drawn=None):
        rows = torch.from_numpy(federation.streams[0].rows[task][order].astype(np.int64))
        parts = [slice(start, start + 5) for start in range(0, len(rows), 5)]
        drawn = None if drawn is None else torch.from_numpy(drawn)
        return [
            (
                source.fetch(rows[part], task, None if drawn is None else drawn[part]),
                torch.from_numpy(federation.dataset.train.y[rows[part].numpy()]),
                source.fetch(rows[part], task),
            )
            for part in parts
        ]

    for task in range(3):
        shuffle, augment, draws = (
            seeding.generator(config.seed, 0, task + 1, 0, purpose) for purpose in ("batches", "augment", "Mammoth")
        )
        samples = len(federation.streams[0].rows[task])
        seed_globals(draws)
        if task:
            model.end_task(Namespace(train_loader=batches(task - 1, np.arange(samples))))
        with torch.no_grad():
            for p, value in zip(net.parameters(), sent, strict=True):
                p.copy_(value)
        model.begin_task(Namespace(train_loader=batches(task, np.arange(samples))))
        model.opt = model.get_optimizer()
        seed_globals(draws)
        for _ in range(2):
            order = shuffle.permutation(samples)
            sizes = [5] * (samples // 5) + [samples % 5] * (samples % 5 > 0)
            drawn = np.concatenate([source.draw(augment, size) for size in sizes])
            for x, y, plain in batches(task, order, drawn):
                model.observe(x, y, plain)
        for value, p in zip(sent, net.parameters(), strict=True):
            change = (p.detach() - value).numpy().astype(np.float64)
            value += torch.from_numpy((np.round(change * 2.0**44) / 2.0**44).astype(np.float32))
    return [value.numpy() for value in sent]


@pytest.mark.parametrize("name", ARGS)
def test_one_client_is_mammoth_alone(workplace, tiny, simulate, quiet_torch, name):
    config = tiny(**IMAGES, clients__count=1, training__rounds_per_task=1, methods=method(name), seed=3)
    alone = train_alone(config, name)
    run = simulate(config)
    for found, value in zip(run.state.values(), alone, strict=True):
        np.testing.assert_array_equal(found.numpy(), value)


@pytest.mark.parametrize("name", ["Er", "EwcOn", "Si", "Lwf", "Grown"])
def test_it_resumes_with_the_same_bits(workplace, tiny, simulate, quiet_torch, name):
    """Three clients resume within the second of three tasks of two rounds. They may be on different hosts."""
    config = tiny(**IMAGES, methods=method(name), checkpoint__every_rounds=1)
    whole = simulate(config)
    assert simulate(config, places=[[2], [0, 1]]).sha256 == whole.sha256
    federation = build_federation(config)
    saves = [event for event in whole.events if isinstance(event, Checkpoint)]
    for saved in saves[2:4] if name in ("Lwf", "Grown") else saves[2:3]:
        (clients,) = saved.clients
        again = Simulation(config, federation, LocalRunner(config, federation, clients), saved.server)
        assert [sha256(event.state) for event in again.events() if isinstance(event, Finished)] == [whole.sha256]


@pytest.mark.parametrize("name", [pytest.param("Er", marks=pytest.mark.soak), "Lwf"])
def test_ten_clients_have_the_same_bits_on_any_hosts(workplace, tiny, simulate, quiet_torch, name):
    more = {**IMAGES, "dataset": {**IMAGES["dataset"], "train": 60}, "clients__count": 10}
    config = tiny(**more, methods=method(name), participation__fraction=0.5)
    whole = simulate(config)
    assert simulate(config, places=[[9, 3], [0, 1, 2, 4], [8, 7, 6, 5]]).sha256 == whole.sha256
    assert whole.sha256 != simulate(tiny(**more, participation__fraction=0.5)).sha256


def test_hooks_of_mammoths_loop_are_called_where_there_are_any(workplace, tiny, simulate, quiet_torch):
    """Three tasks of two rounds with two epochs: two tasks end before the last one, after four epochs each.

    The checkpoint is of round 5, after ten epochs.
    """
    config = tiny(**IMAGES, clients__count=1, methods=method("Grown"), checkpoint__every_rounds=5)
    (saved,) = [event for event in simulate(config).events if isinstance(event, Checkpoint)]
    state = decode(saved.clients[0][0])
    kept = find(state, "epochs")
    assert (kept["epochs"], kept["current_task"]) == (10, 2)
    assert [len(one) for one in (kept["old"], kept["means"])] == [2, 2]
    assert sorted(kept["(networks)"]) == ["heads", "project"]


def find(state, key):
    """The dict with this key, at any depth."""
    if not isinstance(state, dict):
        return (
            next(filter(None, (find(part, key) for part in state)), None) if isinstance(state, list | tuple) else None
        )
    return state if key in state else next(filter(None, (find(part, key) for part in state.values())), None)


def test_attributes_may_have_any_names(workplace):
    """Such as those of what a state has besides attributes."""
    from examples.mammoth import kept

    def model():
        net = nn.Linear(3, 2)
        made = mammoth_stand_in.Er(net, None, Namespace(**ARGS["Er"], lr=0.1, optim_wd=0, optim_nesterov=False), None)
        return made, net

    (one, net), (other, other_net) = model(), model()
    one.networks, one.tensors, one.backbone = [copy.deepcopy(net)], torch.ones(2), {"network": nn.Linear(1, 1)}
    kept.restore(other, kept.state_of(one, net, ()), other_net)
    assert torch.equal(other.networks[0].weight, net.weight)
    assert torch.equal(other.backbone["network"].weight, one.backbone["network"].weight)
    assert torch.equal(other.net.weight, net.weight)
    assert other.tensors.tolist() == [1, 1]


def test_a_late_network_without_a_recipe_is_refused(workplace, tiny, simulate, quiet_torch):
    more = {"buffer_size": 10, "minibatch_size": 4}
    named = {"examples.mammoth:Mammoth": {"model": "mammoth_stand_in:Unknown", "args": more}}
    with pytest.raises(RunError, match=r"has made side, a Side, after its construction, allowed: a copy of the back"):
        simulate(tiny(**IMAGES, clients__count=1, methods=named, checkpoint__every_rounds=1))


def test_recipes_make_networks_of_the_same_structure(workplace):
    """And call nothing but layers of torch.nn, since a checkpoint may come from somebody else."""
    from examples.mammoth import kept

    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.BatchNorm1d(5), nn.Linear(5, 4))
    for network, keys in [
        (copy.deepcopy(net), {"like"}),
        (nn.Linear(5, 4), {"like"}),
        (nn.Linear(5, 4, bias=False), {"layer"}),
        (nn.Conv2d(1, 3, 2, stride=(1, 2), padding=1), {"layer"}),
        (nn.ModuleDict({"a": nn.Linear(5, 4), "b": nn.ModuleList([nn.Dropout(0.3)])}), {"container", "parts"}),
        (net[0], {"same"}),
    ]:
        recipe = kept.describe(network, net)
        assert recipe.keys() == keys
        assert keys == {"same"} or repr(kept.build(recipe, net)) == repr(network)
    assert kept.describe(mammoth_stand_in.Side(), net) is None
    assert kept.describe(nn.TransformerEncoderLayer(4, 1, 4), net) is None
    for text in ("print('x')", "Module.load('x')", "Linear(__import__('os').getpid(), 1)", "factory_kwargs({})"):
        with pytest.raises(ValueError, match=r"allowed: a layer|malformed"):
            kept.build({"layer": text}, net)
