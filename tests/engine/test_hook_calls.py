"""User-defined hooks that would spoil a run without an error: each is refused, and the error names the hook."""

import math
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from raysim.api import Broadcast, ClientHalf, Method, Request, ServerHalf, Term
from raysim.engine.compatibility import check_methods
from raysim.engine.hook_names import describe_unused
from raysim.system.errors import ConfigError, RunError, WrongResult

HERE = "test_hook_calls:"
ONE_ROUND = {"training__rounds_per_task": 1}


class ServerMoves(Method):
    """Converts the server's network, as `.cuda()` would."""

    class Server(ServerHalf):
        def end_task(self, server):
            server.network.module.double()


class ClientMoves(Method):
    class Client(ClientHalf):
        def start(self, client, message):
            client.model.module.double().float()


class LaterMoves(Method):
    """Converts the network in its third step, which no check follows at once: the one after the phase does."""

    class Client(ClientHalf):
        def penalty(self, step):
            if step.number == 2:
                step.client.model.module.double().float()
            return step.loss.new_zeros(())


class Freezes(Method):
    class Client(ClientHalf):
        def finish(self, client, delta):
            client.model.module.requires_grad_(False)
            return delta, {}


class Evaluates(Method):
    class Client(ClientHalf):
        def penalty(self, step):
            step.client.model.module.eval()
            return step.loss.new_zeros(())


class Zeroes(Method):
    """zero_grad() sets every gradient to None: the step would then use a gradient vector of zeros."""

    class Client(ClientHalf):
        def batch(self, step):
            step.client.model.module.zero_grad()


class Hooks(Method):
    class Client(ClientHalf):
        def start(self, client, message):
            client.model.module.register_forward_hook(lambda *_: None)


class Replaces(Method):
    class Client(ClientHalf):
        def start(self, client, message):
            client.model.module.extra = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("method", "place", "change"),
    [
        (ServerMoves, "ServerMoves.Server.end_task (", "moved or converted the model's tensors"),
        (ClientMoves, "ClientMoves.Client.start (", "moved or converted the model's tensors"),
        (LaterMoves, "a hook of LaterMoves", "moved or converted the model's tensors"),
        (Freezes, "Freezes.Client.finish (", "changed requires_grad of the model's parameters"),
        (Evaluates, "Evaluates.Client.penalty (", "changed the mode of the model's layers (train or eval)"),
        (Zeroes, "Zeroes.Client.batch (", "replaced the model's gradients, as zero_grad() does"),
        (Hooks, "Hooks.Client.start (", "added or removed hooks of the model's layers"),
        (Replaces, "Replaces.Client.start (", "added or removed layers, parameters or buffers of the model"),
    ],
)
def test_a_hook_that_changes_the_module_is_named(tiny, simulate, method, place, change):
    side = "server" if method is ServerMoves else "client"
    with pytest.raises(WrongResult) as caught:
        simulate(tiny(**ONE_ROUND, methods={f"{HERE}{method.__name__}": {}}))
    assert place in str(caught.value)
    assert f" has {change}, allowed: a hook that leaves the module as it is; {side}.network_at() " in str(caught.value)


class Copies(Method):
    """Does what the methods above do, with copies of the network, and evaluates them."""

    class Client(ClientHalf):
        def start(self, client, message):
            network = client.network_at()
            assert not network.training
            network.double().zero_grad()
            x, _ = client.samples(client.arrived[:3])
            with torch.no_grad():
                assert torch.allclose(network(x.double()), client.model(x).double(), atol=1e-5)

    class Server(ServerHalf):
        def end_task(self, server):
            network = server.network_at().double()
            with torch.no_grad():
                flat = torch.cat([p.reshape(-1) for p in network.parameters()])
                assert torch.equal(flat, server.parameters.double())
                for p in network.parameters():
                    p.zero_()


def test_a_copy_of_the_network_may_be_changed(tiny, simulate):
    """No bit of the run moves by it: its model is the one of plain FedAvg."""
    plain, copied = (simulate(tiny(**ONE_ROUND, methods=m)) for m in ({}, {f"{HERE}Copies": {}}))
    assert torch.equal(plain.simulation.server.parameters, copied.simulation.server.parameters)


class KeepsOptimizer(Method):
    class Client(ClientHalf):
        def start(self, client, message):
            self.adam = torch.optim.Adam([torch.zeros(1, requires_grad=True)])


class KeepsModule(Method):
    class Server(ServerHalf):
        def end_task(self, server):
            self.generator = nn.Linear(3, 3)


class Counter:
    """An object with a state of its own."""

    def __init__(self):
        self.count = 0

    def state(self):
        return {"count": self.count}

    def restore(self, state):
        self.count = state["count"]


class KeepsLate(Method):
    class Server(ServerHalf):
        def update(self, server, delta, reply):
            self.counter = Counter()
            return delta


class KeepsObject(Method):
    class Server(ServerHalf):
        def __init__(self, name, method):
            super().__init__(name, method)
            self.counter = Counter()

        def update(self, server, delta, reply):
            self.counter.count += 1
            return delta


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (KeepsOptimizer, r"adam, set by KeepsOptimizer.Client.start \(.*\) holds a Adam, .*: its state_dict\(\)"),
        (KeepsModule, r"generator, set by KeepsModule.Server.end_task \(.*\) holds a Linear, .*: its state_dict\(\)"),
        (KeepsLate, r"counter, set by KeepsLate.Server.update \(.*\) holds a Counter; make it in __init__"),
    ],
)
def test_state_that_no_checkpoint_can_keep_ends_the_run_at_once(tiny, simulate, method, words):
    """The run is too short for a checkpoint: without the look after each hook it would be done."""
    with pytest.raises(RunError, match=words):
        simulate(tiny(**ONE_ROUND, methods={f"{HERE}{method.__name__}": {}}))


def test_an_object_with_a_state_of_its_own_is_kept():
    half, restored = (KeepsObject.Server("kept", KeepsObject()) for _ in range(2))
    half.counter.count = 7
    assert half.state() == {"counter": {"count": 7}}
    restored.restore(half.state())
    assert isinstance(restored.counter, Counter)
    assert restored.counter.count == 7


class Misspelt(Method):
    class Client(ClientHalf):
        def penalti(self, step):
            return step.loss


class WrongHalf(Method):
    class Server(ServerHalf):
        def penalty(self, step):
            return step.loss


class Unused(Method):
    class Client(ClientHalf):
        def begin_round(self, client):
            pass

        def stats(self, client, message):
            return {}

        def counted(self):
            return 1

        def _private(self):
            pass

        def start(self, client, message):
            self.counted()

    class Server(ServerHalf):
        def end_task(self, server):
            yield Request("stats")


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Misspelt, r"Misspelt.Client.penalti \(.*\) is no hook of a client half .* the client half's penalty\?"),
        (WrongHalf, r"WrongHalf.Server.penalty \(.*\) is no hook of a server half .* the client half's penalty\?"),
    ],
)
def test_a_misspelled_hook_is_refused(tiny, method, words):
    with pytest.raises(ConfigError, match=words):
        check_methods(tiny(methods={f"{HERE}{method.__name__}": {}}))


def test_a_method_that_nothing_calls_is_warned_of(tiny):
    """`stats` is two letters from the hook `start`, but the server half requests it."""
    (line,) = describe_unused(check_methods(tiny(methods={f"{HERE}Unused": {}})))
    assert "Unused.Client.begin_round (" in line


class Unasked(Method):
    class Server(ServerHalf):
        def aggregate_fit(self, server):
            pass


class Lower(Method):
    class client(ClientHalf):
        def penalty(self, step):
            return step.loss


class Mixed(Method):
    Client = ServerHalf


class Demanding(Method):
    needs = frozenset({"server_boundary"})


class Short(Method):
    class Client(ClientHalf):
        def finish(self, delta):
            return delta, {}


class Shares(Method):
    class Client(ClientHalf):
        seen: ClassVar = []


class Sums(Method):
    class Server(ServerHalf):
        total = torch.zeros(1)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (Unasked, r"found Unasked.Server.aggregate_fit \(.*\), which nothing calls, allowed: a hook \(select, "),
        (Lower, r"found the half client, which nothing uses, allowed: the names Client and Server"),
        (Mixed, r"found Client = <class .*ServerHalf'>, allowed: a subclass of raysim.api.ClientHalf"),
        (Demanding, r"its needs have 'server_boundary', allowed: boundaries, server_boundaries, "),
        (Short, r"Short.Client.finish \(.*\) cannot be called, allowed: finish\(self, client, delta\)"),
        (Shares, r"found seen in the class Shares.Client \(.*\), which all clients of a process share, allowed: "),
        (Sums, r"found total in the class Sums.Server \(.*\), .* that __init__ makes, or a constant TOTAL"),
    ],
)
def test_a_class_with_a_part_that_has_no_effect_is_refused(tiny, method, words):
    with pytest.raises(ConfigError, match=rf"methods\.{method.__name__}: {words}"):
        check_methods(tiny(methods={f"{HERE}{method.__name__}": {}}))


class ChangesReceived(Method):
    class Client(ClientHalf):
        def finish(self, client, delta):
            client.received.mul_(0.9)
            return delta, {}


class ChangesItsOwn(Method):
    """Its `received` is no broadcast, as it puts a parameter of its own into the model."""

    class Client(ClientHalf):
        def receive(self, client):
            client.model.parameters[-1] = 0.5

        def finish(self, client, delta):
            client.received.mul_(0.9)
            return delta, {}


class ChangesBroadcast(Method):
    class Client(ClientHalf):
        def start(self, client, message):
            client.from_server(self.name).add_(1)

    class Server(ServerHalf):
        def announce(self, server):
            return None, [Broadcast(self.name, 0, torch.ones(3))]


class KeepsParameters(Method):
    class Client(ClientHalf):
        def finish(self, client, delta):
            self.old = client.model.parameters[:3]
            return delta, {}


class KeepsGradient(Method):
    class Client(ClientHalf):
        def gradient(self, step, gradient):
            self.all = {"last": [gradient]}
            return gradient


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (
            ChangesReceived,
            r"ChangesReceived.Client.finish \(.*\) changed client.received in place, which all clients of",
        ),
        (ChangesItsOwn, r"ChangesItsOwn.Client.finish \(.*\) changed client.received in place, which all clients of"),
        (ChangesBroadcast, r"ChangesBroadcast.Client.start \(.*\) changed the broadcast ChangesBroadcast in place, "),
        (KeepsParameters, r"KeepsParameters.Client.finish \(.*\) kept the attribute old, which shares the model's "),
        (KeepsGradient, r"KeepsGradient.Client.gradient \(.*\) kept the attribute all, which shares the model's mem"),
    ],
)
def test_memory_that_is_shared_is_neither_changed_nor_kept(tiny, simulate, method, words):
    with pytest.raises(WrongResult, match=words):
        simulate(tiny(**ONE_ROUND, methods={f"{HERE}{method.__name__}": {}}))


class KeepsClient(Method):
    class Client(ClientHalf):
        def start(self, client, message):
            self.mine = client


def test_a_client_that_a_half_keeps_is_refused_in_one_line(tiny, simulate):
    """Its state has the half's state, and so on."""
    with pytest.raises(
        RunError, match=r"mine, set by KeepsClient.Client.start \(.*\) holds a HostedClient; make it in"
    ):
        simulate(tiny(**ONE_ROUND, methods={f"{HERE}KeepsClient": {}}))


class NotAPlan(Method):
    class Server(ServerHalf):
        def end_task(self, server):
            return [Request("count")]


def test_what_is_no_plan_is_refused(tiny, simulate):
    with pytest.raises(WrongResult, match=r"NotAPlan.Server.end_task \(.*\) returned list, allowed: a plan"):
        simulate(tiny(**ONE_ROUND, methods={f"{HERE}NotAPlan": {}}))


class Gram(Method):
    """Sums a float64 number that float32 cannot hold: 3 clients send 1 + 2^-40 each."""

    replies: ClassVar = {"gram": "sum", "mean": "mean", "single": "mean"}

    class Client(ClientHalf):
        def gram(self, client, message):
            value = torch.tensor([1 + 2.0**-40], dtype=torch.float64)
            return {"gram": Term(value), "mean": Term(value), "single": Term(value.float())}

    class Server(ServerHalf):
        def end_task(self, server):
            reply = yield Request("gram", to="everyone")
            assert reply["gram"].dtype == reply["mean"].dtype == torch.float64
            assert reply["single"].dtype == torch.float32
            assert float(reply["gram"]) == pytest.approx(3 + 3 * 2.0**-40, abs=2.0**-50)
            assert float(reply["mean"]) == pytest.approx(1 + 2.0**-40, abs=2.0**-50)


def test_float64_terms_arrive_in_float64(tiny, simulate):
    simulate(tiny(**ONE_ROUND, methods={f"{HERE}Gram": {}}))


def noisy(shape, classes):
    """A model with weights from NumPy's global generator."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
    model[1].weight.data = torch.from_numpy(np.random.standard_normal(model[1].weight.shape)).float()
    return model


def test_a_model_that_draws_from_numpy_has_the_same_weights_each_time(tiny, simulate):
    config = tiny(**ONE_ROUND, model={"name": f"{HERE}noisy"})
    assert simulate(config).sha256 == simulate(config).sha256
