"""MFCL: the server trains a generator of old classes without data; clients replay its images. Babakniya et al., 2023.

"A data-free approach to mitigate catastrophic forgetting in federated class incremental learning for vision tasks",
NeurIPS 2023. Let w* be the model that ended the last task, frozen, and K the number of classes so far. The server
trains the generator G by w* alone. Clients draw images from G and label them with w*. They learn the new classes among
themselves, tune the head on all rows, and keep the features f close to those of w*.

The defaults are those of the authors' code. Its generator is for 32 x 32 images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import log
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, doc
from torch import Tensor, nn
from torch.nn import functional

from raysim.algorithms.parts.classes_so_far import classes_so_far, is_needed_later
from raysim.algorithms.parts.image_sizes import first_grid, unfit_shape
from raysim.algorithms.parts.pixels import to_pixels
from raysim.api import (
    BatchStatistics,
    Broadcast,
    Client,
    ClientHalf,
    FlatModel,
    LocalAdam,
    Method,
    Repeats,
    Server,
    ServerHalf,
    Step,
    Weights,
    to_device,
    with_batch_statistics,
)

SHOWN = 64  # images in the picture of a task's end
TINY = 1e-8  # added to variances, so that a channel without variance has a finite divergence


@dataclass(frozen=True, kw_only=True)
class Mfcl(Method):
    """MFCL: replays images of a generator that the server trains without data (Babakniya et al., NeurIPS 2023)."""

    w_ft: Annotated[float, Ge(0), doc("weight of the head's cross-entropy on real and generated rows")] = 1.0
    w_kd: Annotated[float, Ge(0), doc("weight of the old head's distance between new and old features")] = 0.1
    generated: Annotated[int, Ge(1), Repeats("samples"), doc("generated rows in every batch, from task 2 on")] = 128
    steps: Annotated[int, Ge(1), Repeats("steps"), doc("the generator's steps at the end of a task")] = 100
    batch_size: Annotated[int, Ge(2), Repeats("samples"), doc("images of a step of the generator")] = 128
    lr: Annotated[float, Gt(0), doc("the generator's learning rate, of Adam")] = 1e-3
    latent: Annotated[int, Ge(1), doc("the numbers from which the generator makes an image")] = 1000
    width: Annotated[int, Ge(2), doc("the channels of the generator's first layers; the last one has half")] = 128
    divisor: Annotated[float, Gt(0), doc("of the logits in the content loss; at 1000 it is almost constant")] = 1000.0
    w_ie: Annotated[float, Ge(0), doc("weight of the entropy term: equal shares of classes")] = 1.0
    w_bn: Annotated[float, Ge(0), doc("weight of the divergence from BatchNorm's statistics")] = 50.0
    w_noise: Annotated[float, Ge(0), doc("weight of the distance between an image and its blurred copy")] = 1e-3
    second_pass: Annotated[bool, doc("a second pass in training mode for the head's loss, as in the code")] = False

    needs: ClassVar = frozenset({"server_boundaries", "earlier_logits", "classes"})

    def head_parts(self) -> int:
        """Return 2: the head's weight and bias are trained on features without a gradient."""
        return 2

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse samples that the generator cannot make, and a model without BatchNorm, which it imitates."""
        if model.normalises or not self.w_bn:
            return unfit_shape(model.shape)
        return unfit_shape(model.shape) or (
            "found no BatchNorm in the model, whose statistics the generator imitates, allowed: a model with "
            "BatchNorm, such as small_resnet or mlp with batch_norm=true; or set w_bn=0"
        )

    class Client(ClientHalf):
        """Appends generated rows to every batch, and trains by the three losses."""

        features: ClassVar = True
        method: Mfcl
        old: Tensor | None = None  # int64 [K]: the classes of the earlier tasks, or None in task 1
        new: Tensor | None = None  # bool [classes]: those among which real rows are learned
        seen: Tensor | None = None  # bool [classes]: the old and the new ones
        standardized: bool = False  # whether the model's inputs are
        first: int = 0  # the index of the first generated row of the batch

        def start(self, client: Client, message: tuple[Sequence[int], Sequence[int], bool]) -> None:
            """Store the old and the new classes, and whether inputs are standardized."""
            old, new, self.standardized = message
            device = client.model.device
            self.old = to_device(torch.tensor(old), device) if old else None
            self.new, self.seen = (mask_of(part, client.classes, device) for part in (new, {*old, *new}))

        def batch(self, step: Step) -> None:
            """Append the generated rows, with the class that the frozen model gives them among the K old ones."""
            if not self._replays:
                return
            assert self.old is not None
            client, method, model = step.client, self.method, step.client.model
            build = partial(
                make_generator, step.x.shape[1:], method.latent, method.width, self.standardized, model.dtype
            )
            generator = client.auxiliary_network(
                f"{self.name}.generator", build, client.from_server(f"{self.name}.generator")
            )
            generator.module.eval()
            with client.rng_scope(self.name), torch.no_grad():
                noise = torch.randn(method.generated, method.latent, dtype=model.dtype, device=model.device)
                x = generator(noise)
                frozen: Weights = client.from_server(self.name)
                logits = model.logits(x, frozen.parameters, frozen.buffers)
            self.first = len(step.x)
            y = self.old[logits.index_select(1, self.old).argmax(1)]
            step.x, step.y = torch.cat([step.x, x]), torch.cat([step.y, y])

        def task_loss(self, step: Step) -> Tensor:
            """Return CE(new logits, real rows) + w_ft CE(head of fixed features) + w_kd/K ||W*(f - f*)||^2."""
            assert self.new is not None
            assert self.seen is not None
            if not self._replays:
                return loss_among(step.logits, step.y, self.new)
            assert self.old is not None
            method, model = self.method, step.client.model
            after = self.first + method.generated
            logits, y = (torch.cat([rows[: self.first], rows[after:]]) for rows in (step.logits, step.y))
            weight, bias = (model.module.get_parameter(name) for name in model.head)
            fixed = self._again(step) if method.second_pass else step.features.detach()
            tuned = loss_among(functional.linear(fixed, weight, bias), step.y, self.seen)
            frozen: Weights = step.client.from_server(self.name)
            with step.client.rng_scope(self.name):
                before = model.inputs(step.x, frozen.parameters, frozen.buffers, model.head[:1])[model.head[0]]
            old_head = model.named(frozen.parameters)[model.head[0]].index_select(0, self.old)
            kept = feature_distance(step.features, before, old_head)
            return loss_among(logits, y, self.new) + method.w_ft * tuned + method.w_kd * kept

        @property
        def _replays(self) -> bool:
            return self.old is not None and self.method.w_ft + self.method.w_kd > 0

        def _again(self, step: Step) -> Tensor:
            """Return the features [n, d] of one more pass in training mode, which moves BatchNorm's statistics."""
            with step.client.rng_scope(self.name), torch.no_grad():
                return step.client.model.with_features(step.x)[1]

    class Server(ServerHalf):
        """Trains the generator at each task's end; broadcasts it with the frozen model."""

        method: Mfcl
        task: int = 0
        frozen: tuple[Tensor, Tensor, Tensor] | None = None  # w*: parameters, float and integer buffers
        generator: tuple[Tensor, Tensor, Tensor] | None = None  # its parameters, float and integer buffers

        def announce(self, server: Server) -> tuple[tuple[Sequence[int], Sequence[int], bool], Sequence[Broadcast]]:
            """Send the old and the new classes. From task 2 on, broadcast w* and the generator, once per task."""
            present, standardized = server.present_classes(), server.normalization is not None
            if self.frozen is None or self.generator is None:
                return ((), present, standardized), ()
            old = server.earlier_classes()
            new = [label for label in present if label not in old]
            parts = {self.name: self.frozen, f"{self.name}.generator": self.generator}
            broadcasts = [Broadcast(name, self.task, Weights(*vectors)) for name, vectors in parts.items()]
            # Where all classes are old, as in domain-incremental streams, the paper defines nothing: all are learned.
            return (old, new or sorted({*old, *present}), standardized), broadcasts

        def end_task(self, server: Server) -> None:
            """Freeze the model, and train the generator on it, from its state after the last task."""
            if not is_needed_later(server):
                return
            method, classes = self.method, classes_so_far(server)
            dtype, standardized = server.parameters.dtype, server.normalization is not None
            build = partial(make_generator, server.shape, method.latent, method.width, standardized, dtype)
            generator, teacher = server.auxiliary_network(f"{self.name}.generator", build), server.network_at()
            teacher.requires_grad_(False)
            known, adam = torch.tensor(classes, device=server.device), LocalAdam((0.9, 0.999), 1e-8, 0.0, False)
            generator.module.train()
            with server.rng_scope(self.name):
                for _ in range(method.steps):
                    noise = torch.randn(method.batch_size, method.latent, dtype=dtype, device=server.device)
                    x = generator(noise)
                    logits, layers = with_batch_statistics(teacher, x)
                    terms = generator_terms(x, logits.index_select(1, known), layers, method.divisor)
                    loss = terms @ terms.new_tensor([1.0, method.w_ie, method.w_bn, method.w_noise])
                    generator.gradient.zero_()
                    loss.backward()
                    adam.step(generator.parameters, generator.gradient, method.lr)
            server.record("server_steps", method.steps)
            self._show(server, generator, teacher, known)
            for name, term in zip(("content", "entropy", "statistics", "noise"), terms.tolist(), strict=True):
                server.record(f"generator_{name}", term)
            self.task = server.task + 1
            self.frozen = server.parameters, server.buffers, server.integers
            weights = generator.weights()
            self.generator = weights.parameters, weights.buffers, weights.integers

        def _show(self, server: Server, generator: FlatModel, teacher: nn.Module, known: Tensor) -> None:
            """Record a picture of generated images, in the order of the classes that the frozen model gives them."""
            noise = (SHOWN, self.method.latent)
            generator.module.eval()
            with server.rng_scope(self.name), torch.no_grad():
                x = generator(torch.randn(noise, dtype=generator.dtype, device=server.device))
                labels, order = known[teacher(x).index_select(1, known).argmax(1)].sort(stable=True)
            server.record_image("generated", to_pixels(x[order], server), [str(label) for label in labels.tolist()])


def mask_of(labels: Sequence[int] | set[int], classes: int, device: torch.device) -> Tensor:
    """Return a mask (bool [classes]) of these labels."""
    return to_device(torch.tensor([label in labels for label in range(classes)]), device)


def loss_among(logits: Tensor, y: Tensor, among: Tensor) -> Tensor:
    """Return the cross-entropy of a softmax over the classes in `among` (bool [classes]).

    It is the mean over the rows with such a label, 0 if there is none.
    """
    labels = torch.where(among[y], y, -100)  # -100: not counted
    total = functional.cross_entropy(logits.masked_fill(~among, -torch.inf), labels, reduction="sum")
    return total / among[y].sum().clamp(min=1)


def feature_distance(features: Tensor, before: Tensor, head: Tensor) -> Tensor:
    """Return (1/K) mean ||W (f - f*)||^2 over the rows of f and f* [n, d], with the old head W [K, d]."""
    return functional.linear(features - before, head).square().sum(1).mean() / len(head)


def generator_terms(x: Tensor, logits: Tensor, layers: Sequence[BatchStatistics], divisor: float) -> Tensor:
    """Return the generator's losses [4] on images x: content, entropy, BatchNorm's statistics, noise.

    `logits` [n, K] are the frozen model's, for the K classes so far.
    """
    content = functional.cross_entropy(logits / divisor, logits.argmax(1))
    entropy = missing_entropy(logits)
    divergences = [divergence(layer).mean() for layer in layers]
    statistics = torch.stack(divergences).mean() if divergences else torch.zeros_like(content)
    return torch.stack([content, entropy, statistics, (x - blurred(x)).square().mean()])


def missing_entropy(logits: Tensor) -> Tensor:
    """Return 1 + sum_c q_c ln q_c / ln K of the batch's mean softmax q: 0 if classes have equal shares, at most 1."""
    if logits.shape[1] == 1:
        return logits.new_zeros(())
    q = logits.softmax(1).mean(0)
    lack: Tensor = 1 + torch.special.xlogy(q, q).sum() / log(logits.shape[1])
    return lack


def divergence(layer: BatchStatistics) -> Tensor:
    """Return KL(N(running) || N(batch)) of each channel [c] of a BatchNorm layer's input."""
    variance, running = layer.variance + TINY, layer.running_variance + TINY
    distance = running + (layer.mean - layer.running_mean).square()
    return ((variance / running).log() - 1 + distance / variance) / 2


def blurred(x: Tensor) -> Tensor:
    """Return images [n, channels, h, w] after a 5 x 5 Gaussian filter, with reflected margins.

    Its variance is 2, not 1: the code squares after it divides by 2 sigma.
    """
    taps = torch.exp(-((torch.arange(-2.0, 3.0, dtype=x.dtype, device=x.device) / 2) ** 2))
    taps = taps / taps.sum()
    kernel = torch.outer(taps, taps)[None, None].expand(x.shape[1], 1, 5, 5)
    return functional.conv2d(functional.pad(x, [2] * 4, "reflect"), kernel, groups=x.shape[1])


def make_generator(shape: Sequence[int], latent: int, width: int, standardized: bool, dtype: torch.dtype) -> nn.Module:
    """Return the generator: z [n, latent] to images [n, channels, h, w].

    Its images have mean 0 and variance 1 in each channel, as the model's inputs should. If inputs are pixels from 0 to
    1 (`standardized` is false), its images are that, too.
    """
    channels = shape[0]
    base, doublings = first_grid(*shape[1:])
    layers: list[nn.Module] = [nn.Linear(latent, width * base * base), nn.Unflatten(1, (width, base, base))]
    layers += [nn.BatchNorm2d(width)]
    widths = [*[width] * doublings, width // 2]
    for inputs, outputs in pairwise(widths):
        # the eps of .8 is the code's: the second argument of BatchNorm2d is not its momentum
        layers += [nn.Upsample(scale_factor=2), nn.Conv2d(inputs, outputs, 3, padding=1)]
        layers += [nn.BatchNorm2d(outputs, eps=0.8), nn.LeakyReLU(0.2)]
    layers += [nn.Conv2d(width // 2, channels, 3, padding=1), nn.Tanh()]
    layers.append(nn.BatchNorm2d(channels, affine=False) if standardized else ToPixels())
    return nn.Sequential(*layers).to(dtype)


class ToPixels(nn.Module):
    """Maps -1 to 1 to pixels from 0 to 1."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (x + 1) / 2."""
        return (x + 1) / 2
