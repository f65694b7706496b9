"""What a host asks its trainer, which trainer a config has, and that the result of each hook is checked."""

import pytest
import torch

from raysim.api import ClientHalf, Delta, Method
from raysim.api.method import ServerHalf
from raysim.engine.hook_calls import RETURN_NOTHING
from raysim.engine.hook_checks import CHECKS
from raysim.engine.hook_names import HOOKS
from raysim.engine.one_at_a_time import OneAtATime
from raysim.engine.orders import Call, Order, RoundInfo, Train
from raysim.engine.vectorised.together import Together
from raysim.system.errors import WrongResult

INFO = RoundInfo(1, 0, 0.1)
SHARES = {0: 0.25, 1: 0.5, 2: 0.25}


class Recording:
    """A trainer of two clients at a time, which notes what it is asked and trains no client."""

    def __init__(self):
        self.asked = []

    def divide(self, clients, work):
        yield clients[:2]
        yield clients[2:]

    def train(self, clients, work):
        self.asked.append(("train", [client.id for client in clients], work.message, work.order))
        work.collected.reply.steps += len(clients)

    def exchange(self, clients, call, work):
        if clients[0].id == 2:
            raise ValueError("no")
        self.asked.append((call, [client.id for client in clients], work.message, work.order))


def test_a_host_asks_its_trainer_group_by_group(tiny, host_of, quiet_torch):
    host, trainer = host_of(tiny()), Recording()
    host._trainer = trainer
    order = Order(Train(), (0, 1, 2), SHARES, 3, INFO)
    reply = host.perform(order, {"er": 1})
    assert trainer.asked == [("train", [0, 1], {"er": 1}, order), ("train", [2], {"er": 1}, order)]
    assert reply.steps == 3
    assert list(host.seconds) == [0, 1, 2]
    assert host.seconds[0] == host.seconds[1]


def test_an_error_names_the_group(tiny, host_of, quiet_torch):
    host, trainer = host_of(tiny()), Recording()
    host._trainer = trainer
    order = Order(Call("er", "count"), (0, 1, 2), SHARES, 3, INFO)
    with pytest.raises(ValueError, match="no") as found:
        host.perform(order, [7])
    assert trainer.asked == [(Call("er", "count"), [0, 1], [7], order)]
    assert found.value.__notes__ == ["client 2, round 1"]


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, OneAtATime),
        ({"training__vectorise": 2}, Together),
        ({"training__vectorise": 2, "methods": {"c_flag": {}}}, OneAtATime),
    ],
)
def test_the_config_decides_how_clients_train(tiny, host_of, more, kind):
    """C-FLAG replaces the local loop, so its clients train one at a time."""
    assert type(host_of(tiny(**more))._trainer) is kind


def test_groups_are_single_clients_or_blocks_of_clients_with_similar_data(tiny, host_of, quiet_torch):
    partition = {"kind": "quantity", "alpha": 0.5}
    order = Order(Train(), (0, 1, 2), SHARES, 3, INFO)
    groups = {}
    for width in (None, 2):
        host = host_of(tiny(training__vectorise=width, partition=partition))
        host._trainer.train = lambda clients, work, width=width: groups.setdefault(width, []).append(
            [client.id for client in clients]
        )
        host.perform(order, {})
    sizes = [host.clients[k].stream.size(0) for k in range(3)]
    small, middle, large = sorted(range(3), key=sizes.__getitem__)
    assert len(set(sizes)) == 3
    assert groups == {None: [[0], [1], [2]], 2: [[small, middle], [large]]}


def test_every_hook_that_returns_something_is_checked():
    assert set(CHECKS["client"]) == {*HOOKS[ClientHalf]} - {*RETURN_NOTHING} | {"batch"}
    assert set(CHECKS["server"]) == {*HOOKS[ServerHalf]}


class WrongUpdate(Method):
    """An op and a hook of one name: the client half's `update` is an op, whose result is terms and no Delta."""

    class Client(ClientHalf):
        def update(self, client, message):
            return {}

        def penalty(self, step):
            return 0.0

    class Server(ServerHalf):
        def update(self, server, delta, reply):
            return 0.0


def test_a_result_is_checked_by_the_hook_of_its_own_side(tiny, host_of, quiet_torch):
    method, host = WrongUpdate(), host_of(tiny())
    client, server = method.Client("m", method), method.Server("m", method)
    assert host._calls(client, "update", host.clients[0], None) == {}
    with pytest.raises(WrongResult, match=r"^methods\.m: .*penalty .* returned float, allowed: a tensor"):
        host._calls(client, "penalty", None)
    delta = Delta(torch.zeros(2), torch.zeros(0))
    with pytest.raises(WrongResult, match=r"^methods\.m: .*update .* returned float, allowed: Delta\("):
        host._calls(server, "update", None, delta, {})
