"""TARGET: distill the last task's model on images that are generated from it. Zhang et al., ICCV 2023.

"TARGET: federated class-continual learning via exemplar-free distillation", arXiv 2303.06937. No sample of an earlier
task is stored. At a task's end the server trains a generator: its images should be taken for the classes seen so far,
and have the statistics that the model's BatchNorm layers kept. In the next task each client distills the old model on
these images, beside its new data. The defaults are those of the authors' code for CIFAR-100.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, doc
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

from raysim.algorithms.parts.distillation import distillation_loss
from raysim.algorithms.parts.image_sizes import first_grid, unfit_shape
from raysim.algorithms.parts.synthesis import (
    Best,
    ImageDecoder,
    Shown,
    StatisticsMatch,
    adversarial_loss,
    as_bytes,
    first_by_name,
    lacks_statistics,
    redraw,
    shuffled_batches,
    synthetic_batches,
)
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    FlatModel,
    Method,
    Server,
    ServerHalf,
    Step,
    to_device,
    with_batch_statistics,
)

BETAS = (0.5, 0.999)  # of Adam
UPSAMPLINGS = 2  # the generator's, for every size
REPTILE = 67.0  # what a difference of weights is multiplied with, to be a gradient
STUDENT = {"lr": 0.2, "momentum": 0.9, "weight_decay": 1e-4}
COSINE, LEAST_RATE = 200, 2e-4  # calls over which the student's rate falls, and what it falls to


@dataclass(frozen=True, kw_only=True)
class Target(Method):
    """TARGET: distills the old model on images generated from it (Zhang et al., ICCV 2023, arXiv 2303.06937)."""

    kd: Annotated[float, Ge(0), doc("weight of the distillation on generated images")] = 25.0
    temperature: Annotated[float, Gt(0), doc("T: what both models' logits are divided by")] = 2.0
    images: Annotated[int, Ge(2), doc("the most images that clients receive")] = 8000
    client_batch: Annotated[int | None, Ge(2), doc("generated images in a step; null is training.batch_size")] = None
    calls: Annotated[int, Ge(1), doc("batches of images that the server generates at a task's end")] = 10
    batch: Annotated[int, Ge(2), doc("images in each")] = 256
    steps: Annotated[int, Ge(1), doc("steps on each batch, of Adam on a copy of the generator and on its inputs z")] = 10
    lr_g: Annotated[float, Gt(0), doc("the learning rate of the copy; the generator's is steps times it")] = 0.002
    lr_z: Annotated[float, Gt(0), doc("the learning rate of z")] = 0.01
    meta: Annotated[Literal["maml", "reptile"], doc("what the generator learns from its copies")] = "maml"
    bn: Annotated[float, Ge(0), doc("weight of the distance of BatchNorm's statistics; 0 needs no BatchNorm")] = 10.0
    oh: Annotated[float, Ge(0), doc("weight of the cross-entropy with drawn labels")] = 0.5
    adv: Annotated[float, Ge(0), doc("weight of the disagreement with the student, from the batch `warmup` on")] = 1.0
    warmup: Annotated[int, Ge(1), doc("the batches before the student is trained")] = 20
    student_steps: Annotated[int, Ge(1), doc("steps of the student after each later batch")] = 400
    student_temperature: Annotated[float, Gt(0), doc("T of the student's distillation")] = 20.0
    z: Annotated[int, Ge(1), doc("the size of the generator's input")] = 256
    width: Annotated[int, Ge(1), doc("the channels of the generator's first grid; half of them at the end")] = 128

    neutral: ClassVar = {"kd": 0.0}
    needs: ClassVar = frozenset({"server_boundaries", "one_head", "classes"})

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse samples that no generator makes, and a model without the statistics to match."""
        if not self.kd:
            return None
        return unfit_shape(model.shape) or (lacks_statistics(model) if self.bn else None)

    class Client(ClientHalf):
        """Adds the distillation on generated images, from task 2 on."""

        transient: ClassVar = ClientHalf.transient | {"shown"}
        method: Target
        old: Tensor | None = None  # int64: the classes of earlier tasks
        shown: Iterator[Tensor] | None = None  # this phase's batches of generated images

        def start(self, client: Client, message: tuple[int, ...] | None) -> None:
            """Store the classes of earlier tasks, and begin to go through the images; None in task 1."""
            self.old = None
            if message is not None:
                self.old = to_device(torch.tensor(message), client.model.device)
                images, size = client.from_server(self.name)[2], self.method.client_batch
                self.shown = synthetic_batches(client, self.name, images, size)

        def penalty(self, step: Step) -> Tensor:
            """Return kd * KD(old model, model; T) over the old classes' logits, on the next generated images.

            As in the authors' code, the images pass the model separately from the new data, in training mode:
            BatchNorm normalizes each batch by itself, and its running statistics follow both.
            """
            method, client = self.method, step.client
            if self.old is None or self.shown is None:
                return step.loss.new_zeros(())
            with client.rng_scope(self.name):
                x = next(self.shown)
                teacher = client.model.logits(x, *client.from_server(self.name)[:2])
                known, learnt = (logits.index_select(1, self.old) for logits in (teacher, client.model(x)))
            return method.kd * distillation_loss(known, learnt, method.temperature)

    class Server(ServerHalf):
        """Generates images at a task's end, and broadcasts them with the model that ended the task."""

        method: Target
        task: int = 0
        posted: tuple[Tensor, Tensor, Tensor] | None = None  # parameters, buffers, images (uint8 [n, channels, h, w])

        def announce(self, server: Server) -> tuple[tuple[int, ...] | None, Sequence[Broadcast]]:
            """Broadcast the old model and the images; send the classes of earlier tasks."""
            if self.posted is None:
                return None, ()
            return server.earlier_classes(), [Broadcast(self.name, self.task, self.posted)]

        def end_task(self, server: Server) -> None:
            """Generate images of all classes so far from the model that ended the task. The last task needs none."""
            if self.method.kd and server.round < server.progress.rounds:
                self.task = server.task + 1
                with server.rng_scope(self.name):
                    images = Synthesis(self.method, server).images()
                self.posted = (server.parameters, server.buffers, images)


class Synthesis:
    """The data generation at one task's end, Section 4.2 and Algorithm 2. A generator and a student are drawn for it.

    All torch draws are from the server's stream that the caller has selected.
    """

    def __init__(self, method: Target, server: Server) -> None:
        self.method, self.server, self.shown, self.match = method, server, Shown(server), StatisticsMatch()
        self.seen = torch.tensor(sorted({*server.earlier_classes(), *server.present_classes()}), device=server.device)
        self.teacher = server.network_at().requires_grad_(False)
        channels, height, width = server.shape
        generator = ImageDecoder(method.z, channels, *first_grid(height, width, UPSAMPLINGS), method.width)
        self.generator = generator.to(server.device, server.parameters.dtype)
        # The generator's own optimizer, of first-order MAML or Reptile, lives through all calls.
        self.meta = Adam(self.generator.parameters(), lr=method.lr_g * method.steps, betas=BETAS)
        self.made = torch.zeros(method.calls, method.batch, *server.shape, dtype=torch.uint8)
        self.student: nn.Module | None = None

    def images(self) -> Tensor:
        """Return the images for clients, uint8 [n, channels, h, w]."""
        method, server = self.method, self.server
        plain = min(method.calls, method.warmup)
        for call in server.steps(plain):
            self.synthesize(call)
        # From here on a student, where the images are many. The constants for CIFAR-100 end before.
        for call in server.steps(method.calls - plain):
            self.synthesize(plain + call)
            self.teach(plain + call + 1)
        return self.made.flatten(0, 1)[first_by_name(method.calls, method.batch, method.images)]

    def synthesize(self, call: int) -> None:
        """Store the batch of this call, from 0: of all steps' images, unaugmented, those with the least loss."""
        method, server, best = self.method, self.server, Best()
        dtype = server.parameters.dtype
        z = torch.randn(method.batch, method.z).to(server.device, dtype).requires_grad_()
        labels = to_device(torch.randint(len(self.seen), (method.batch,)), server.device)
        fast = copy.deepcopy(self.generator)
        optimizer = Adam([{"params": fast.parameters()}, {"params": [z], "lr": method.lr_z}], method.lr_g, BETAS)
        self.meta.zero_grad(set_to_none=False)
        for _ in server.steps(method.steps):
            images = fast(z)
            loss = self.loss(images, labels, adversarial=call + 1 >= method.warmup)
            best.offer(loss, images)
            optimizer.zero_grad()
            loss.backward()
            if method.meta == "maml":
                _add_gradients(self.generator, [one.grad for one in fast.parameters()])
            optimizer.step()
        self.match.end_call()
        if method.meta == "reptile":
            pairs = zip(self.generator.parameters(), fast.parameters(), strict=True)
            _add_gradients(self.generator, [REPTILE * (own - other).detach() for own, other in pairs])
        self.meta.step()
        self.made[call] = as_bytes(best.images)

    def loss(self, images: Tensor, labels: Tensor, adversarial: bool) -> Tensor:
        """Return bn L_bn + oh CE(teacher, labels) + adv L_adv, over the classes seen; labels are indices of these."""
        method, x = self.method, self.shown(images)
        logits, layers = with_batch_statistics(self.teacher, x)
        logits = logits.index_select(1, self.seen)
        loss = method.oh * functional.cross_entropy(logits, labels)
        if method.bn:
            loss = loss + method.bn * self.match.loss(layers)
        if method.adv and adversarial:
            # The first of these calls sees a student that is not trained yet, as the authors' does.
            learnt = self.drawn_student().eval()(x).index_select(1, self.seen)
            loss = loss + method.adv * adversarial_loss(logits, learnt)
        return loss

    def drawn_student(self) -> nn.Module:
        """Return the student, drawn on its first use, with its optimizer."""
        if self.student is None:
            self.student = self.server.network_at()
            redraw(self.student)
            self.optimizer = SGD(self.student.parameters(), **STUDENT)
            self.schedule = CosineAnnealingLR(self.optimizer, COSINE, LEAST_RATE)
        return self.student

    def teach(self, calls: int) -> None:
        """Distill the teacher into the student on the images of the first calls: T^2 KL, as a cross-entropy."""
        method, student = self.method, self.drawn_student().train()
        rows, made = first_by_name(calls, method.batch, method.images), self.made.flatten(0, 1)
        batches = shuffled_batches(len(rows), method.batch, torch.randperm)
        for _ in self.server.steps(method.student_steps):
            images = to_device(made[rows[next(batches)]], self.server.device).to(self.server.parameters.dtype) / 255
            with torch.no_grad():
                x = self.shown(images)
                known = self.teacher(x).index_select(1, self.seen)
            learnt = student(x).index_select(1, self.seen)
            loss = method.student_temperature**2 * distillation_loss(known, learnt, method.student_temperature)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.schedule.step()


def _add_gradients(module: nn.Module, gradients: Sequence[Tensor | None]) -> None:
    """Add these to the gradients of a module's parameters."""
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        assert gradient is not None
        parameter.grad = gradient.clone() if parameter.grad is None else parameter.grad + gradient
