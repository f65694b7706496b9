"""Methods of the tests' own with auxiliary networks: an adversarial pair and a normalizing flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from raysim.api import Broadcast, Client, ClientHalf, LocalAdam, LocalSgd, Method, Server, ServerHalf, Step, Term

NOISE = 3


def generator(features: int) -> nn.Module:
    return nn.Sequential(nn.Linear(NOISE, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, features))


def critic(features: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 8), nn.LeakyReLU(0.2), nn.Dropout(0.3), nn.Linear(8, 1))


@dataclass(frozen=True, kw_only=True)
class Adversarial(Method):
    """A generator that the server trains and sends, and a critic that each client keeps for itself."""

    strength: float = 0.1

    needs: ClassVar = frozenset({"server_boundaries"})

    class Client(ClientHalf):
        method: Adversarial

        def start(self, client: Client, message: bool) -> None:
            self.taught = message

        def penalty(self, step: Step) -> torch.Tensor:
            """Train the critic for a step on real and drawn rows; return the model's entropy on drawn rows."""
            client = step.client
            if not self.taught:
                return step.loss.new_zeros(())
            features = step.x.shape[1]
            drawn = client.auxiliary_network("generator", lambda: generator(features), client.from_server(self.name))
            judge = client.auxiliary_network("critic", lambda: critic(features))
            with client.rng_scope(self.name):
                drawn.module.eval()  # a batch may have one row
                rows = drawn(torch.randn(len(step.x), NOISE)).detach()
                judged = judge(torch.cat([step.x, rows])).squeeze(1)
            real = torch.cat([torch.ones(len(step.x)), torch.zeros(len(rows))])
            judge.gradient.zero_()
            functional.binary_cross_entropy_with_logits(judged, real).backward()
            client.new_optimizer().step(judge.parameters, judge.gradient, client.lr)
            client.record("critic", judge.parameters.norm())
            with client.rng_scope(self.name):
                logits = client.model(rows)
            fooled = judged[len(step.x) :].detach().sigmoid().mean()
            return self.method.strength * fooled * -functional.log_softmax(logits, 1).mean()

    class Server(ServerHalf):
        method: Adversarial
        version: int = 0

        def announce(self, server: Server) -> tuple[bool, list[Broadcast]]:
            if not self.version:
                return False, []
            made = server.auxiliary_network("generator", lambda: generator(*server.shape))
            return True, [Broadcast(self.name, self.version, made.weights())]

        def end_task(self, server: Server) -> None:
            made = server.auxiliary_network("generator", lambda: generator(*server.shape))
            teacher = server.network_at()
            adam = LocalAdam((0.5, 0.999), 1e-8, 0.0, decoupled=False)
            with server.rng_scope(self.name):
                for step in (0, 1, 2, 0, 1, 2):
                    labels = torch.full((8,), step % server.classes)
                    loss = functional.cross_entropy(teacher(made(torch.randn(8, NOISE))), labels)
                    made.gradient.zero_()
                    loss.backward()
                    adam.step(made.parameters, made.gradient, 0.01)
            server.record("server_steps", 6)
            server.record("loss_of_generator", loss)
            self.version += 1


class Coupling(nn.Module):
    """One affine coupling layer (Dinh et al., ICLR 2017): the second half of x is scaled and moved by the first."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.half = features // 2
        self.net = nn.Sequential(nn.Linear(self.half, 8), nn.Tanh(), nn.Linear(8, 2 * (features - self.half)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return log p(x) [n] for a standard normal z."""
        first, second = x[:, : self.half], x[:, self.half :]
        log_scale, shift = self.net(first).tanh().chunk(2, 1)
        z = torch.cat([first, (second - shift) * (-log_scale).exp()], 1)
        return -0.5 * (z**2).sum(1) - log_scale.sum(1)


@dataclass(frozen=True, kw_only=True)
class Flow(Method):
    """A flow over the inputs: clients train it beside the model, the server averages it."""

    replies: ClassVar = {"change": "mean"}

    class Client(ClientHalf):
        method: Flow

        def penalty(self, step: Step) -> torch.Tensor:
            flow = self._flow(step.client, step.x.shape[1])
            flow.gradient.zero_()
            likelihood = flow(step.x).mean()
            (-likelihood).backward()
            LocalSgd(0.0, False, 0.0).step(flow.parameters, flow.gradient, step.client.lr)
            return 0.01 * (step.logits.logsumexp(1) * flow(step.x).detach().sigmoid()).mean()

        def finish(self, client, delta):
            flow = self._flow(client, *client.data.shape)
            return delta, {"change": Term(flow.parameters - client.from_server(self.name).parameters)}

        def _flow(self, client: Client, features: int):
            return client.auxiliary_network("flow", lambda: Coupling(features), client.from_server(self.name))

    class Server(ServerHalf):
        method: Flow

        def announce(self, server: Server) -> tuple[None, list[Broadcast]]:
            flow = server.auxiliary_network("flow", lambda: Coupling(*server.shape))
            return None, [Broadcast(self.name, server.version, flow.weights())]

        def update(self, server, delta, reply):
            if "change" in reply:
                server.auxiliary_network("flow", lambda: Coupling(*server.shape)).parameters.add_(reply["change"])
            return delta
