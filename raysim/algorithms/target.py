"""TARGET: distill the last task's model on images that are generated from it. Zhang et al., ICCV 2023.

"TARGET: federated class-continual learning via exemplar-free distillation", arXiv 2303.06937. No sample of an earlier
task is stored. At a task's end the server trains a generator. The model should take its images for the classes seen so
far, and their statistics should be those that the model's BatchNorm layers kept. In the next task each client distills
the old model on the images, in addition to its new data. The defaults are those of the authors' code for CIFAR-100.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import cos, pi
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, doc
from torch import Tensor
from torch.nn import functional

from raysim.algorithms.parts.classes_so_far import classes_so_far, is_needed_later
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
    show_batch,
    shuffled_batches,
    synthetic_batches,
)
from raysim.api import (
    Broadcast,
    Client,
    ClientHalf,
    FlatModel,
    LocalAdam,
    LocalSgd,
    Method,
    Repeats,
    Server,
    ServerHalf,
    Step,
    to_device,
    with_batch_statistics,
)

BETAS, EPS = (0.5, 0.999), 1e-8  # of Adam
UPSAMPLINGS = 2  # the generator's, for every size
REPTILE = 67.0  # what a difference of weights is multiplied with, to be a gradient
RATE, MOMENTUM, DECAY = 0.2, 0.9, 1e-4  # of the student's SGD
COSINE, LEAST_RATE = 200, 2e-4  # calls over which the student's rate falls, and what it falls to


@dataclass(frozen=True, kw_only=True)
class Target(Method):
    """TARGET: distills the old model on images generated from it (Zhang et al., ICCV 2023, arXiv 2303.06937)."""

    kd: Annotated[float, Ge(0), doc("weight of the distillation on generated images")] = 25.0
    temperature: Annotated[float, Gt(0), doc("T: what both models' logits are divided by")] = 2.0
    images: Annotated[int, Ge(2), Repeats("calls", "samples"), doc("the most images that clients receive")] = 8000
    client_batch: Annotated[
        int | None, Ge(2), Repeats("samples"), doc("generated images in a step; null is training.batch_size")
    ] = None
    calls: Annotated[
        int, Ge(1), Repeats("calls"), doc("batches of images that the server generates at a task's end")
    ] = 10
    batch: Annotated[int, Ge(2), Repeats("samples"), doc("images in a generated batch")] = 256
    steps: Annotated[
        int,
        Ge(1),
        Repeats("steps"),
        doc("steps on each batch, of Adam on a copy of the generator and on its inputs z"),
    ] = 10
    lr_g: Annotated[float, Gt(0), doc("the learning rate of the copy; the generator's is steps times it")] = 0.002
    lr_z: Annotated[float, Gt(0), doc("the learning rate of z")] = 0.01
    meta: Annotated[Literal["maml", "reptile"], doc("what the generator learns from its copies")] = "maml"
    bn: Annotated[float, Ge(0), doc("weight of the distance of BatchNorm's statistics; 0 needs no BatchNorm")] = 10.0
    oh: Annotated[float, Ge(0), doc("weight of the cross-entropy with drawn labels")] = 0.5
    adv: Annotated[float, Ge(0), doc("weight of the disagreement with the student, from the batch `warmup` on")] = 1.0
    warmup: Annotated[int, Ge(1), Repeats("calls"), doc("the batches before the student is trained")] = 20
    student_steps: Annotated[int, Ge(1), Repeats("steps"), doc("steps of the student after each later batch")] = 400
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
            if self.method.kd and is_needed_later(server):
                self.task = server.task + 1
                with server.rng_scope(self.name):
                    images = Synthesis(self.method, server).images()
                self.posted = (server.parameters, server.buffers, images)


class Synthesis:
    """The data generation at one task's end, Section 4.2 and Algorithm 2. A generator and a student are drawn for it.

    All draws are from the stream of torch's that the caller has selected.
    """

    def __init__(self, method: Target, server: Server) -> None:
        self.method, self.server, self.shown, self.match = method, server, Shown(server), StatisticsMatch()
        self.seen = torch.tensor(classes_so_far(server), device=server.device)
        self.teacher = server.network_at().requires_grad_(False)
        channels, height, width = server.shape
        generator = ImageDecoder(method.z, channels, *first_grid(height, width, UPSAMPLINGS), method.width)
        generator.to(server.device, server.parameters.dtype)
        self.generator, self.fast = FlatModel(generator), FlatModel(copy.deepcopy(generator))
        self.meta = LocalAdam(BETAS, EPS, 0.0, False)  # the generator's, through all calls
        self.made = torch.zeros(method.calls, method.batch, *server.shape, dtype=torch.uint8)
        self.labels = torch.zeros(0, dtype=torch.int64)  # of the latest batch: indices of the classes seen
        self.student: FlatModel | None = None
        self.optimizer, self.taught = LocalSgd(MOMENTUM, False, DECAY), 0  # the student's, and how often it was taught

    def images(self) -> Tensor:
        """Return the images for clients, uint8 [n, channels, h, w]."""
        method, server = self.method, self.server
        # The constants for CIFAR-100 end before there is a student: 10 calls, and a warm-up of 20.
        for call in range(method.calls):
            self.synthesize(call)
            if call >= method.warmup:
                self.teach(call + 1)
        server.record("server_steps", method.calls * method.steps + self.taught * method.student_steps)
        show_batch(server, self.made[-1], self.seen[self.labels])
        return self.made.flatten(0, 1)[first_by_name(method.calls, method.batch, method.images)]

    def synthesize(self, call: int) -> None:
        """Store the batch of this call, from 0: of all steps' images, unaugmented, those with the least loss."""
        method, server, fast, best = self.method, self.server, self.fast, Best()
        z = torch.randn(method.batch, method.z).to(server.device, server.parameters.dtype)
        self.labels = labels = to_device(torch.randint(len(self.seen), (method.batch,)), server.device)
        fast.load(self.generator.copy())
        of_copy, of_z = LocalAdam(BETAS, EPS, 0.0, False), LocalAdam(BETAS, EPS, 0.0, False)
        self.generator.gradient.zero_()
        for _ in range(method.steps):
            images = fast(leaf := z.detach().requires_grad_())
            loss = self.loss(images, labels, adversarial=call + 1 >= method.warmup)
            best.offer(loss, images)
            fast.gradient.zero_()
            loss.backward()
            if method.meta == "maml":
                self.generator.gradient.add_(fast.gradient)
            assert leaf.grad is not None
            of_copy.step(fast.parameters, fast.gradient, method.lr_g)
            of_z.step(z, leaf.grad, method.lr_z)
        self.match.end_call()
        if method.meta == "reptile":
            self.generator.gradient.copy_(REPTILE * (self.generator.parameters - fast.parameters))
        self.meta.step(self.generator.parameters, self.generator.gradient, method.lr_g * method.steps)
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
            learnt = self.drawn_student().module.eval()(x).index_select(1, self.seen)
            loss = loss + method.adv * adversarial_loss(logits, learnt)
        return loss

    def drawn_student(self) -> FlatModel:
        """Return the student, which is drawn on its first use."""
        if self.student is None:
            network = self.server.network_at()
            redraw(network)
            self.student = FlatModel(network)
        return self.student

    def teach(self, calls: int) -> None:
        """Distill the teacher into the student on the images of the first calls: T^2 KL, as a cross-entropy."""
        method, student = self.method, self.drawn_student()
        student.module.train()
        rows, made = first_by_name(calls, method.batch, method.images), self.made.flatten(0, 1)
        batches = shuffled_batches(len(rows), method.batch, torch.randperm)
        lr = LEAST_RATE + (RATE - LEAST_RATE) * (1 + cos(pi * self.taught / COSINE)) / 2
        for _ in range(method.student_steps):
            x = self.shown(to_device(made[rows[next(batches)]], self.server.device) / 255)
            known, learnt = (logits.index_select(1, self.seen) for logits in (self.teacher(x), student(x)))
            loss = method.student_temperature**2 * distillation_loss(known, learnt, method.student_temperature)
            student.gradient.zero_()
            loss.backward()
            self.optimizer.step(student.parameters, student.gradient, lr)
        self.taught += 1
