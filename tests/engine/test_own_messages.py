"""Requests with a message for each client: who receives what, and what it costs."""

from typing import ClassVar

import letters
import pytest
import torch
from costs import cost_of

from raysim.api import ClientHalf, Method, Request, RunError, ServerHalf, Term
from raysim.engine.received import Received
from raysim.launch.check import estimate_run
from raysim.system import shared_memory

LETTERS = {"methods": {"letters:Letters": {}}, "clients__count": 4, "training__rounds_per_task": 1}
FEDBUFF = {"schedule": {"kind": "asynchronous", "concurrency": 2, "buffer_size": 2, "speeds": {"kind": "log_normal"}}}
DOWN = [4 * (k + 1) + 2 * 4 for k in range(4)]  # k + 1 numbers, and the two of the broadcast


def answers(run):
    return {k: answer[0] for k, answer in run.simulation.exchange.halves["Letters"].answers.items()}


@pytest.mark.parametrize("config", [{}, FEDBUFF, {"training__vectorise": 4}], ids=["sync", "fedbuff", "together"])
def test_each_client_receives_its_own_message_in_one_exchange(tiny, simulate, config):
    """Client k adds k + 1 numbers of value k, and answers with 1 + 4 numbers of 8 bytes."""
    run = simulate(tiny(**LETTERS, **config))
    assert answers(run) == {0: 0.0, 1: 2.0, 2: 6.0, 3: 12.0}
    assert [done.bytes_down for done in run.rounds] == [sum(DOWN)] * 2
    assert [done.bytes_up for done in run.rounds] == [4 * 5 * 8] * 2
    assert run.simulation.runner.host.clients[0].exchanges["Letters"] <= len(run.rounds)


@pytest.mark.parametrize("to", ["everyone", "the same", "tensor"])
def test_to_may_say_the_same_clients(tiny, simulate, to):
    run = simulate(tiny(**LETTERS | {"methods": {"letters:Letters": {"to": to}}}))
    assert answers(run) == {0: 0.0, 1: 2.0, 2: 6.0, 3: 12.0}


def test_a_part_of_the_clients_may_receive_messages(tiny, simulate):
    run = simulate(tiny(**LETTERS | {"methods": {"letters:Letters": {"some": 2}}}))
    assert answers(run) == {2: 6.0, 3: 12.0}
    assert [done.bytes_down for done in run.rounds] == [DOWN[2] + DOWN[3]] * 2


def test_a_host_is_sent_the_messages_of_its_clients(tiny, simulate):
    """The second number of an answer on: the clients whose messages the process has."""
    config = tiny(**LETTERS)
    whole = simulate(config)
    assert whole.simulation.exchange.halves["Letters"].answers[3] == [12.0, 0.0, 1.0, 2.0, 3.0]
    parts = simulate(config, places=[[3, 0], [2], [1]])
    found = parts.simulation.exchange.halves["Letters"].answers
    assert [found[k][0] for k in found] == [0.0, 2.0, 6.0, 12.0]
    assert {k: sorted(answer[1:]) for k, answer in found.items()} == {0: [0, 3], 1: [1], 2: [2], 3: [0, 3]}


def test_the_slowest_transfer_counts_in_virtual_time(tiny, simulate):
    """Of 10 bytes a second: client 3 has 24 bytes down and 40 up. Nothing else is sent, and no sample takes time."""
    schedule = {"bandwidth": 10.0, "speeds": {"kind": "constant", "seconds_per_sample": 1e-12}}
    run = simulate(tiny(**LETTERS, schedule=schedule))
    assert [done.virtual_time for done in run.rounds] == pytest.approx([6.4, 12.8], rel=1e-6)


def test_check_counts_the_messages_of_a_client_like_those_of_the_rehearsed_one(tiny, simulate):
    """Its client 0 has one number and answers with two, so each of four clients counts 4 + 8 bytes down and 16 up."""
    cost = cost_of(tiny(**LETTERS))
    assert dict(cost.down) == {"model": 0, "Letters": 2 * 4 * (4 + 8)}
    assert cost.up["Letters"] == 2 * 4 * 16
    assert cost.unsure_bytes
    assert dict(estimate_run(tiny(**LETTERS)))["bytes down"].startswith("about 96 ")


REFUSED = {
    "others": r"methods\.Letters: Letters\.Server\.end_task \(.*\) yielded a Request with messages for the clients "
    r"\[0, 1, 2, 3\] and to=\(0, 1\), allowed: the same clients in both, or messages alone; server, round 1",
    "absent": r"Request\.messages: Letters\.Server\.end_task \(.*\) returned \[0, 99\], allowed: ids of different "
    r"clients with data now, whole numbers out of server\.present; server, round 1",
    "list": r"methods\.Letters: .* returned a plan with messages of type list, allowed: a dict from ids of clients to "
    "messages; server, round 1",
    "both": r"methods\.Letters: .* returned a plan with a message and messages in a Request, allowed: one of the two; "
    "server, round 1",
}


@pytest.mark.parametrize("to", REFUSED)
def test_what_makes_no_sense_is_refused_in_one_line(tiny, simulate, to):
    with pytest.raises(RunError, match=f"^{REFUSED[to]}$"):
        simulate(tiny(**LETTERS | {"methods": {"letters:Letters": {"to": to}}}))


def test_a_changed_message_is_named_with_its_client(tiny, simulate):
    words = rf"Letters\.Client\.read \({letters.__file__}:\d+\) changed the message\[0\]\['numbers'\] in place"
    with pytest.raises(RunError, match=words):
        simulate(tiny(**LETTERS | {"methods": {"letters:Letters": {"spoils": True}}}))


def test_a_half_that_keeps_its_message_has_a_copy_and_the_message_is_watched_until_the_end():
    half, message, received = OneForAll.Client("OneForAll", OneForAll()), torch.zeros(2), Received()
    half.kept = message
    received.take_own_message(0, message)
    received.release([half])
    half.kept.add_(1)
    assert message.tolist() == [0.0, 0.0]
    message.add_(1)
    assert received.change() == "the message[0]"
    received.forget(0)
    assert received.change() is None


def test_comparisons_of_messages_grow_with_the_clients_and_not_with_their_square(tiny, simulate, monkeypatch):
    """Each client more adds as many comparisons of tensors as the one before."""

    def comparisons(clients):
        count = 0

        def equal(one, other):
            nonlocal count
            count += isinstance(one, torch.Tensor)
            return original(one, other)

        monkeypatch.setattr(shared_memory, "_equal", equal)
        simulate(tiny(**LETTERS | {"clients__count": clients, "dataset__train": 48}))
        return count

    original = shared_memory._equal
    three, six, nine = map(comparisons, (3, 6, 9))
    assert 0 < nine - six == six - three


class OneForAll(Method):
    replies: ClassVar = {"sum": "total"}

    class Client(ClientHalf):
        def read(self, client, message):
            return {"sum": Term(message[0].double())}

    class Server(ServerHalf):
        def end_task(self, server):
            reply = yield Request("read", message={0: torch.tensor(5.0)})
            server.record("sum", reply["sum"])


def test_a_dict_that_is_one_message_for_all_stays_one(tiny, simulate):
    """The message of a request may be a dict from numbers, too."""
    run = simulate(tiny(methods={"test_own_messages:OneForAll": {}}))
    assert run.rounds[-1].records["sum"] == 3 * 5.0
