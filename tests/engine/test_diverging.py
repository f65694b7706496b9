"""A run that diverges stops before anything that is not finite is kept, and names who, when and which methods."""

import json
import math
import re
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

import raysim
from raysim.api import ClientHalf, Delta, Method, ServerHalf, Term
from raysim.engine.collection import Collection
from raysim.engine.orders import Call, Order, RoundInfo, Train
from raysim.engine.work import Work
from raysim.system.errors import Diverged

LAST = 4  # rounds of two tasks


@dataclass(frozen=True, kw_only=True)
class Overflow(Method):
    """Overflow: the server's half makes what is not finite of the delta in one round."""

    at: int = 1
    part: str = "parameters"

    class Server(ServerHalf):
        def update(self, server, delta, reply):
            if server.round != self.method.at:
                return delta
            worth = {"parameters": 1.0, "buffers": 1.0, self.method.part: math.inf}
            return Delta(delta.parameters + worth["parameters"], delta.buffers * worth["buffers"])


@dataclass(frozen=True, kw_only=True)
class Told(Method):
    """Told: client 1 sends, by client, what its key says."""

    value: str = "1.0"
    replies: ClassVar = {"note": "by_client"}

    class Client(ClientHalf):
        def finish(self, client, delta):
            value = float(self.method.value) if client.id == 1 else 0.0
            return delta, {"note": Term(torch.tensor([1.0, value]))}


@pytest.mark.parametrize("at", [1, LAST])
def test_a_model_that_is_not_finite_is_neither_kept_nor_the_result(at, tiny, tmp_path):
    """After round 1 a checkpoint would keep it, after the last one model.pt."""
    out = tmp_path / "out"
    methods = {"fedprox": {"mu": 0.1}, "test_diverging:Overflow": {"at": at}}
    config = tiny(methods=methods, checkpoint={"every_rounds": 1}, logging={"tensorboard": False})
    where = rf"^the server diverged in round {at} \(fedprox, Overflow\): found inf in the parameters of its new model"
    where += rf", first in the delta from Overflow.Server.update \({re.escape(__file__)}:\d+\), allowed: finite"
    with pytest.raises(Diverged, match=where):
        raysim.run(config, out=out, local=True)
    assert json.loads((out / "summary.json").read_text())["status"] == "failed"
    assert not (out / "model.pt").exists()
    kept = sorted(path.name for path in out.glob("checkpoints/0*"))
    assert kept == ([] if at == 1 else ["000002", "000003"])


def test_nor_are_buffers(tiny, simulate):
    config = tiny(methods={"test_diverging:Overflow": {"part": "buffers"}}, model__batch_norm=True)
    with pytest.raises(
        Diverged, match=r"in round 1 \(Overflow\): found inf in the buffers of its new model, first in the delta from O"
    ):
        simulate(config)


def unscaled(shape, classes):
    """A BatchNorm as the first layer, on inputs of about 1e6, whose variance is about 1e12."""
    return nn.Sequential(Raw(), nn.BatchNorm1d(shape[0]), nn.Linear(shape[0], classes))


class Raw(nn.Module):
    """Inputs times a million."""

    def forward(self, x):
        return x * 1e6


def test_statistics_of_large_inputs_are_named_as_such(tiny, simulate):
    words = (
        r"update of its buffers.*: found \d.*, allowed: finite and at most .*; or smaller inputs, as by dataset\.norm"
    )
    with pytest.raises(Diverged, match=words):
        simulate(tiny(model={"name": "test_diverging:unscaled"}))


def test_a_server_optimizer_that_overflows_is_found(tiny, simulate):
    """Single precision ends at 3.4e38: a change of 4 or more times 1e38 is over it."""
    with pytest.raises(Diverged, match=r"diverged in round \d \(fedavgm\)"):
        simulate(tiny(methods={"fedavgm": {"lr": 1e38}}, training__optimizer={"lr": 10.0}))


def test_what_is_kept_by_client_is_checked(tiny, simulate):
    simulate(tiny(methods={"test_diverging:Told": {"value": "3e38"}}))
    for value, found in (("nan", "nan"), ("-inf", "inf")):
        where = r"^client 1 diverged in round 1 \(Told\), in the terms from Told.Client.finish "
        where += rf"\({re.escape(__file__)}:\d+\), in its Told.note: found {found}, allowed: finite; a smaller"
        with pytest.raises(Diverged, match=where):
            simulate(tiny(methods={"test_diverging:Told": {"value": value}}))


def test_integers_by_client_are_finite():
    collected = Collection(1)
    for name, value in (("count", torch.tensor([2**40])), ("seen", torch.tensor([True, False]))):
        collected.take_term(0, name, Term(value), "by_client", 1.0, "nowhere")
    assert set(collected.reply.by_client) == {"count", "seen"}


def test_all_methods_are_named(tiny, host_of, quiet_torch):
    """A training order is all methods' own, an op one method's."""
    host = host_of(tiny(methods={"er": {}, "fedprox": {}}))
    assert _work(Train()).where(host.clients[2]) == "client 2 diverged in round 7 (er, fedprox)"
    assert _work(Call("scaffold", "op")).where(host.clients[2]) == "client 2 diverged in round 7 (scaffold.op)"


def _work(operation):
    return Work(Order(operation, (2,), {2: 1.0}, 1, RoundInfo(7, 0, 0.1)), {}, Collection(1))
