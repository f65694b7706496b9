"""Draws of user-defined code outside a named stream: they depend on no host and no neighbor, or they are refused."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from raysim.api import ClientHalf, Method, Request, RunError, ServerHalf, Term

HERE = "test_unnamed_draws:"
PLACES = (None, [[0], [1], [2]], [[2, 1], [0]])


class Asks(ServerHalf):
    def conclude(self, server):
        reply = yield Request("ask")
        server.record("sum", reply["v"].sum())


@dataclass(frozen=True, kw_only=True)
class DrawsToEncode(Method):
    """Its noise is torch's own, in an exchange."""

    replies: ClassVar = {"v": "mean"}

    class Client(ClientHalf):
        def encode(self, name, vector, draws):
            return vector + torch.rand_like(vector)

        def ask(self, client, message):
            return {"v": Term(torch.zeros_like(client.model.parameters))}

    Server = Asks


@dataclass(frozen=True, kw_only=True)
class DrawsToReceive(Method):
    """It changes the model that an exchange begins with."""

    replies: ClassVar = {"v": "mean"}

    class Client(ClientHalf):
        def receive(self, client):
            client.model.parameters.add_(torch.rand_like(client.model.parameters))

        def ask(self, client, message):
            return {"v": Term(client.model.parameters.clone())}

    Server = Asks


@pytest.mark.parametrize("method", ["DrawsToEncode", "DrawsToReceive"])
def test_hooks_in_exchanges_draw_from_the_clients_streams(tiny, simulate, method):
    config = tiny(methods={HERE + method: {}})
    found = [[done.records["sum"] for done in simulate(config, places=places).rounds] for places in PLACES]
    assert found[0] == found[1] == found[2]
    assert len({*found[0]}) == 4


def random_samples(client, start):
    """A stream that draws from torch's global generator."""
    while True:
        yield torch.randn(6).numpy().astype(np.float32), 0


def test_a_stream_that_draws_globally_is_refused(tiny, simulate):
    windows = {"window": 6, "windows": 2, "rounds_per_window": 1, "stream": f"{HERE}random_samples"}
    scenario = {"kind": "class_incremental", "tasks": 2, "boundaries": {"asynchronous": windows}}
    with pytest.raises(
        RunError, match=r"asynchronous.stream used torch.*, which the whole process shares; allowed: its"
    ):
        simulate(tiny(scenario=scenario, training={"batch_size": 4, "optimizer": {"lr": 0.1}}))


class AlwaysDrops(nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.layer = nn.Linear(features, classes)

    def forward(self, x):
        return self.layer(functional.dropout(x, 0.5))  # also in evaluation mode


def always_drops(shape, classes):
    return AlwaysDrops(shape[0], classes)


def test_a_model_that_draws_in_evaluations_is_refused(tiny, simulate):
    with pytest.raises(RunError, match=r"in an evaluation used torch.*, which the whole process shares"):
        simulate(tiny(model={"name": f"{HERE}always_drops"}))


def random_rate(lr, progress):
    return lr * float(np.random.rand())


def test_a_learning_rate_that_is_drawn_is_refused(tiny, simulate):
    with pytest.raises(
        RunError, match=r"training.lr_decay used NumPy's global generator, which the whole process shares"
    ):
        simulate(tiny(training__lr_decay=f"{HERE}random_rate"))
