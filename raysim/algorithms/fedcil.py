"""FedCIL: every client trains a generator with the model and replays it. Qi, Zhao and Li, ICLR 2023.

"Better generative replay for continual federated learning". Model and generator G are an AC-GAN: the model has a second
head, which tells real images from generated ones. At a task's end a client freezes its own G, and replays it in later
tasks. The server averages both networks. Then it trains them further, on images that it draws from the clients'
generators in equal shares of classes (model consolidation).

The defaults are those of the authors' code for MNIST. Its optimizer is Adam, at rate 1e-4 with betas .5 and .99 and
weight decay 1e-5. Its code has the paper's consistency terms times 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt, doc
from torch import Tensor, nn
from torch.nn import functional

from raysim.algorithms.parts.acgan import Acgan, Moments, Optimizers, draw_images, make_generator, noise_of
from raysim.algorithms.parts.classes_so_far import classes_so_far
from raysim.algorithms.parts.distillation import distillation_loss
from raysim.algorithms.parts.local_batches import local_batches
from raysim.algorithms.parts.pixels import to_pixels
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    Delta,
    FlatModel,
    LocalAdam,
    Method,
    Repeats,
    Server,
    ServerHalf,
    Term,
    Terms,
    Weights,
    to_device,
)

SHOWN = 8  # images of each class in the picture of a task's end
MOST_IMAGES = 256  # in all, the most that a picture may have


@dataclass(frozen=True, kw_only=True)
class FedCil(Method):
    """FedCIL: an AC-GAN at every client, replay, and consolidation at the server (Qi et al., ICLR 2023)."""

    generator: Annotated[Literal["mnist", "cifar"], doc("the generator's layers, as in the code")] = "mnist"
    width: Annotated[int, Ge(1), doc("channels of the generator's last hidden layer; 48 in the code for cifar")] = 64
    noise: Annotated[int, Ge(1), doc("random numbers from which G makes an image, besides the class")] = 100
    adversarial: Annotated[float, Ge(0), doc("weight of the terms on generated images and of real or fake")] = 1.0
    replay: Annotated[float, Ge(0), Le(1), doc("share of the frozen generator's images in the critic's loss")] = 0.5
    consistency_kl: Annotated[float, Ge(0), doc("weight of KL(the received model, the client's) on its images")] = 0.0
    consistency_ce: Annotated[float, Ge(0), doc("weight of the cross-entropy on images of the received G")] = 0.0
    server_steps: Annotated[
        int, Ge(0), Repeats("steps"), doc("the server's steps after every round; 0 is AC-GAN with FedAvg")
    ] = 50
    server_batch: Annotated[
        int, Ge(2), Repeats("samples"), doc("images of a step of the server, and those drawn from a generator")
    ] = 32
    server_lr: Annotated[float, Gt(0), doc("the server's learning rate, of Adam")] = 1e-4
    server_betas: Annotated[
        tuple[Annotated[float, Ge(0), Lt(1)], Annotated[float, Ge(0), Lt(1)]], doc("of the server's Adam")
    ] = (0.5, 0.99)
    server_decay: Annotated[float, Ge(0), doc("the server's weight decay")] = 1e-5

    neutral: ClassVar = {"adversarial": 0.0, "replay": 0.0, "server_steps": 0}
    needs: ClassVar = frozenset({"boundaries", "earlier_logits", "classes", "unclipped"})
    replies: ClassVar = {
        "realness": "mean",
        "generator": "mean",
        "generators": "by_client",
        "frozen": "by_client",
        "classes": "by_client",
        "frozen_classes": "by_client",
    }

    def head_parts(self) -> int:
        """Return 1: the second head reads what enters the model's head."""
        return 1

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse samples that are no images."""
        if len(model.shape) == 3 and model.shape[0] in (1, 3):
            return None
        words = f"generates images, but the samples have the shape {model.shape}, allowed: images of 1 or 3 channels"
        return f"{words}; choose a method without a generator"

    def waits(self) -> bool:
        """The server consolidates the whole cohort's generators."""
        return self.server_steps > 0

    class Client(ClientHalf):
        """Trains the model and a generator against each other, and replays the generator of the last task."""

        local_steps: ClassVar = True
        method: FedCil
        moments: Moments | None = None  # with which inputs are normalized
        own: Tensor | None = None  # int64: the classes that this client has trained on
        past: Tensor | None = None  # int64: those of the frozen generator
        frozen: tuple[Tensor, ...] | None = None  # the frozen generator: parameters, float and integer buffers
        is_sent: bool = True  # whether the server has the frozen generator

        def begin_task(self, client: Client) -> None:
            """Freeze this client's generator, as its last local training left it, before aggregation."""
            if self.own is not None:
                self.frozen = tuple(vector.clone() for vector in self._generator(client).vectors)
                self.past, self.is_sent = self.own, False

        def start(self, client: Client, message: Moments | None) -> None:
            """Load the received parameters; BatchNorm's statistics of the generator stay this client's own."""
            self.moments = message
            generator, realness = client.from_server(self.name)
            self._generator(client).parameters.copy_(generator)
            self._realness(client).parameters.copy_(realness)

        def train(self, client: Client) -> Delta:
            """Take a step of the critic and a step of the generator on every batch."""
            model, buffers = client.model, client.model.buffers.clone()
            acgan = self._acgan(client)
            total, rows = torch.zeros((), dtype=model.dtype, device=model.device), 0
            for x, y in local_batches(client):
                loss = acgan.critic_loss(x, y)
                total, rows = total + loss.detach() * len(y), rows + len(y)
                acgan.step(self._with_replay(client, acgan, loss, len(y)), len(y))
            if rows:
                client.record("loss", total / rows)
            return Delta(model.parameters - client.received, model.buffers - buffers)

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send the changes of the generator and of the second head; the frozen generator once per task."""
            before, head = client.from_server(self.name)
            change = self._generator(client).parameters - before
            terms = {"realness": Term(self._realness(client).parameters - head)}
            arrived = client.labels(client.arrived)
            self.own = arrived.unique() if self.own is None else torch.cat([self.own, arrived]).unique()
            if not self.method.server_steps:
                return delta, {**terms, "generator": Term(change)}
            terms |= {"generators": Term(change), "classes": Term(as_mask(arrived, client.classes))}
            if not self.is_sent and self.frozen is not None and self.past is not None:
                terms |= {
                    "frozen": Term(self.frozen[0]),
                    "frozen_classes": Term(as_mask(self.past, client.classes)),
                }
                self.is_sent = True
            return delta, terms

        def _with_replay(self, client: Client, acgan: Acgan, loss: Tensor, count: int) -> Tensor:
            """Return the loss on new images together with that on replayed ones, and the consistency terms."""
            method, model = self.method, client.model
            with client.rng_scope(self.name):
                if self.frozen is not None and self.past is not None and method.replay:
                    weights = Weights(*self.frozen)
                    frozen = client.auxiliary_network(f"{self.name}.frozen", self._build(client), weights)
                    x, y = self._images(client, frozen, self.past, count)
                    loss = (1 - method.replay) * loss + method.replay * acgan.critic_loss(x, y)
                if method.consistency_kl:
                    x, _ = self._images(client, acgan.generator, acgan.labels, count)
                    teacher = model.logits(x, client.received, client.from_server("model").buffers)
                    loss = loss + method.consistency_kl * distillation_loss(teacher, model(x), 1.0)
                if method.consistency_ce:
                    weights = Weights(client.from_server(self.name)[0], *acgan.generator.vectors[1:])
                    received = client.auxiliary_network(f"{self.name}.received", self._build(client), weights)
                    x, y = self._images(client, received, acgan.labels, count)
                    loss = loss + method.consistency_ce * client.loss(model(x), y)
            return loss

        def _images(self, client: Client, generator: FlatModel, labels: Tensor, count: int) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                return draw_images(generator, to_device(labels, client.model.device), client.classes, max(count, 2))

        def _acgan(self, client: Client) -> Acgan:
            labels = client.labels(client.arrived)
            labels = to_device(
                (labels if self.own is None else torch.cat([self.own, labels])).unique(), client.model.device
            )
            by = Optimizers(client.new_optimizer(), client.new_optimizer(), client.new_optimizer(), client.lr)
            networks = client.model, self._realness(client), self._generator(client)
            scope = partial(client.rng_scope, self.name)
            return Acgan(*networks, by, client.loss, labels, client.classes, self.method.adversarial, scope)

        def _build(self, client: Client) -> partial[nn.Module]:
            return generator_of(self.method, client.data.shape, client.classes, self.moments, client.model.dtype)

        def _generator(self, client: Client) -> FlatModel:
            return client.auxiliary_network(f"{self.name}.generator", self._build(client))

        def _realness(self, client: Client) -> FlatModel:
            return client.auxiliary_network(f"{self.name}.realness", partial(second_head, client.model))

    class Server(ServerHalf):
        """Averages the generators, and consolidates model and generator on the clients' images."""

        method: FedCil
        version: int = 0

        def __init__(self, name: str, method: FedCil) -> None:
            super().__init__(name, method)
            # by client: the frozen generator's parameters [P_g], and a mask of its classes
            self.frozen: dict[int, tuple[Tensor, Tensor]] = {}

        def announce(self, server: Server) -> tuple[Moments | None, Sequence[Broadcast]]:
            """Broadcast the parameters of the generator and of the second head."""
            both = self._generator(server).parameters, self._realness(server).parameters
            parameters = tuple(each.to("cpu", copy=True) for each in both)
            return moments_of(server), [Broadcast(self.name, self.version, parameters)]

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Average the generators and the second heads, and consolidate. Return the model's change."""
            before = self._generator(server).parameters.clone()
            changes = {k: to_device(change, server.device) for k, change in reply.get("generators", {}).items()}
            self._average(server, reply, changes)
            for client, parameters in reply.get("frozen", {}).items():
                self.frozen[client] = parameters, reply["frozen_classes"][client]
            if changes:
                current = [(before + change, reply["classes"][client]) for client, change in changes.items()]
                past = [self.frozen[client] for client in changes if client in self.frozen]
                with server.rng_scope(self.name):
                    delta = self._consolidate(server, delta, current, past)
            if server.progress.is_last:
                self._show(server)
            return delta

        def _average(self, server: Server, reply: Mapping[str, Any], changes: Mapping[int, Tensor]) -> None:
            """Add the mean changes of the second heads and of the generators, these by client or already averaged."""
            generator = self._generator(server)
            self._realness(server).parameters.add_(to_device(reply["realness"], server.device))
            if "generator" in reply:
                generator.parameters.add_(to_device(reply["generator"], server.device))
            for client, change in changes.items():
                generator.parameters.add_(change, alpha=server.shares[client])
            self.version += 1

        def _consolidate(
            self,
            server: Server,
            delta: Delta,
            current: Sequence[tuple[Tensor, Tensor]],
            past: Sequence[tuple[Tensor, Tensor]],
        ) -> Delta:
            """Train the mean networks on images of the clients' current and frozen generators."""
            method, size = self.method, self.method.server_batch
            mean = Weights(server.parameters + delta.parameters, server.buffers + delta.buffers, server.integers)
            model = FlatModel(server.network_at(mean).train())
            model.head = server.network.head
            drawn = FlatModel(self._build(server)().to(server.device))
            known = torch.stack([mask for _, mask in (*current, *past)]).any(0).nonzero().view(-1)
            if not len(known):
                return delta
            acgan = Acgan(
                model,
                self._realness(server),
                self._generator(server),
                self._optimizers(),
                functional.cross_entropy,
                to_device(known, server.device),
                server.classes,
                method.adversarial,
                partial(server.rng_scope, self.name),
            )
            if method.server_steps:
                server.record("server_steps", method.server_steps)
            for _ in range(method.server_steps):
                loss = acgan.critic_loss(*draw_balanced(drawn, current, server.classes, size))
                if past and method.replay:
                    replayed = acgan.critic_loss(*draw_balanced(drawn, past, server.classes, size))
                    loss = (1 - method.replay) * loss + method.replay * replayed
                acgan.step(loss, size)
            return Delta(
                model.parameters.to("cpu") - server.parameters,
                model.buffers.to("cpu") - server.buffers,
            )

        def _optimizers(self) -> Optimizers:
            method = self.method
            adam = partial(LocalAdam, method.server_betas, 1e-8, method.server_decay, False)
            return Optimizers(model=adam(), realness=adam(), generator=adam(), lr=method.server_lr)

        def _show(self, server: Server) -> None:
            """Record a picture of the generator's images of the classes so far."""
            classes = classes_so_far(server)
            shown = torch.tensor(classes[:MOST_IMAGES], device=server.device)
            labels = shown.repeat_interleave(max(1, min(SHOWN, MOST_IMAGES // len(classes))))
            generator = self._generator(server)
            with server.rng_scope(self.name), torch.no_grad():
                images = to_pixels(generator(noise_of(labels, server.classes, generator)), server)
            server.record_image("generated", images, [str(label) for label in labels.tolist()])

        def _build(self, server: Server) -> partial[nn.Module]:
            moments, dtype = moments_of(server), server.parameters.dtype
            return generator_of(self.method, server.shape, server.classes, moments, dtype)

        def _generator(self, server: Server) -> FlatModel:
            return server.auxiliary_network(f"{self.name}.generator", self._build(server))

        def _realness(self, server: Server) -> FlatModel:
            return server.auxiliary_network(f"{self.name}.realness", partial(second_head, server.network))


def second_head(model: FlatModel) -> nn.Module:
    """Return the second head: features [n, d] of the model to [n, 1], above 0 for real images."""
    return nn.Linear(model.widths[model.head[0]], 1, dtype=model.dtype)


def generator_of(
    method: FedCil, shape: Sequence[int], classes: int, moments: Moments | None, dtype: torch.dtype
) -> partial[nn.Module]:
    """Return a function that builds the generator."""
    return partial(make_generator, method.generator, shape, classes + method.noise, method.width, moments, dtype)


def moments_of(server: Server) -> Moments | None:
    """Return the mean and the standard deviation with which inputs are normalized, or None."""
    statistics = server.normalization
    return None if statistics is None else (statistics.mean, statistics.std)


def as_mask(labels: Tensor, classes: int) -> Tensor:
    """Return a mask (uint8 [classes]) of labels (int64)."""
    mask = torch.zeros(classes, dtype=torch.uint8)
    mask[labels] = 1
    return mask


def draw_balanced(
    generator: FlatModel, sources: Sequence[tuple[Tensor, Tensor]], classes: int, size: int
) -> tuple[Tensor, Tensor]:
    """Return `size` images x and labels y in equal shares of classes.

    Every source, parameters [P_g] of a generator with a mask of classes, makes `size` images. Labels are then drawn,
    uniform over those present, and for each a random image of this label.
    """
    images, labels = list[Tensor](), list[Tensor]()
    with torch.no_grad():
        for parameters, mask in sources:
            own = to_device(mask.nonzero().view(-1), generator.device)
            if len(own):
                generator.parameters.copy_(parameters)
                x, y = draw_images(generator, own, classes, size)
                images.append(x)
                labels.append(y)
    x, y = torch.cat(images), torch.cat(labels)
    present = y.unique()
    wanted = present[torch.randint(len(present), (size,), device=y.device)]
    draws = torch.rand(size, len(y), device=y.device).masked_fill(y[None] != wanted[:, None], -1.0)
    return x[draws.argmax(1)], wanted
