"""What a server half may write into a request, and what a client knows in the exchange."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pytest
import torch

from raysim.api import Broadcast, ClientHalf, Method, Request, RunError, ServerHalf, Term
from raysim.api.messages import count_bytes
from raysim.engine.events import Checkpoint
from raysim.system.state import decode

HERE = "test_requests:"
TO = {
    "numpy": lambda ids: np.array(ids),
    "twice": lambda ids: [*ids, *ids],
    "floats": lambda ids: [float(i) for i in ids],
}


@dataclass(frozen=True)
class Message:
    """A message of a dataclass: 3 float32 and, in a dict, 2 int64."""

    mean: torch.Tensor
    more: dict[str, torch.Tensor]


def test_tensors_in_a_dataclass_count_as_bytes():
    message = Message(torch.zeros(3), {"counts": torch.zeros(2, dtype=torch.int64)})
    assert count_bytes({"it": [message]}) == 3 * 4 + 2 * 8
    assert count_bytes(Term(torch.zeros(3), weight=np.float64(0.5))) == 3 * 4  # no weight is sent


@dataclass(frozen=True, kw_only=True)
class AsksSome(Method):
    """Asks the first and the last present client, written in some way, for the round and the learning rate."""

    how: str = "numpy"
    replies: ClassVar = {"known": "mean"}

    class Client(ClientHalf):
        def ask(self, client, message):
            return {"known": Term(torch.tensor([client.round, client.lr], dtype=torch.float64))}

    class Server(ServerHalf):
        def prepare(self, server):
            sent = [Broadcast(self.name, np.int64(server.round), torch.zeros(1))]
            to = TO[self.method.how]([server.present[0], server.present[-1]])
            reply = yield Request("ask", to=to, broadcasts=sent)
            server.record("round", reply["known"][0])
            server.record("lr", reply["known"][1])


def test_a_client_knows_the_round_and_the_rate_of_an_exchange(tiny, simulate):
    """With ids and a version of NumPy, of which a checkpoint could be written and not be read."""
    done = simulate(tiny(methods={f"{HERE}AsksSome": {}}, participation={"count": 1}, checkpoint__every_rounds=1))
    assert [one.records["round"] for one in done.rounds] == [1, 2, 3, 4]
    assert [one.records["lr"] for one in done.rounds] == pytest.approx([0.1] * 4)
    for event in done.events:
        if isinstance(event, Checkpoint):
            assert decode(event.server, torch.device("cpu"))


@pytest.mark.parametrize("how", ["twice", "floats"])
def test_what_are_no_different_ids_is_refused(tiny, simulate, how):
    words = r"Request.to: .* returned \[.*\], allowed: ids of different clients with data now"
    with pytest.raises(RunError, match=words):
        simulate(tiny(methods={f"{HERE}AsksSome": {"how": how}}))


class Pair(NamedTuple):
    number: int
    vector: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class AnnouncesAPair(Method):
    """Its message is a named tuple."""

    class Client(ClientHalf):
        def start(self, client, message):
            client.record("number", message.number + message.vector.sum())

    class Server(ServerHalf):
        def announce(self, server):
            return Pair(2, torch.ones(3)), ()


def test_a_message_may_be_a_named_tuple(tiny, simulate):
    done = simulate(tiny(methods={f"{HERE}AnnouncesAPair": {}}))
    assert [one.records["number"] for one in done.rounds] == [5] * 4
