"""DANN+FL: learn features that do not distinguish cached samples from new ones. Ganin et al., JMLR 2016.

"Domain-adversarial training of neural networks", arXiv 1505.07818. It is a baseline of Re-Fed's tables (Li et al., CVPR
2024), which say "DANN in local training" and no more. Here a client's two domains are its cache of earlier tasks, drawn
at random as in the tables' FedAvg, and the new data. A discriminator D learns to distinguish them by the input of the
network's head, f(x). The features f learn that it cannot:

    D: min L_d        network: min CE - lambda L_d,   lambda = strength (2 / (1 + exp(-10 p)) - 1)

with p the part of the task's rounds that is over. D is averaged over clients as the model is, and takes no part in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, prod
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge, doc
from torch import Tensor
from torch.nn import functional

from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    Delta,
    MemoryUse,
    Method,
    Server,
    ServerHalf,
    Setting,
    Step,
    Term,
    Terms,
    to_device,
)


@dataclass(frozen=True, kw_only=True)
class Dann(Method):
    """DANN+FL: features that do not distinguish cached samples from new ones (Ganin et al., JMLR 2016, 1505.07818)."""

    strength: Annotated[float, Ge(0), doc("what lambda grows to in a task")] = 1.0
    hidden: Annotated[Sequence[Annotated[int, Ge(1)]], doc("widths of the discriminator's layers")] = (100, 100)

    needs: ClassVar = frozenset({"earlier_logits"})
    memory: ClassVar = MemoryUse(policies=("importance",), fills=("boundary",), per=("client",))
    replies: ClassVar = {"discriminator": "mean"}

    def head_parts(self) -> int:
        """Return 1: the penalty reads what enters the head."""
        return 1

    def refusal(self, setting: Setting) -> str | None:
        """Refuse outputs at several positions of a sample: they have no single feature vector."""
        if not setting.positions:
            return None
        return (
            "looks at one feature vector of each sample, allowed: an objective with one output for each, not next_token"
        )

    def shapes(self, d: int) -> list[tuple[int, ...]]:
        """Return the shapes of the discriminator's weights and biases, layer by layer, on features of size d."""
        return [
            shape for inputs, outputs in pairwise([d, *self.hidden, 1]) for shape in ((outputs, inputs), (outputs,))
        ]

    class Client(ClientHalf):
        """Caches at random. Trains the discriminator, and the model against it."""

        features: ClassVar = True
        method: Dann
        strength: float = 0.0
        discriminator: Tensor | None = None  # [P_d], in a phase with cached samples

        def begin_task(self, client: Client) -> None:
            """Keep a random part of the stored samples: the last cache, and what arrived since it was drawn."""
            assert client.memory is not None
            stored, room = torch.cat([client.memory.entries().positions, client.finished]), client.memory.kind.capacity
            if len(stored) > room:
                stored = stored[torch.from_numpy(client.generator(self.name).permutation(len(stored)))]
            client.memory.replace(stored[:room].sort().values)

        def start(self, client: Client, message: int | None) -> None:
            """Load the discriminator if there are cached samples, and compute lambda."""
            assert client.memory is not None
            self.discriminator = None
            if message is not None and len(client.memory):
                rounds = client.shared.training.rounds_per_task
                assert rounds is not None  # as clients know boundaries
                over = min(max((client.round - 1 - message) / rounds, 0.0), 1.0)
                self.strength = self.method.strength * (2 / (1 + exp(-10 * over)) - 1)
                self.discriminator = client.from_server(self.name).clone()

        def samples(self, client: Client) -> Tensor:
            """Return the cache and what has arrived."""
            assert client.memory is not None
            return torch.cat([client.memory.entries().positions, client.arrived])

        def penalty(self, step: Step) -> Tensor:
            """Return -lambda L_d, and take the discriminator's own step on L_d, of plain SGD at the clients' rate."""
            if self.discriminator is None or not len(step.positions):
                return step.loss.new_zeros(())
            weights = self.discriminator.requires_grad_()
            new = (step.positions >= step.client.arrived[0]).to(step.features.dtype)  # what is cached came before
            new = to_device(new, step.features.device)
            told = tell_apart(step.features[: len(new)], weights, self.method.shapes(step.features.shape[1]))
            loss = functional.binary_cross_entropy_with_logits(told, new)
            (slope,) = torch.autograd.grad(loss, weights, retain_graph=True)
            self.discriminator = weights.detach() - step.client.lr * slope
            return -self.strength * loss

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send the discriminator's change, if the client trained it."""
            if self.discriminator is None:
                return delta, {}
            change = self.discriminator.detach() - client.from_server(self.name)
            self.discriminator = None
            return delta, {"discriminator": Term(change)}

    class Server(ServerHalf):
        """Keeps and broadcasts the discriminator, from task 2 on."""

        method: Dann
        version: int = 0
        discriminator: Tensor | None = None

        def announce(self, server: Server) -> tuple[int | None, Sequence[Broadcast]]:
            """Say after which round the task began; broadcast the discriminator."""
            if not server.task:
                return None, ()
            if self.discriminator is None:
                self.discriminator = self._drawn(server)
            return server.progress.began, [Broadcast(self.name, self.version, self.discriminator)]

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Add the mean change to the discriminator; return the model's delta unchanged."""
            if "discriminator" in reply and self.discriminator is not None:
                self.discriminator = self.discriminator + reply["discriminator"].to(self.discriminator)
                self.version += 1
            return delta

        def _drawn(self, server: Server) -> Tensor:
            """Return the initial discriminator [P_d], from U(-1, 1) / sqrt(inputs) in each layer, as nn.Linear's."""
            network = server.network
            shapes = self.method.shapes(network.widths[network.head[0]])
            inputs = [weight[1] for weight in shapes[::2] for _ in range(2)]
            with server.rng_scope(self.name):
                drawn = [torch.rand(prod(s), dtype=server.parameters.dtype) * 2 - 1 for s in shapes]
            return torch.cat([part / d**0.5 for part, d in zip(drawn, inputs, strict=True)])


def tell_apart(features: Tensor, weights: Tensor, shapes: Sequence[tuple[int, ...]]) -> Tensor:
    """Return a discriminator's logits [n] of features [n, d]: positive where it takes a sample for a new one."""
    parts = [part.view(shape) for part, shape in zip(weights.split([*map(prod, shapes)]), shapes, strict=True)]
    layers = [*zip(parts[::2], parts[1::2], strict=True)]
    for weight, bias in layers[:-1]:
        features = functional.linear(features, weight, bias).relu()
    return functional.linear(features, *layers[-1]).squeeze(1)
