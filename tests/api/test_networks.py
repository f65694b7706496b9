"""Auxiliary networks: their weights, what they keep, the same bits anywhere, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from raysim.api import ClientHalf, Method, ServerHalf, Weights, with_batch_statistics
from raysim.api.networks import Networks
from raysim.engine.events import Checkpoint
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation, simulate_here
from raysim.federation.federation import build_federation
from raysim.records.run_directory import sha256
from raysim.system.errors import RunError


@pytest.fixture
def simulation(tiny, quiet_torch):
    config = tiny(methods={"test_networks:Made": {}})
    federation = build_federation(config)
    return Simulation(config, federation, LocalRunner(config, federation))


def linear() -> nn.Module:
    return nn.Linear(2, 1)


@dataclass(frozen=True, kw_only=True)
class Made(Method):
    """Two halves without hooks."""

    Client = type("Client", (ClientHalf,), {})
    Server = type("Server", (ServerHalf,), {})


def test_a_network_begins_alike_everywhere_and_is_kept_by_name(simulation):
    server, client = simulation.server, simulation.runner.host.clients[1]
    made = server.auxiliary_network("net", linear)
    assert server.auxiliary_network("net", linear) is made
    assert torch.equal(made.parameters, client.auxiliary_network("net", linear).parameters)
    assert not torch.equal(made.parameters, server.auxiliary_network("other", linear).parameters)
    first = made.parameters.clone()
    assert not torch.equal(server.auxiliary_network("net", linear, fresh=True).parameters, first)
    server.drop("net")
    assert torch.equal(server.auxiliary_network("net", linear).parameters, first)


def test_a_client_keeps_its_weights_but_not_those_that_it_was_given(simulation):
    first, second = (simulation.runner.host.clients[number] for number in (0, 1))
    initial = second.auxiliary_network("net", linear).parameters.clone()
    first.auxiliary_network("net", linear).parameters.fill_(7.0)
    first.auxiliary_network("net", linear).module.eval().requires_grad_(False)
    for client in (first, second):
        client.forget()
    assert first.auxiliary_network("net", linear).parameters.tolist() == [7.0] * 3
    assert torch.equal(second.auxiliary_network("net", linear).parameters, initial)
    assert all(p.requires_grad for p in second.auxiliary_network("net", linear).module.parameters())
    assert second.auxiliary_network("net", linear).module.training
    given = Weights(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    assert first.auxiliary_network("given", linear, given).parameters.tolist() == [1.0, 2.0, 3.0]
    assert set(first.state()["networks"]) == {"net"}


def test_a_checkpoint_keeps_networks_before_they_are_asked_for(simulation):
    made = simulation.server.auxiliary_network("net", linear)
    made.parameters.copy_(torch.tensor([1.0, -2.0, 5.0]))
    restored = Networks(0, torch.device("cpu"))
    restored.restore(simulation.server.state()["networks"])
    again = Networks(0, torch.device("cpu"))
    again.restore(restored.state())  # a second checkpoint, before the first call of make
    assert again.make("net", linear).parameters.tolist() == [1.0, -2.0, 5.0]


def test_a_replaced_model_is_a_new_version(simulation):
    server = simulation.server
    weights = Weights(server.parameters + 1, server.buffers, server.integers)
    before = server.parameters.clone()
    server.replace_model(weights)
    assert server.version == 1
    assert torch.equal(server.parameters, before + 1)
    assert torch.equal(server.broadcast().value.parameters, before + 1)
    with pytest.raises(RunError, match="not finite, allowed: finite weights"):
        server.replace_model(Weights(server.parameters * torch.inf, server.buffers, server.integers))
    with pytest.raises(RunError, match=r"network model: found weights of float32 \[2\], float32 \[0\], int64 \[0\]"):
        server.replace_model(Weights(torch.ones(2), torch.zeros(0), torch.zeros(0, dtype=torch.int64)))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: 3, "network net: found int, allowed: a function that returns a module"),
        (nn.ReLU, "network net: found no trainable parameter"),
        (lambda: nn.LazyLinear(2), "network net: weight has no shape yet"),
    ],
)
def test_what_is_no_network_is_refused(simulation, build, words):
    for maker in (simulation.server, simulation.runner.host.clients[0]):
        with pytest.raises(RunError, match=words):
            maker.auxiliary_network("net", build)


def test_batch_statistics_are_those_of_the_inputs_with_their_graph():
    """Rows 0, 2 and 4, 8 by channel: means 1, 6; variances 1, 4. d(mean)/dx = 1/2; the layer's own are 0 and 1."""
    layer = nn.BatchNorm1d(2).eval()
    x = torch.tensor([[0.0, 4.0], [2.0, 8.0]], requires_grad=True)
    out, [found] = with_batch_statistics(nn.Sequential(layer), x)
    np.testing.assert_allclose(out.detach(), np.array([[0, 4], [2, 8]]) / np.sqrt(1 + 1e-5), rtol=1e-6)
    assert found.mean.tolist() == [1.0, 6.0]
    assert found.variance.tolist() == [1.0, 4.0]
    assert (found.running_mean.tolist(), found.running_variance.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    (gradient,) = torch.autograd.grad(found.mean.sum(), x)
    assert gradient.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_an_image_s_statistics_are_over_batch_and_places():
    x = torch.arange(16.0).view(2, 2, 2, 2)
    _, [found] = with_batch_statistics(nn.BatchNorm2d(2), x)
    values = x.numpy().transpose(1, 0, 2, 3).reshape(2, -1)
    np.testing.assert_allclose(found.mean, values.mean(1))
    np.testing.assert_allclose(found.variance, values.var(1))
    assert found.running_mean.tolist() == [0.0, 0.0]  # before the pass, which moves them in training mode


KEYS: dict[str, Any] = {
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "training__rounds_per_task": 3,
    "participation": {"count": 2},
    "model": {"name": "mlp", "hidden": [5], "dropout": 0.2},
    "methods": {"beside:Adversarial": {}, "beside:Flow": {}},
    "checkpoint__every_rounds": 1,
}


def test_networks_have_the_same_bits_on_any_hosts_and_after_any_checkpoint(tiny, simulate):
    """An adversarial pair and a flow: one host, one client each, two of three, and resumed after each round."""
    config = tiny(**KEYS)
    whole = simulate(config)
    assert {simulate(config, places=places).sha256 for places in ([[0], [1], [2]], [[2, 0], [1]])} == {whole.sha256}
    federation = build_federation(config)
    for event in whole.events:
        if isinstance(event, Checkpoint):
            clients = {number: state for host in event.clients for number, state in host.items()}
            rest = [*simulate_here(config, federation, event.server, clients).events()]
            assert sha256(rest[-1].state) == whole.sha256, event.round
    assert [done.records.get("server_steps") for done in whole.rounds] == [None, None, 6.0, None, None, 6.0]
    without = {name: {"strength": 0.0} if "Adv" in name else {} for name in KEYS["methods"]}
    assert simulate(tiny(**{**KEYS, "methods": without})).sha256 != whole.sha256
