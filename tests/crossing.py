"""Methods whose halves change, or keep and change later, what crosses between server and clients."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from raysim.api import Broadcast, ClientHalf, Method, Request, ServerHalf, Term, Weights


@dataclass(frozen=True, kw_only=True)
class Changes(Method):
    """Its client half changes in place what it receives."""

    what: str = "message"

    replies: ClassVar = {"mean": "mean"}

    class Client(ClientHalf):
        method: "Changes"
        seen: Any = None

        def start(self, client, message):
            match self.method.what:
                case "message":
                    message["list"][1].add_(1)
                case "data":
                    message["list"][1].data.add_(1)
                case "key":
                    message["more"] = 1
                case "array":
                    message["array"][0] = 5
                case "set":
                    message["set"].add(2)
                case "later":
                    self.seen = message["list"]

        def penalty(self, step):
            if self.method.what == "later" and step.number == 2:
                self.seen[1].add_(1)
            return step.loss.new_zeros(())

        def ask(self, client, message):
            if self.method.what == "ask":
                message["w"].mul_(2)
            return {"mean": Term(message["w"])}

        def plan(self, client, message):
            gradient = yield client.samples(client.arrived[:2])
            if self.method.what == "plan":
                message["w"].mul_(2)
            return {"mean": Term(gradient.norm())}

    class Server(ServerHalf):
        method: "Changes"

        def announce(self, server):
            return {"list": ["x", torch.zeros(2)], "array": np.zeros(2), "set": {1}, "nan": torch.tensor(math.nan)}, ()

        def conclude(self, server):
            yield Request("ask", {"w": torch.ones(2)})
            yield Request("plan", {"w": torch.ones(2)})


@dataclass(frozen=True, kw_only=True)
class Keeps(Method):
    """Halves keep what they receive, and change what they have kept in later rounds."""

    what: str = "message"

    replies: ClassVar = {"terms": "by_client", "mean": "mean"}

    class Client(ClientHalf):
        method: "Keeps"
        mean: Any = None

        def start(self, client, message):
            found = {
                "message": message,
                "received": client.received,
                "broadcast": client.from_server(self.name),
                "view": message[:1],
            }[self.method.what]
            if self.mean is None:
                self.mean = found  # no copy
            else:
                self.mean.mul_(0.5).add_(found)
            client.record("kept", float(self.mean.double().sum()))

        def gradient(self, step, gradient):
            return gradient.mul(1 + 0.1 * torch.tanh(self.mean.sum()))

        def finish(self, client, delta):
            return delta, {"terms": Term(self.mean), "mean": Term(self.mean)}

        def look(self, client, message):
            return {"terms": Term(client.from_server(self.name).clone()), "mean": Term(message)}

    class Server(ServerHalf):
        method: "Keeps"

        def __init__(self, name, method):
            super().__init__(name, method)
            self.value = torch.ones(3)

        def announce(self, server):
            return self.value, [Broadcast(self.name, server.round, self.value)]

        def update(self, server, delta, reply):
            for term in (*reply["terms"].values(), reply["mean"]):
                term.zero_()  # the client's own tensor stays
            self.value.add_(delta.parameters[:3])  # in place, after it was sent
            return delta

        def conclude(self, server):
            reply = yield Request("look", self.value)
            self.value.mul_(2)  # in place, after it was sent
            server.record("seen", float(sum(part.double().sum() for part in reply["terms"].values())))
            server.record("told", float(reply["mean"].double().sum()))

        def evaluated(self, server):
            return Weights(self.average(server), server.buffers, server.integers)

        def average(self, server):
            self.moving = server.parameters.clone() if not hasattr(self, "moving") else self.moving.mul_(0.5)
            return self.moving
