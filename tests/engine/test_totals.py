"""Totals: sums of whole values with weight 1, of int64 or float64, which no grouping changes."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raysim.api import ClientHalf, Encoded, Method, RunError, Term
from raysim.engine.compatibility import check_methods
from raysim.engine.events import Checkpoint
from raysim.engine.exact_sum import OutOfRange
from raysim.engine.exact_total import MOST, ExactTotal
from raysim.engine.replies import Reply
from raysim.engine.simulation import simulate_here
from raysim.federation.federation import build_federation
from raysim.system.errors import WrongResult

HERE = "test_totals:"
FEDBUFF = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}}
PARTITIONS = [
    {"clients__count": 1},
    {"clients__count": 3},
    {"clients__count": 3, "partition": {"kind": "shards", "shards_per_client": 2}},
    {"clients__count": 5},
    {"clients__count": 4, "partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 1}},
    {"clients__count": 7, "partition": {"kind": "quantity", "alpha": 1.0, "min_samples": 1}},
]


def total_of(values, dtype=torch.float64):
    """The total of single numbers."""
    totals = [ExactTotal.of(torch.tensor([value], dtype=dtype)) for value in values]
    return list(itertools.accumulate(totals, ExactTotal.plus))[-1].value()


def grams(run):
    return run.simulation.exchange.halves["Grams"].grams


def digests(run):
    return [{name: number for name, number in done.records.items() if name.startswith("digest")} for done in run.rounds]


@pytest.mark.parametrize("by_op", [True, False], ids=["op", "phase"])
def test_six_partitions_have_one_gram_matrix(tiny, simulate, by_op):
    """That of all data at once: two tasks of 36 samples, or as much in each of two rounds; the features are x * 2^10.

    A product has at most 2 * 12 bits before the point's 20, and 144 of them have fewer than 53 together.
    """
    shared = {"training__rounds_per_task": 1 if by_op else 2, "dataset__seed": 1}
    found = [
        grams(simulate(tiny(methods={"grams:Grams": {"by_op": by_op}}, **(shared | config)))) for config in PARTITIONS
    ]
    federation = build_federation(tiny(**shared))
    train, expected = federation.dataset.train, 0
    for task in federation.tasks:
        x = train.x[task.train].astype(np.float64)
        x = np.round((x if task.pixels is None else x[:, task.pixels]) * 1024).astype(np.int64)
        rows = np.concatenate([x, 1024 * np.eye(4, dtype=np.int64)[train.y[task.train]]], 1)
        expected = expected + (1 if by_op else 2) * rows.T @ rows
    for one in found:
        assert one["integers"].dtype == torch.int64
        assert np.array_equal(one["integers"].numpy(), expected)
        assert one["floats"].dtype == torch.float64
        assert np.array_equal(one["floats"].numpy(), expected / 2.0**20)


@pytest.mark.parametrize("config", [{}, {"schedule": FEDBUFF, "training__rounds_per_task": 4}], ids=["sync", "fedbuff"])
def test_no_packing_and_no_resume_changes_a_total(tiny, simulate, config):
    """The term `third` is no multiple of a power of two, so that its rounding would show."""
    config = tiny(
        methods={"grams:Grams": {"by_op": False}}, clients__dropout=0.2, checkpoint__every_rounds=1, clients__count=5,
        **config,
    )  # fmt: skip
    whole = simulate(config)
    assert len({str(each) for each in digests(whole)}) == len(whole.rounds)
    if config.schedule.kind == "synchronous":
        for places in ([[0], [1], [2], [3], [4]], [[4, 1, 0], [3, 2]]):
            assert digests(simulate(config, places=places)) == digests(whole)
    federation, resumed = build_federation(config), 0
    for event in whole.events:
        if isinstance(event, Checkpoint):
            (clients,) = event.clients
            again = simulate_here(config, federation, event.server, clients)
            rest = [done.records for done in again.events() if hasattr(done, "records")]
            assert rest == [done.records for done in whole.rounds[event.round :]]
            resumed += 1
    assert resumed >= 3


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**52), 2**52), st.integers(-72, 1)), min_size=1, max_size=8), st.data())
def test_the_grouping_of_values_changes_no_bit_of_their_sum(parts, data):
    """Neighbors are added before, where float64 holds their sum: the total of all is the same, and within one ulp."""
    values = [math.ldexp(number, exponent - 1) for number, exponent in parts]
    values = [value for value in values if (Fraction(value) * 2**76).denominator == 1]
    grouped, left = [], data.draw(st.permutations(values))
    while left:
        together = left[:2]
        exact = sum(map(Fraction, together), Fraction())
        fits = abs(exact) <= 2**53 and Fraction(float(exact)) == exact
        grouped += [float(exact)] if fits else together
        left = left[2:]
    if values:
        one, other, exact = total_of(values), total_of(grouped), sum(map(Fraction, values))
        assert one.equal(other)
        assert abs(Fraction(one.item()) - exact) <= Fraction(math.ulp(float(exact)))
        if Fraction(float(exact)) == exact:
            assert one.item() == float(exact)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6))
def test_integers_are_summed_exactly_or_refused(values):
    """It is the sum that counts: parts of it may be larger."""
    if -(2**63) <= sum(values) < 2**63:
        assert total_of(values, torch.int64).item() == sum(values)
    else:
        with pytest.raises(OutOfRange, match="int64 does not hold"):
            total_of(values, torch.int64)


def test_carries_come_before_the_rounding():
    """600 + 2^-44 + 2^-76 is beyond float64. 300 and 300 are in the second limb, 600 is 1024 - 424 in two."""
    least = 2.0**-44 + 2.0**-76
    assert total_of([300.0, 300.0, least]).equal(total_of([600.0, least]))


def test_a_host_sends_what_it_holds_once():
    reply = Reply(2)
    reply.add_total("it", ExactTotal.of(torch.tensor([1, 2])))
    held = reply.take_sums()
    assert not reply.totals
    reply.add_total("it", ExactTotal.of(torch.tensor([3, 4])))
    reply.merge(held)
    assert reply.totals["it"].value().tolist() == [4, 6]
    assert held.totals["it"].value().tolist() == [1, 2]


def test_a_small_value_survives_large_ones():
    assert total_of([2.0**53, -(2.0**-76), -(2.0**53)]).item() == -(2.0**-76)
    assert (
        total_of([2.0**53] * 3 + [-3.0]).item() == 3 * 2.0**53 - 4
    )  # even among multiples of 4 of which -3 is between
    assert total_of([2.0**-77]).item() == 0.0
    assert total_of([2**63 - 1, 1, -1], torch.int64).item() == 2**63 - 1


def test_a_total_of_too_many_values_is_refused():
    most = ExactTotal.of(torch.full((1,), -(2.0**53), dtype=torch.float64))
    for _ in range(19):
        most = most.plus(most)
    assert most.value().item() == -(2.0**72)
    with pytest.raises(OutOfRange, match=f"a sum of 1,048,576 values, allowed: at most {MOST:,}"):
        most.plus(most)
    reply = Reply(2, totals={"Grams.floats": most})
    words = r"^methods\.Grams\.floats: found a sum of 1,048,576 values, allowed: at most 1,048,575$"
    with pytest.raises(WrongResult, match=words):
        reply.add_total("Grams.floats", ExactTotal(most.limbs, most.count))


@pytest.mark.parametrize("shape", [(), (0, 3), (2, 0), (3, 2, 2)])
def test_a_total_has_the_shape_of_its_values(shape):
    value = torch.arange(math.prod(shape), dtype=torch.float64).view(shape)
    assert ExactTotal.of(value).plus(ExactTotal.of(value)).value().equal(2 * value)


@dataclass(frozen=True)
class Halves(Encoded):
    numbers: torch.Tensor

    def decode(self):
        return self.numbers.double() / 2


SENT = {
    "int32": lambda client: Term(torch.ones(2, dtype=torch.int32)),
    "float32": lambda client: Term(torch.ones(2)),
    "weight": lambda client: Term(torch.ones(2).double(), weight=0.5),
    "dtypes": lambda client: Term(torch.ones(2, dtype=[torch.int64, torch.float64][client.id % 2])),
    "shapes": lambda client: Term(torch.ones(1 + client.id % 2).double()),
    "overflow": lambda client: Term(torch.tensor([0, 2**62])),
    "large": lambda client: Term(torch.tensor([0.0, 1e16]).double()),
    "nan": lambda client: Term(torch.tensor([torch.nan]).double()),
    "encoded": lambda client: Term(Halves(torch.tensor([3, 5], dtype=torch.int8))),
    "parameters": lambda client: Term(torch.arange(len(client.received))),
}


@dataclass(frozen=True, kw_only=True)
class Sends(Method):
    what: str
    replies: ClassVar = {"all": "total"}

    class Client(ClientHalf):
        def finish(self, client, delta):
            return delta, {"all": SENT[self.method.what](client)}

        def encode(self, name, vector, draws):
            assert name == "update"
            return vector

    class Server(Method.Server):
        def update(self, server, delta, reply):
            self.got = reply["all"]
            return delta


REFUSED = {
    "int32": r"methods\.Sends: Sends\.Client\.finish \(.*\) returned all: int32 \[2\], allowed: int64 or float64, "
    "as it is a total; client 0, round 1",
    "float32": r".* returned all: float32 \[2\], allowed: int64 or float64, as it is a total; client 0, round 1",
    "weight": r".* returned all with the weight 0\.5, allowed: None, as it is a total; client 0, round 1",
    "dtypes": r"methods\.Sends\.all: found a total of dtype float64, allowed: int64, which other clients sent; .*",
    "shapes": r"methods\.Sends\.all: found a term of shape \[2\], allowed: \[1\], which other clients sent; .*",
    "overflow": r"methods\.Sends\.all: found a sum that int64 does not hold, allowed: from -2\^63 to 2\^63 - 1; or "
    "float64; server, round 1",
    "large": r"client 0 diverged in round 1 \(Sends\), .*Sends\.all: found 1e\+16, allowed: finite and at most .*",
    "nan": r"client 0 diverged in round 1 \(Sends\), .*in its Sends\.all: found nan, allowed: finite .*",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_total_may_hold_is_refused_in_one_line(tiny, simulate, what):
    with pytest.raises(RunError, match=rf"^{REFUSED[what]}$"):
        simulate(tiny(methods={f"{HERE}Sends": {"what": what}}))


def test_a_total_is_of_what_an_encoded_term_decodes_to_and_no_method_encodes_it(tiny, simulate):
    """Three clients send 3 / 2 and 5 / 2 in two bytes each, or integers as long as the model."""
    run = simulate(tiny(methods={f"{HERE}Sends": {"what": "encoded"}}))
    assert run.simulation.exchange.halves["Sends"].got.tolist() == [4.5, 7.5]
    assert run.rounds[0].bytes_up == 3 * (59 * 4 + 2)
    run = simulate(tiny(methods={f"{HERE}Sends": {"what": "parameters"}}))
    assert run.simulation.exchange.halves["Sends"].got.equal(3 * torch.arange(59))
    assert run.rounds[0].bytes_up == 3 * 59 * (4 + 8)
    check_methods(tiny(methods={"grams:Grams": {}}))
