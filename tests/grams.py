"""Methods of tests that send sums of their data and no model: Gram matrices, and messages for each client."""

import zlib
from dataclasses import dataclass
from typing import ClassVar

import torch

from raysim.api import ClientHalf, Delta, Method, Request, ServerHalf, Term

GRID = 2**10  # features are rounded to multiples of 1 / GRID


def rows_of(client):
    """The client's present samples on the grid, in float64, with their labels' columns beside them."""
    x, y = client.samples(client.arrived)
    columns = torch.nn.functional.one_hot(y, client.classes)
    return torch.cat([(x.double() * GRID).round() / GRID, columns.double()], 1)


def grams_of(client):
    rows = rows_of(client)
    whole = (rows * GRID).to(torch.int64)
    return {"floats": Term(rows.T @ rows), "integers": Term(whole.T @ whole), "third": Term(rows.sum(0).sum() / 3)}


@dataclass(frozen=True, kw_only=True)
class Grams(Method):
    """Gram matrices of all data, from an op at a task's end or from every local training; the third of a sum."""

    by_op: bool = True
    sends_model: ClassVar = False
    replies: ClassVar = {"floats": "total", "integers": "total", "third": "total"}

    class Client(ClientHalf):
        def train(self, client):
            return Delta(torch.zeros_like(client.received), torch.zeros_like(client.model.buffers))

        def finish(self, client, delta):
            return delta, {} if self.method.by_op else grams_of(client)

        def sums(self, client, message):
            return grams_of(client)

    class Server(ServerHalf):
        def __init__(self, name, method):
            super().__init__(name, method)
            self.grams = {}

        def update(self, server, delta, reply):
            self.add(server, reply)
            return delta

        def end_task(self, server):
            if self.method.by_op:
                self.add(server, (yield Request("sums", to="everyone")))

        def add(self, server, reply):
            for name, gram in reply.items():
                self.grams[name] = self.grams.get(name, 0) + gram
                server.record(f"digest of {name}", zlib.crc32(self.grams[name].numpy().tobytes()))


@dataclass(frozen=True, kw_only=True)
class Statistics(Method):
    """Clients train in the first `training` tasks, and send totals of their data in all later ones."""

    training: int = 0
    ones: bool = False
    moves: bool = False
    replies: ClassVar = {"rows": "total", "count": "total"}

    class Client(ClientHalf):
        def start(self, client, message):
            self.scale = message

        def finish(self, client, delta):
            if client.steps:
                ones = Delta(torch.ones_like(delta.parameters), delta.buffers)
                return ones if self.method.ones else delta, {}
            assert not client.model.module.training
            return delta, {"rows": Term(self.scale * rows_of(client).sum(0)), "count": Term(torch.tensor(1))}

    class Server(ServerHalf):
        rows = 0.0

        def trains(self, server):
            server.record("first", server.parameters[0])
            server.record("model", zlib.crc32(server.parameters.numpy().tobytes()))
            return server.task < self.method.training

        def announce(self, server):
            return torch.tensor(2.0), ()

        def update(self, server, delta, reply):
            if "rows" in reply:
                self.rows = self.rows + reply["rows"]
                server.record("digest", zlib.crc32(self.rows.numpy().tobytes()))
                server.record("clients", reply["count"])
            return Delta(delta.parameters + 1.0, delta.buffers) if self.method.moves else delta


@dataclass(frozen=True, kw_only=True)
class NoModel(Statistics):
    """Nobody trains and no model is sent."""

    sends_model: ClassVar = False


@dataclass(frozen=True, kw_only=True)
class Undecided(Statistics):
    class Server(ServerHalf):
        def trains(self, server):
            return None
