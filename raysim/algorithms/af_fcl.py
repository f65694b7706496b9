"""AF-FCL: replay features that a flow makes, weighted by how well they fit a client's data. Wuerkaixi et al., 2024.

"Accurate forgetting for heterogeneous federated continual learning", ICLR 2024. The model is h = h_b(h_a(x)). Clients
also train a flow g, which models the features x_a = h_a(x) of each class. The server averages both. In every step
a client draws features of all clients' classes so far from g, and trains the first layer of h_b on them. Features of
classes that it has count by their density under its own data: what does not fit, such as wrong labels, is forgotten.

The defaults are those of the authors' code where it has one value for all datasets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import pi
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, doc
from torch import Tensor
from torch.nn import functional

from raysim.algorithms.parts.conditional_flow import ConditionalFlow
from raysim.algorithms.parts.distillation import distillation_loss
from raysim.algorithms.parts.feature_layer import FeatureLayer, lacks_features
from raysim.algorithms.parts.local_batches import local_batches
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    Delta,
    FlatModel,
    LocalAdam,
    LocalOptimizer,
    Method,
    Server,
    ServerHalf,
    Term,
    Terms,
    Weights,
    to_device,
)

ROOT = 2.0  # both distillation losses compare the square roots of probabilities, which is a temperature of 2
LEAST = 1e-12  # a variance, so that a code that is constant has a density
FLOOR = 1e-30  # added to the probabilities of drawn features, as in the authors' code


@dataclass(frozen=True, kw_only=True)
class AfFcl(Method):
    """AF-FCL: replays features of a flow, weighted by a client's own data (Wuerkaixi et al., ICLR 2024)."""

    k_flow: Annotated[float, Ge(0), doc("weight of the loss on replayed features; .1 to .5 in the code")] = 0.5
    theta: Annotated[float, Ge(0), Le(1), doc("theta: the part of its first term that g's likelihood leaves")] = 0.2
    k_last: Annotated[float, Ge(0), doc("weight of the last task's flow in the flow's loss; 0 to .4 in the code")] = 0.4
    k_kdlast: Annotated[float, Ge(0), doc("factor of all distances from the last task's model")] = 0.2
    k_feat: Annotated[float, Ge(0), doc("weight of the distance of features")] = 0.5
    k_out: Annotated[float, Ge(0), doc("weight of the distance of outputs")] = 0.1
    density: Annotated[
        Literal["latent", "as_published"], doc("where density is measured: at the code, or at the feature (the code)")
    ] = "latent"
    source: Annotated[Literal["current", "last"], doc("the flow of which features are replayed")] = "current"
    tail: Annotated[int, Ge(1), Le(2), doc("linear layers of h_b: 2, or 1, the head alone")] = 2
    width: Annotated[int, Ge(1), doc("units of the flow's networks")] = 512
    flow_lr: Annotated[float, Gt(0), doc("the flow's learning rate, of Adam; 1e-4 to 5e-3 in the code")] = 1e-4
    keep_moments: Annotated[bool, doc("whether a client keeps its three optimizers' state for the run")] = True

    neutral: ClassVar = {"k_flow": 0.0, "k_kdlast": 0.0, "keep_moments": False}
    needs: ClassVar = frozenset({"server_boundaries", "earlier_logits", "one_head", "classes", "unclipped"})
    replies: ClassVar = {"flow": "mean"}

    def head_parts(self) -> int:
        """Return 1: the outputs of the last task's model are computed from what enters its head."""
        return 1

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse a model without one feature vector for each sample."""
        if not lacks_features(model, self.tail):
            return None
        words = f"found no vector of 2 or more features before the last {self.tail} linear layer(s) of the model"
        return f"{words} that alone makes the logits, allowed: one, as in mlp or mnist_cnn; or tail=1, before the head"

    class Client(ClientHalf):
        """Takes three steps on every batch: of the flow, of h_b's first layer on its features, and of the model."""

        local_steps: ClassVar = True
        method: AfFcl
        past: Tensor | None = None  # int64: the classes of all clients' earlier tasks
        so_far: Tensor | None = None  # int64: these and the present ones
        last: tuple[Tensor, Tensor] | None = None  # at the last boundary: the model's parameters and float buffers
        last_flow: tuple[Tensor, Tensor, Tensor] | None = None  # the flow's vectors then

        def __init__(self, name: str, method: AfFcl) -> None:
            super().__init__(name, method)
            self.moments: dict[str, dict[str, Any]] = {}  # of the three optimizers, if they are kept

        def begin_task(self, client: Client) -> None:
            """Keep the received model and flow: the averages with which the last task ended."""
            if len(client.finished):
                model, flow = client.model, client.from_server(self.name)
                self.last = model.parameters.clone(), model.buffers.clone()
                self.last_flow = tuple(vector.clone() for vector in flow.vectors)

        def start(self, client: Client, message: tuple[Sequence[int], Sequence[int]]) -> None:
            """Store the classes of earlier tasks, and all classes so far."""
            past, so_far = (torch.tensor([*part], dtype=torch.int64) for part in message)
            self.past, self.so_far = (to_device(part, client.model.device) for part in (past, so_far))

        def train(self, client: Client) -> Delta:
            """Take the three steps on every batch."""
            model, buffers = client.model, client.model.buffers.clone()
            learner = Learner(self, client)
            total, rows = torch.zeros((), dtype=model.dtype, device=model.device), 0
            for x, y in local_batches(client):
                with client.rng_scope(self.name):
                    learner.step_flow(x, y)
                    if self.method.k_flow:
                        learner.step_replay(x, y)
                loss = learner.step_model(x, y)
                total, rows = total + loss * len(y), rows + len(y)
            if self.method.keep_moments:
                self.moments = {name: dict(vars(optimizer)) for name, optimizer in learner.optimizers.items()}
            if rows:
                client.record("loss", total / rows)
            return Delta(model.parameters - client.received, model.buffers - buffers)

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send the change of the flow."""
            change = self.flow(client).parameters - client.from_server(self.name).parameters
            return delta, {"flow": Term(change)}

        def flow(self, client: Client, last: bool = False) -> FlatModel:
            """Return the client's flow, or that of the last boundary."""
            width = FeatureLayer(client.model, self.method.tail).width
            build = partial(ConditionalFlow, width, client.classes, self.method.width, client.model.dtype)
            if not last:
                return client.auxiliary_network(f"{self.name}.flow", build, client.from_server(self.name))
            assert self.last_flow is not None
            return client.auxiliary_network(f"{self.name}.last", build, Weights(*self.last_flow))

    class Server(ServerHalf):
        """Averages the flows, and names the classes so far."""

        method: AfFcl
        version: int = 0

        def announce(self, server: Server) -> tuple[tuple[Sequence[int], Sequence[int]], Sequence[Broadcast]]:
            """Send the classes of all clients' earlier and present tasks; broadcast the flow."""
            past = server.earlier_classes()
            so_far = sorted({*past, *server.present_classes()})
            return (past, so_far), [Broadcast(self.name, self.version, self._flow(server).weights())]

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Add the mean change to the flow."""
            if "flow" in reply:
                self._flow(server).parameters.add_(to_device(reply["flow"], server.device))
                self.version += 1
            return delta

        def _flow(self, server: Server) -> FlatModel:
            width = FeatureLayer(server.network, self.method.tail).width
            dtype = server.parameters.dtype
            build = partial(ConditionalFlow, width, server.classes, self.method.width, dtype)
            return server.auxiliary_network(f"{self.name}.flow", build)


class Learner:
    """The three steps of a local training, and their optimizers."""

    def __init__(self, half: AfFcl.Client, client: Client) -> None:
        self.half, self.method, self.client, self.model = half, half.method, client, client.model
        self.layer = FeatureLayer(client.model, half.method.tail)  # the first of h_b
        self.flow, self.last_flow = half.flow(client), None
        if half.last_flow is not None:
            self.last_flow = half.flow(client, last=True)
        self.optimizers: dict[str, LocalOptimizer] = {
            "model": client.new_optimizer(),
            "layer": client.new_optimizer(),
            "flow": LocalAdam((0.9, 0.999), 1e-8, 0.0, False),
        }
        for kind, optimizer in self.optimizers.items():
            vars(optimizer).update(half.moments.get(kind, {}))

    def step_flow(self, x: Tensor, y: Tensor) -> None:
        """Descend L_g = -mean ln q(x_a | y) - k_last mean ln q(u | y_u), with u drawn from the last flow."""
        loss = -as_flow(self.flow).encode(self.layer.features(x), y)[1].mean()
        if self.method.k_last and self.last_flow is not None and self.half.past is not None:
            drawn, labels, _ = draw(self.last_flow, self.half.past, len(y))
            loss = loss - self.method.k_last * as_flow(self.flow).encode(drawn, labels)[1].mean()
        gradient = self.flow.gradient_of(loss)
        self.optimizers["flow"].step(self.flow.parameters, gradient, self.method.flow_lr)
        self.client.record("flow_loss", loss.detach())

    def step_replay(self, x: Tensor, y: Tensor) -> None:
        """Descend L_f, on features that the flow draws, by h_b's first layer alone.

        As in evaluation, h_b has its running statistics and no dropout.
        """
        method, last = self.method, self.half.last
        assert self.half.so_far is not None
        use_last = method.source == "last" and self.last_flow is not None and self.half.past is not None
        flow, known = (self.last_flow, self.half.past) if use_last else (self.flow, self.half.so_far)
        assert flow is not None
        assert known is not None
        drawn, labels, code = draw(flow, known, len(y))
        with torch.no_grad():
            codes, likelihood = as_flow(flow).encode(self.layer.features(x), y)
            usual = (likelihood / codes.shape[1]).exp().mean()
            at = code if method.density == "latent" else drawn
            weights = weights_of(at, labels, codes, y, usual, self.client.classes)
        logits = self.layer.logits_of(drawn, x)
        teacher = None if last is None else self.layer.logits_of(drawn, x, last)
        fit = (weights * capped_losses(logits).gather(1, labels[:, None]).flatten()).mean()
        loss = ((1 - method.theta) * usual + method.theta) * fit
        if teacher is not None:
            distance = (functional.softmax(teacher / ROOT, 1) * capped_losses(logits / ROOT)).sum(1).mean()
            loss = loss + method.k_out * method.k_kdlast * distance
        gradient = self.layer.gradient_of(method.k_flow * loss)
        self.optimizers["layer"].step(self.model.parameters[self.layer.own], gradient, self.client.lr)

    def step_model(self, x: Tensor, y: Tensor) -> Tensor:
        """Descend CE(x, y) + k_kdlast [k_feat mean (x_a - last x_a)^2 + k_out KD(last, model)]. Return the loss."""
        method, model, last = self.method, self.model, self.half.last
        if last is None or not method.k_kdlast:
            loss = self.client.loss(model(x), y)
        else:
            with self.client.rng_scope(self.half.name):
                teacher, before = self.layer.under(x, last)
            logits, features = self.layer.with_features(x)
            kept = method.k_feat * functional.mse_loss(features, before)
            kept = kept + method.k_out * distillation_loss(teacher, logits, ROOT)
            loss = self.client.loss(logits, y) + method.k_kdlast * kept
        model.gradient.zero_()
        loss.backward()
        self.optimizers["model"].step(model.parameters, model.gradient, self.client.lr)
        return loss.detach()


def as_flow(network: FlatModel) -> ConditionalFlow:
    """Return the flow of which this network has the vectors."""
    assert isinstance(network.module, ConditionalFlow)
    return network.module


def draw(network: FlatModel, known: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return features [n, d] that a flow draws, their labels, uniform over `known` (int64), and their codes [n, d]."""
    flow = as_flow(network)
    labels = known[torch.randint(len(known), (count,), device=network.device)]
    code = torch.randn(count, flow.features, dtype=network.dtype, device=network.device)
    with torch.no_grad():
        return flow.decode(code, labels), labels, code


def capped_losses(logits: Tensor) -> Tensor:
    """Return -ln(p + 1e-30) of each class [n, classes], with p the softmax of logits [n, classes].

    It is at most 69, and has no gradient where p is 0. A feature that explodes in the flow then changes nothing.
    """
    return -(functional.softmax(logits, 1) + FLOOR).log()


def weights_of(at: Tensor, labels: Tensor, codes: Tensor, y: Tensor, usual: Tensor, classes: int) -> Tensor:
    """Return how much replayed features count [m]: how dense their class is there among a client's own samples.

    It is the mean over the d numbers of the density N(at_j; mean_j, var_j). Mean and variance are those of the codes
    of its class. A class with fewer than two samples has no variance. Its features count `usual`.

    Args:
        at: where the density is measured, [m, d].
        labels: the classes of the replayed features, int64 [m].
        codes: those of the client's batch, [n, d].
        y: their labels, int64 [n].
        usual: a scalar.
        classes: the number of classes.
    """
    members = functional.one_hot(y, classes).to(codes.dtype)  # [n, classes]
    counts = members.sum(0).clamp(min=1)[:, None]
    mean = members.T @ codes / counts
    variance = (members.T @ (codes - mean[y]).square() / counts).clamp(min=LEAST)
    mean, variance = mean[labels], variance[labels]
    density = (-(at - mean).square() / (2 * variance)).exp() / (2 * pi * variance).sqrt()
    return torch.where(members.sum(0)[labels] > 1, density.mean(1), usual)
