"""Methods that own the loop: epochs of their own, code that draws from global generators, and the client's task."""

import random
from typing import ClassVar

import numpy as np
import probes
import pytest
import torch

from raysim.api import ClientHalf, Delta, Method, RunError, ServerHalf
from raysim.engine.orders import RoundInfo
from raysim.system import seeding

HERE = "test_own_loop:"
IMAGES = {"dataset": {"name": "synthetic", "classes": 4, "shape": [1, 6, 6], "train": 37, "test": 20}}
UNKNOWN = {"scenario__boundaries": {"asynchronous": {"window": 9}}, "training__rounds_per_task": None}


class Sgd(Method):
    """FedAvg, with SGD in a loop of its own."""

    class Client(ClientHalf):
        def train(self, client):
            model, buffers = client.model, client.model.buffers.clone()
            for _ in range(client.local_epochs):
                for x, y, _ in client.epoch():
                    gradient = model.gradient_of(client.loss(model(x), y))
                    model.parameters.sub_(gradient, alpha=client.lr)
            return Delta(model.parameters - client.received, model.buffers - buffers)


@pytest.mark.parametrize(
    "config",
    [
        IMAGES | {"dataset__augment": ["crop", "flip"]},
        {"model__dropout": 0.4, "model__batch_norm": True, "dataset__train": 38},  # last batches of one sample
        UNKNOWN,
    ],
    ids=["augmented", "batch_norm", "windows"],
)
def test_sgd_over_epochs_is_fedavg(tiny, simulate, config):
    config = config | {"training__local_epochs": 2}
    runs = [simulate(tiny(methods=methods, **config)) for methods in ({}, {f"{HERE}Sgd": {}})]
    assert runs[0].sha256 == runs[1].sha256
    assert [done.steps for done in runs[0].rounds] == [done.steps for done in runs[1].rounds]
    assert runs[0].rounds[0].steps > 0


def begin(host, number, window=0):
    client = host.clients[number]
    client.begin_phase(RoundInfo(1, window, 0.1), 1.0)
    return client


def test_plain_samples_are_the_batch_without_augmentation(host_of, tiny, quiet_torch):
    """In the order of NumPy's permutation. One epoch of 13 samples has batches of 4, 4, 4 and 1."""
    host = host_of(tiny(**IMAGES, dataset__augment=["crop", "flip"], seed=3))
    client = begin(host, 0)
    assert len(client.arrived) == 13
    batches, order = list(client.epoch()), seeding.generator(3, 0, 1, 0, "batches").permutation(13)
    x, y = client.samples(torch.from_numpy(order))
    assert [len(labels) for _, labels, _ in batches] == [4, 4, 4, 1]
    assert torch.equal(torch.cat([plain for _, _, plain in batches]), x)
    assert torch.equal(torch.cat([labels for _, labels, _ in batches]), y)
    assert not torch.equal(torch.cat([augmented for augmented, _, _ in batches]), x)
    assert client.steps == 4


def test_an_epoch_runs_over_other_positions_and_fetches_once_without_augmentation(host_of, tiny, quiet_torch):
    client = begin(host_of(tiny()), 1)
    client.model.module.eval()
    batches = list(client.epoch(torch.tensor([7, 2, 9, 2, 11])))
    assert client.model.module.training
    assert client.steps == 2
    assert all(x is plain for x, _, plain in batches)
    shown = client.samples(torch.tensor([2, 2, 7, 9, 11]))[0]
    assert torch.equal(torch.cat([x for x, _, _ in batches]).sort(0).values, shown.sort(0).values)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"scenario__tasks": 3}, [0, 1, 2]),
        # 3 clients with 12 samples of each of 2 tasks, in windows of 9: 9 + (3 + 6) + 6
        (UNKNOWN, [0, 1, 1]),
    ],
)
def test_the_task_is_that_of_the_newest_sample(host_of, tiny, quiet_torch, config, wanted):
    host = host_of(tiny(**config))
    assert [begin(host, 0, window).task for window in range(len(wanted))] == wanted
    assert host.clients[0].classes == 4


# draws


class Global(Method):
    """Draws from all generators of the process, at clients and at the server, and adds noise to the update."""

    safe: ClassVar = True

    class Client(ClientHalf):
        def start(self, client, message):
            with client.global_draws(self.name):
                probes.LOG.append((client.id, client.phases, *draw()))
            with client.global_draws(self.name):
                probes.LOG.append((client.id, client.phases, *draw()))

    class Server(ServerHalf):
        def update(self, server, delta, reply):
            with server.global_draws(self.name):
                noise = draw()
            probes.LOG.append(("server", server.round, *noise))
            return Delta(delta.parameters + sum(noise), delta.buffers)


class Unguarded(Method):
    class Client(ClientHalf):
        def start(self, client, message):
            draw()


def draw():
    """The first numbers of torch's, NumPy's and Python's global generators."""
    return torch.rand(1).item(), np.random.rand(), random.random()


def expected(*name, blocks):
    """The draws of the first blocks: each is seeded with the next three numbers of the named stream."""
    stream = seeding.generator(*name)
    drawn = []
    for _ in range(blocks):
        for_torch, for_numpy, for_python = (int(number) for number in stream.integers(2**32, size=3))
        of_torch = torch.rand(1, generator=torch.Generator().manual_seed(for_torch)).item()
        drawn.append((of_torch, np.random.RandomState(for_numpy).rand(), random.Random(for_python).random()))
    return drawn


def test_global_draws_are_those_of_the_named_stream(tiny, simulate, log):
    """Clients' streams end with (phase, 0, name); the server's with (round, name). Packing changes nothing."""
    config = tiny(methods={f"{HERE}Global": {}}, model__dropout=0.3, seed=3)
    before = np.random.get_state(legacy=False), random.getstate()
    run = simulate(config)
    found = list(log)
    np.testing.assert_equal(np.random.get_state(legacy=False), before[0])
    assert random.getstate() == before[1]
    for round in range(1, 5):
        for client in range(3):
            drawn = [entry[2:] for entry in found if entry[:2] == (client, round)]
            assert drawn == expected(3, client, round, 0, "Global", blocks=2)
        assert [e[2:] for e in found if e[:2] == ("server", round)] == expected(3, "server", round, "Global", blocks=1)
    assert simulate(config, places=[[2], [0, 1]]).sha256 == run.sha256


def test_they_leave_the_models_draws_as_they_are(tiny, simulate, log, monkeypatch):
    monkeypatch.setattr(Global.Server, "update", ServerHalf.update)
    runs = [simulate(tiny(methods=methods, model__dropout=0.3)) for methods in ({}, {f"{HERE}Global": {}})]
    assert runs[0].sha256 == runs[1].sha256


def test_without_them_the_error_says_so(tiny, simulate):
    config = tiny(methods={f"{HERE}Unguarded": {}})
    with pytest.raises(RunError, match=r"NumPy's global generator .* `with client\.global_draws\(name\):`$"):
        simulate(config)
