"""Encoded vectors on their way: exact sums of what they decode to, sent as they are, and counted as they are sent."""

import itertools
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from raysim.algorithms.quantize import Quantize
from raysim.algorithms.top_k import keep_largest
from raysim.api import ClientHalf, Delta, Encoded, Method, Term
from raysim.engine.collection import ClientUpdate, Collection
from raysim.engine.compatibility import make_methods
from raysim.engine.exact_sum import DELTAS, WIDE, ExactSum
from raysim.engine.exchange import expected_bytes
from raysim.engine.replies import Reply
from raysim.system.errors import Diverged, RunError
from raysim.system.state import encode

NONE = torch.zeros(0)
FEDBUFF = {"kind": "asynchronous", "concurrency": 2, "buffer_size": 1, "bandwidth": 100.0}


@dataclass(frozen=True)
class Halves(Encoded):
    """Twice what is sent, and a tensor for the noughts behind it."""

    doubled: torch.Tensor
    noughts: torch.Tensor

    def decode(self):
        return torch.cat([self.doubled / 2, self.noughts])


def vectors(count):
    draws = torch.Generator().manual_seed(3)
    return [torch.randn(6, generator=draws) / 3 for _ in range(count)]


@pytest.mark.parametrize("grid", [DELTAS, WIDE], ids=["deltas", "wide"])
def test_in_any_order_and_packing_it_is_the_sum_of_what_they_decode_to(grid):
    """Three clients on hosts of one, two or three, one of whom may send a vector as it is."""
    values, weights = vectors(3), [0.25, 0.45, 0.3]
    for plain in (None, 0, 2):
        sent = [v if k == plain else keep_largest(v, 2) for k, v in enumerate(values)]
        oracle = ExactSum(grid)
        for value, weight in zip(sent, weights, strict=True):
            oracle.add(value if isinstance(value, torch.Tensor) else value.decode(), weight)
        for order in itertools.permutations(range(3)):
            for hosts in ([order], [order[:1], order[1:]], [order[:2], order[2:]], [[k] for k in order]):
                total, merged = ExactSum(grid), ExactSum(grid)
                for host in hosts:
                    part = ExactSum(grid)
                    for k in host:
                        part.add(sent[k], weights[k])
                    merged.merge(part)
                total.merge(merged)
                assert total.weight == oracle.weight
                assert torch.equal(total.mean(), oracle.mean())
                assert torch.equal(total.limbs, oracle.limbs)


def test_the_weights_of_encoded_ones_are_checked_too():
    sums = ExactSum(DELTAS)
    sums.add(keep_largest(torch.ones(3), 1), 0.75)
    other = ExactSum(DELTAS)
    other.add(keep_largest(torch.ones(3), 1), 0.75)
    with pytest.raises(ValueError, match="a sum of at most 1"):
        sums.merge(other)


def reply_of(sent):
    collected, zeros = Collection(len(sent), single=len(sent) == 1), [("", Delta(torch.zeros(6), NONE))]
    for number, value in sent.items():
        collected.take_update(ClientUpdate(number, 1 / len(sent), f"client {number}", zeros, NONE, encoded=value))
        collected.take_term(number, "m.mean", Term(value), "mean", 1 / len(sent), "")
    return collected.settle()


def test_one_clients_reply_is_as_it_was_sent_and_counted_so():
    """2 of 6 entries: 8 bytes each, twice. A host of two clients says the sum, integers of 8 bytes for each of 6."""
    one, two = ({k: keep_largest(v, 2) for k, v in enumerate(vectors(count))} for count in (1, 2))
    reply = reply_of(one)
    assert [*reply.sums] == ["parameters", "buffers", "m.mean"]
    assert all(total.single is not None for total in reply.sums.values())
    assert reply.sums["parameters"].limbs is None
    assert reply.sums["parameters"].single[0].nbytes == 16
    assert reply.bytes_up == {0: 32}
    both = reply_of(two)
    assert both.sums["parameters"].single is None
    assert both.sums["parameters"].limbs.nbytes == 6 * 8
    assert both.bytes_up == {0: 32, 1: 32}


def test_a_vector_that_its_host_overwrites_is_sent_as_it_was():
    value = torch.arange(6.0)
    collected = Collection(1)
    collected.take_term(0, "m.mean", Term(Halves(value[:3], value[3:])), "mean", 1.0, "")
    value.zero_()
    assert collected.reply.of("m", {"mean": "mean"}, torch.float32)["mean"].tolist() == [0.0, 0.5, 1.0, 3.0, 4.0, 5.0]


def test_by_client_it_is_decoded():
    collected = Collection(1)
    collected.take_term(0, "m.each", Term(keep_largest(torch.tensor([1.0, 3.0]), 1)), "by_client", 1.0, "")
    reply = collected.settle()
    assert reply.by_client["m.each"][0].tolist() == [0.0, 3.0]
    assert reply.bytes_up == {0: 8}


def test_a_checkpoint_keeps_a_reply_decoded():
    reply = reply_of({0: keep_largest(torch.arange(6.0), 2)})
    state = reply.state()
    assert encode(state)  # plain data alone
    assert Reply.restored(state).delta(torch.float32).parameters.tolist() == [0.0, 0.0, 0.0, 0.0, 4.0, 5.0]


def test_a_checkpoint_of_an_earlier_version_has_more_keys():
    """Until the reply and what a host collects were two classes, a reply had `unchecked` and `single`, too."""
    reply = reply_of({0: keep_largest(torch.arange(6.0), 2)})
    earlier = {**reply.state(), "unchecked": [], "single": True}
    assert Reply.restored(earlier).delta(torch.float32).parameters.tolist() == [0.0, 0.0, 0.0, 0.0, 4.0, 5.0]
    assert Reply.restored(earlier).bytes_up == {0: 32}


def test_what_is_not_finite_once_decoded_is_refused():
    with pytest.raises(Diverged, match="client 0, in the update of its parameters: found nan, allowed: finite"):
        reply_of({0: keep_largest(torch.tensor([0.0, 0.0, float("nan"), 0.0, 0.0, 0.0]), 1)})


@pytest.mark.parametrize(("methods", "sent"), [({}, 236), ({"top_k": {"fraction": 0.1}}, 48), ({"quantize": {}}, 63)])
def test_virtual_time_goes_by_encoded_bytes(tiny, simulate, methods, sent):
    """59 float32 come down, 236 bytes; up go as many, 6 entries of 8 bytes, or 59 codes and a norm.

    12 samples take 0.012 virtual seconds, and 100 bytes one. Two clients at a time, an update for each that is back:
    after 4 updates two turns are over.
    """
    run = simulate(tiny(methods=methods, schedule=FEDBUFF))
    turn = 12 * 0.001 + (236 + sent) / 100
    assert run.rounds[-1].virtual_time == pytest.approx(2 * turn)
    assert run.simulation.exchange.traffic.up == 4 * sent


def test_a_term_that_virtual_time_knows_of_is_encoded_where_a_method_does_so(tiny, simulate):
    """Fed-A-GEM's memory gradient, as long as the model: up 2 x 48 bytes, or 48 + 236; down the same two, whole."""
    gem = {"fed_a_gem": {"reference": "with_update"}}
    for vectors_too, sent in (("all", 2 * 48), ("update", 48 + 236)):
        methods = gem | {"top_k": {"fraction": 0.1, "vectors": vectors_too}}
        config = tiny(methods=methods, schedule=FEDBUFF)
        exchange = simulate(config).simulation.exchange
        assert expected_bytes(exchange.server, make_methods(config)) == 2 * 236 + sent


@pytest.mark.parametrize("schedule", [{"kind": "synchronous"}, FEDBUFF], ids=["synchronous", "asynchronous"])
def test_in_turns_and_out_of_step_no_packing_moves_a_bit(tiny, simulate, schedule):
    for methods in ({"top_k": {"fraction": 0.2}}, {"quantize": {"bits": 2, "feedback": True}}):
        more = {} if schedule is FEDBUFF else {"participation": {"count": 2}}
        config = tiny(methods=methods, schedule=schedule, **more)
        runs = [simulate(config, places=places) for places in (None, [[0], [1], [2]], [[1], [2, 0]])]
        assert len({run.sha256 for run in runs}) == 1
        assert len({run.simulation.exchange.traffic.up for run in runs}) == 1


@dataclass(frozen=True, kw_only=True)
class Shorter(Method):
    """Loses an entry."""

    class Client(ClientHalf):
        def encode(self, name, vector, draws):
            return Halves(2 * vector[1:], vector[:0])


@dataclass(frozen=True, kw_only=True)
class Doubling(Method):
    """Sends its own term encoded, and all of the update."""

    replies: ClassVar = {"own": "mean"}

    class Client(ClientHalf):
        def finish(self, client, delta):
            return delta, {"own": Term(Halves(2 * delta.parameters[:5], delta.parameters[5:]))}

        def encode(self, name, vector, draws):
            assert name == "update"
            return vector


def test_an_encoding_of_ones_own_that_loses_an_entry_is_named(tiny, simulate):
    with pytest.raises(RunError) as found:
        simulate(tiny(methods={"test_encoded:Shorter": {}}))
    said = str(found.value)
    assert "Shorter: Shorter.Client.encode (" in said
    assert "test_encoded.py:" in said
    assert "returned a value that decodes to float32 [58], allowed: a value that decodes to float32 [59]" in said
    assert said.endswith("client 0, round 1")


def test_a_term_that_a_method_encodes_itself_is_not_encoded_again(tiny, simulate):
    assert simulate(tiny(methods={"test_encoded:Doubling": {}})).rounds[0].bytes_up == 3 * 2 * 236


def test_the_draws_of_two_vectors_of_a_phase_are_different(tiny, simulate, monkeypatch):
    """And of two phases, and of two clients: 3 clients, 4 rounds, the update and SCAFFOLD's change."""
    seen, original = [], Quantize.Client.encode

    def noted(self, name, vector, draws):
        seen.append((name, draws.bit_generator.state["state"]["state"]))
        return original(self, name, vector, draws)

    monkeypatch.setattr(Quantize.Client, "encode", noted)
    simulate(tiny(methods={"scaffold": {}, "quantize": {"vectors": "all"}}))
    assert [name for name, _ in seen] == ["update", "scaffold.variate_change"] * 12
    assert len({state for _, state in seen}) == 24
