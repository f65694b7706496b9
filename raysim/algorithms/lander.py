"""LANDER: class names as anchors of features, and images that are generated from them. Tran et al., CVPR 2024.

"Text-enhanced data-free approach for federated class-incremental learning", arXiv 2403.14101. Every class has a fixed
vector, the embedding of its name. A second linear layer on the head's input, att, is trained to output the vector of
a sample's class. At a task's end the server trains a generator, which makes images of these vectors. In the next task,
each client distills the old model's logits and att on the images. The rest is as in TARGET. The defaults are those of
the authors' code for CIFAR-100.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log2, sqrt
from typing import Annotated, Any, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, doc
from torch import Tensor, nn
from torch.nn import functional

from raysim.algorithms.parts.classes_so_far import classes_so_far, is_needed_later
from raysim.algorithms.parts.distillation import distillation_loss
from raysim.algorithms.parts.image_sizes import first_grid, unfit_shape
from raysim.algorithms.parts.label_anchors import LabelGenerator, WithAtt, anchor_loss, labels_in_turn
from raysim.algorithms.parts.label_embeddings import make_vectors, name_classes, unfit_vectors
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
    Delta,
    FlatModel,
    LocalAdam,
    LocalOptimizer,
    LocalSgd,
    Method,
    Repeats,
    Server,
    ServerHalf,
    Setting,
    Step,
    Term,
    Terms,
    Weights,
    to_device,
    with_batch_statistics,
)

BETAS, EPS = (0.5, 0.999), 1e-8  # of Adam
UPSAMPLINGS = 2  # the generator's, for every size
START = (0.5, 0.2)  # of the mean and the deviation that the generator learns to normalize images with
RATE, MOMENTUM, DECAY, STUDENT_BATCH = 0.1, 0.9, 2e-4, 128  # of the student's SGD


@dataclass(frozen=True, kw_only=True)
class Lander(Method):
    """LANDER: features anchored at class names, data-free distillation (Tran et al., CVPR 2024, arXiv 2403.14101)."""

    embeddings: Annotated[str | None, doc("an .npz file of a vector for each class; null hashes their names")] = None
    encoder: Annotated[
        str | None, doc("a text encoder of the classes' names: a folder, hf://OWNER/NAME[@REVISION] or minilm-l6")
    ] = None
    names: Annotated[Sequence[str] | None, doc("the classes' names, in order; null is the dataset's")] = None
    dimension: Annotated[int, Ge(2), doc("the size of vectors that are hashed from names")] = 512
    scale: Annotated[float, Gt(0), doc("the root mean square of the entries of hashed or encoded vectors")] = 0.44
    anchor: Annotated[float, Ge(0), doc("weight of the distance to the vectors, at clients and server")] = 5.0
    radius: Annotated[float, Ge(0), doc("r: the mean squared distance to the vectors below which the loss is 0")] = (
        0.015
    )
    new: Annotated[float, Ge(0), doc("factor of the weight of new data, from task 2 on")] = 0.2
    old: Annotated[float, Ge(0), doc("factor of the weight of generated images")] = 0.4
    temperature: Annotated[float, Gt(0), doc("T: what both models' logits are divided by")] = 2.0
    keep_best: Annotated[bool, doc("a task ends with the model sent in its round of least loss, not the last")] = True
    images: Annotated[int, Ge(2), Repeats("calls", "samples"), doc("the most images that clients receive")] = 10000
    client_batch: Annotated[
        int | None, Ge(2), Repeats("samples"), doc("generated images in a step; null is training.batch_size")
    ] = None
    warmup: Annotated[int, Ge(1), Repeats("calls"), doc("the number of the first generated batch that is stored")] = 10
    calls: Annotated[int, Ge(1), Repeats("calls"), doc("generated batches that are stored after the first one")] = 40
    batch: Annotated[int, Ge(2), Repeats("samples"), doc("images in a generated batch")] = 256
    steps: Annotated[int, Ge(1), Repeats("steps"), doc("steps of Adam on each generated batch")] = 40
    lr_g: Annotated[float, Gt(0), doc("the learning rate of the generator")] = 0.002
    lr_s: Annotated[float, Gt(0), doc("the learning rate of the images' mean and deviation")] = 0.01
    moments: Annotated[Literal["learned", "dataset"], doc("how generated images are normalized to train on")] = (
        "learned"
    )
    bn: Annotated[float, Ge(0), doc("weight of the distance of BatchNorm's statistics; 0 needs no BatchNorm")] = 1.0
    oh: Annotated[float, Ge(0), doc("weight of the cross-entropy with the labels")] = 0.5
    adv: Annotated[float, Ge(0), doc("weight of the disagreement with the student, 3 batches after `warmup`")] = 1.0
    student_steps: Annotated[int, Ge(1), Repeats("steps"), doc("steps of the student after each stored batch")] = 50
    student_temperature: Annotated[float, Gt(0), doc("T of the student's distillation")] = 20.0
    hidden: Annotated[int, Ge(1), doc("the outputs of the noisy layer")] = 256
    width: Annotated[int, Ge(1), doc("the channels of the generator's first grid; half of them at the end")] = 128

    needs: ClassVar = frozenset({"server_boundaries", "one_head", "classes"})
    instead: ClassVar = {"barrier": "keep_best=false"}
    files: ClassVar = ("embeddings", "encoder")
    replies: ClassVar = {"projection": "mean", "first_epoch": "sum"}

    def waits(self) -> bool:
        """Return whether losses are compared between rounds: all of a round's must be of the model that was sent."""
        return self.keep_best

    def head_parts(self) -> int:
        """Return 1: att reads what enters the head."""
        return 1

    def unfit(self, model: FlatModel) -> str | None:
        """Refuse samples that no generator makes, a model without the statistics to match, and unfit vectors."""
        if why := unfit_vectors(model.layout[model.head[0]][0], self.embeddings, self.encoder, self.names):
            return why
        return unfit_shape(model.shape) or (lacks_statistics(model) if self.bn else None)

    def refusal(self, setting: Setting) -> str | None:
        """Refuse an encoder without names to encode."""
        if self.encoder is not None and self.names is None and setting.class_names is False:
            return "found an encoder, but the dataset has no class names, allowed: names=[..], or encoder=null"
        return None

    def weights(self, seen: int, old: int) -> tuple[float, float]:
        """Return the weights of the new data and of the generated images, given how many classes are seen and old."""
        a, b = log2(seen / 2 + 1), sqrt(old / seen)
        return self.new * (1 + 1 / a) / b, self.old * a * b

    class Client(ClientHalf):
        """Trains the model with att, on new data and generated images."""

        features: ClassVar = True
        transient: ClassVar = ClientHalf.transient | {"shown", "att", "old_att", "optimizer"}
        method: Lander
        old: Tensor | None = None  # int64: the classes of earlier tasks
        seen: int = 0  # how many classes the tasks so far have
        first_epoch: Tensor | None = None  # the sum of the losses of this phase's first epoch
        in_first_epoch: bool = True
        shown: Iterator[Tensor] | None = None  # this phase's batches of generated images
        att: FlatModel | None = None
        old_att: FlatModel | None = None
        optimizer: LocalOptimizer | None = None

        def start(self, client: Client, message: tuple[tuple[int, ...], int]) -> None:
            """Load att and, from task 2 on, the old model's; begin to go through the images."""
            old, self.seen = message
            self.old, self.old_att = None, None
            sent, build = client.from_server(f"{self.name}.projection"), self._build(client)
            self.att = client.auxiliary_network(f"{self.name}.projection", build, sent)
            self.att.gradient.zero_()
            self.optimizer = client.new_optimizer()
            self.first_epoch, self.in_first_epoch = client.model.parameters.new_zeros(1), True
            if old:
                self.old = to_device(torch.tensor(old), client.model.device)
                _, _, att, images = client.from_server(self.name)
                weights = Weights(att, att.new_zeros(0), torch.zeros(0, dtype=torch.int64))
                self.old_att = client.auxiliary_network(f"{self.name}.old projection", build, weights)
                self.shown = synthetic_batches(client, self.name, images, self.method.client_batch)

        def task_loss(self, step: Step) -> Tensor:
            """Return CE + anchor L_LTE and, from task 2 on, cur times it + pre (KD + the distance of att, old and new).

            The cross-entropy is over the classes that `training.logits` admits.
            """
            method, client = self.method, step.client
            assert self.att is not None
            vectors = client.from_server(f"{self.name}.embeddings").index_select(0, step.y)
            loss = client.loss(step.logits, step.y)
            if method.anchor:
                loss = loss + method.anchor * anchor_loss(self.att(step.features), vectors, method.radius)
            if self.old is None:
                return loss
            current, previous = method.weights(self.seen, len(self.old))
            return current * loss + previous * self._distill(client)

        def observe(self, step: Step) -> None:
            """Take att's step, with the model's optimizer and learning rate, and add up the first epoch's losses."""
            assert self.att is not None
            assert self.optimizer is not None
            self.optimizer.step(self.att.parameters, self.att.gradient, step.client.lr)
            self.att.gradient.zero_()
            if self.in_first_epoch and self.first_epoch is not None:
                self.first_epoch += step.loss.detach()
                self.in_first_epoch = not step.ends_epoch

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Send the change of att, and the sum of the losses of the first epoch."""
            assert self.att is not None
            assert self.first_epoch is not None
            change = self.att.parameters - client.from_server(f"{self.name}.projection").parameters
            terms = {"projection": Term(change), "first_epoch": Term(self.first_epoch)}
            self.first_epoch = None
            return delta, terms

        def _distill(self, client: Client) -> Tensor:
            """Return KD(old model, model; T) over the old classes + mean (att - att of the old model)^2, on images.

            As in the authors' code, the images pass the model separately from the new data, in training mode:
            BatchNorm normalizes each batch by itself, and its running statistics follow both.
            """
            assert self.shown is not None
            assert self.att is not None
            assert self.old_att is not None
            model, old = client.model, self.old
            assert old is not None
            parameters, buffers, _, _ = client.from_server(self.name)
            with client.rng_scope(self.name):
                x = next(self.shown)
                logits, features = model.with_features(x)
                old_features = model.inputs(x, parameters, buffers, [model.head[0]])[model.head[0]]
            old_head = [model.named(parameters)[name] for name in model.head]
            old_logits = functional.linear(old_features, *old_head)
            with torch.no_grad():
                target = self.old_att(old_features)
            known, learnt = old_logits.index_select(1, old), logits.index_select(1, old)
            distilled = distillation_loss(known, learnt, self.method.temperature)
            return distilled + functional.mse_loss(self.att(features), target)

        def _build(self, client: Client) -> Any:
            inputs, outputs = client.model.widths[client.model.head[0]], client.from_server(f"{self.name}.embeddings")
            return lambda: nn.Linear(inputs, outputs.shape[1], dtype=client.model.dtype)

    class Server(ServerHalf):
        """Keeps att and the vectors, chooses the model that ends a task, and generates images from it."""

        method: Lander
        task: int = 0
        version: int = 0  # of att
        embeddings: Tensor | None = None  # [classes, E]
        posted: tuple[Tensor, ...] | None = None  # the old model's parameters and buffers, those of its att, images
        least: float = inf  # the least loss of a round of this task
        kept: tuple[Tensor, ...] | None = None  # what was sent in it: the model's vectors and att's parameters

        def announce(self, server: Server) -> tuple[tuple[tuple[int, ...], int], Sequence[Broadcast]]:
            """Send the old classes and how many were seen; broadcast the vectors, att, the old model and images."""
            broadcasts = [
                Broadcast(f"{self.name}.embeddings", 0, self.vectors(server)),
                Broadcast(f"{self.name}.projection", self.version, self.att(server).weights()),
            ]
            old: tuple[int, ...] = ()
            if self.posted is not None:
                broadcasts.append(Broadcast(self.name, self.task, self.posted))
                old = server.earlier_classes()
            return (old, len({*old, *server.present_classes()})), broadcasts

        def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
            """Add the mean change to att. Keep the model that was sent if the cohort's losses are the least so far.

            A task's only round is left out: the model that was sent in it has not seen the task.
            """
            if "first_epoch" in reply:
                att, loss = self.att(server), float(reply["first_epoch"])
                is_only = server.progress.is_first and server.progress.is_last
                if self.method.keep_best and not is_only and loss < self.least:
                    sent = (server.parameters, server.buffers, server.integers)
                    self.least, self.kept = loss, (*sent, att.parameters.clone())
                att.parameters.add_(reply["projection"].to(att.parameters))
                self.version += 1
            return delta

        def end_task(self, server: Server) -> None:
            """Restore the kept model. Generate images of all classes so far from it; the last task needs none."""
            att = self.att(server)
            if self.kept is not None:
                server.replace_model(Weights(*self.kept[:3]))
                att.parameters.copy_(self.kept[3])
                self.least, self.kept, self.version = inf, None, self.version + 1
            if is_needed_later(server):
                self.task = server.task + 1
                with server.rng_scope(self.name):
                    images = AnchoredSynthesis(self.method, server, att, self.vectors(server)).images()
                self.posted = (server.parameters, server.buffers, att.weights().parameters, images)

        def att(self, server: Server) -> FlatModel:
            """Return att, the linear layer from the head's inputs to vectors."""
            inputs, outputs = server.network.widths[server.network.head[0]], self.vectors(server).shape[1]
            dtype = server.parameters.dtype
            return server.auxiliary_network(f"{self.name}.projection", lambda: nn.Linear(inputs, outputs, dtype=dtype))

        def vectors(self, server: Server) -> Tensor:
            """Return the vectors of all classes, [classes, E]. They are made once."""
            if self.embeddings is None:
                method = self.method
                names = name_classes(method.names or server.class_names, server.classes)
                vectors = make_vectors(names, method.embeddings, method.encoder, method.dimension, method.scale)
                self.embeddings = vectors.to(server.parameters.dtype)
            return self.embeddings


class AnchoredSynthesis:
    """The data generation at one task's end, Algorithm 1. A generator and a student are drawn for it.

    All torch draws are from the server's stream that the caller has selected. Nothing is meta-learned: TARGET trains
    copies of its generator, LANDER the generator itself.
    """

    def __init__(self, method: Lander, server: Server, att: FlatModel, embeddings: Tensor) -> None:
        self.method, self.server, self.shown, self.match = method, server, Shown(server), StatisticsMatch()
        self.seen = torch.tensor(classes_so_far(server), device=server.device)
        self.vectors = embeddings.to(server.device).index_select(0, self.seen)
        head, dtype = server.network.head[0], server.parameters.dtype
        self.teacher = WithAtt(server.network_at(), head, copy.deepcopy(att.module)).eval().requires_grad_(False)
        student = WithAtt(server.network_at(), head, copy.deepcopy(att.module))
        redraw(student)
        self.student = FlatModel(student)
        channels, height, width = server.shape
        decoder = ImageDecoder(method.hidden, channels, *first_grid(height, width, UPSAMPLINGS), method.width)
        self.noisy = LabelGenerator(embeddings.shape[1], method.hidden, method.batch, decoder)
        self.generator = FlatModel(self.noisy.to(server.device, dtype))
        # The paper learns how images are normalized, so that the dataset's statistics need not be known: a mean and a
        # deviation by channel. Stored images are normalized by the dataset's all the same, at clients and for the
        # student.
        self.moments = torch.tensor(START, device=server.device, dtype=dtype).repeat_interleave(channels)
        self.made = torch.zeros(method.calls + 1, method.batch, *server.shape, dtype=torch.uint8)
        self.labels = torch.zeros(0, dtype=torch.int64)  # of the latest batch: indices of the classes seen

    def images(self) -> Tensor:
        """Return the images for clients, uint8 [n, channels, h, w]."""
        method, server = self.method, self.server
        for _ in range(method.warmup - 1):
            self.synthesize(adversarial=False)
        for call in range(method.calls + 1):
            # The student's disagreement counts from the third batch after the warm-up on, in the authors' code.
            self.made[call] = as_bytes(self.synthesize(adversarial=call > 2))
            self.teach(call + 1)
        made, taught = method.warmup + method.calls, method.calls + 1
        server.record("server_steps", made * method.steps + taught * method.student_steps)
        show_batch(server, self.made[-1], self.seen[self.labels])
        return self.made.flatten(0, 1)[first_by_name(method.calls + 1, method.batch, method.images)]

    def synthesize(self, adversarial: bool) -> Tensor:
        """Return a batch: of all steps' images, unaugmented, those with the least loss."""
        method, generator, best = self.method, self.generator, Best()
        labels = labels_in_turn(len(self.seen), method.batch)
        self.labels = labels = to_device(labels, self.server.device)
        vectors = self.vectors.index_select(0, labels)
        self.noisy.redraw()
        of_generator, of_moments = LocalAdam(BETAS, EPS, 0.0, False), LocalAdam(BETAS, EPS, 0.0, False)
        for _ in range(method.steps):
            images, leaf = generator(vectors), self.moments.detach().requires_grad_()
            loss = self.loss(images, labels, vectors, leaf.chunk(2), adversarial)
            best.offer(loss, images)
            generator.gradient.zero_()
            loss.backward()
            of_generator.step(generator.parameters, generator.gradient, method.lr_g)
            if leaf.grad is not None:  # they are learned
                of_moments.step(self.moments, leaf.grad, method.lr_s)
        self.match.end_call()
        return best.images

    def loss(
        self, images: Tensor, labels: Tensor, vectors: Tensor, moments: Sequence[Tensor], adversarial: bool
    ) -> Tensor:
        """Return bn L_bn + oh CE(teacher, labels) + adv L_adv + anchor L_LTE.

        `labels` are indices of the classes seen, `vectors` [n, E] theirs, and `moments` the mean and the deviation.
        """
        method, x = self.method, self.shown(images, moments if self.method.moments == "learned" else None)
        (logits, att), layers = with_batch_statistics(self.teacher, x)
        logits = logits.index_select(1, self.seen)
        loss = method.oh * functional.cross_entropy(logits, labels)
        if method.anchor:
            loss = loss + method.anchor * anchor_loss(att, vectors, method.radius)
        if method.bn:
            loss = loss + method.bn * self.match.loss(layers)
        if method.adv and adversarial:
            learnt = self.student.module.eval()(x)[0].index_select(1, self.seen)
            loss = loss + method.adv * adversarial_loss(logits, learnt)
        return loss

    def teach(self, calls: int) -> None:
        """Distill the teacher's logits and att into the student, on the images of the first calls."""
        method, student, optimizer = self.method, self.student, LocalSgd(MOMENTUM, False, DECAY)
        student.module.train()
        rows, made = first_by_name(calls, method.batch, method.images), self.made.flatten(0, 1)
        batches = shuffled_batches(len(rows), STUDENT_BATCH, torch.randperm)
        for _ in range(method.student_steps):
            x = self.shown(to_device(made[rows[next(batches)]], self.server.device) / 255)
            known, target = self.teacher(x)
            learnt, att = student.module(x)
            known, learnt = (logits.index_select(1, self.seen) for logits in (known, learnt))
            loss = method.student_temperature**2 * distillation_loss(known, learnt, method.student_temperature)
            loss = loss + method.anchor * functional.mse_loss(att, target)
            student.gradient.zero_()
            loss.backward()
            optimizer.step(student.parameters, student.gradient, RATE)
