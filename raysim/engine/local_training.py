"""The local loop: epochs of mini-batch steps on one client's data, with the methods' hooks at their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from raysim.api.messages import Delta
from raysim.api.method import ClientHalf, overrides
from raysim.engine import optimizer
from raysim.system.device import to_device

if TYPE_CHECKING:
    from raysim.api.client import Client
    from raysim.data.pixels import Source
    from raysim.data.user_stream import UserStream


NONE = torch.zeros(())  # what a step's logits and loss are before the forward pass


@dataclass(slots=True)
class Step:
    """One step of the local loop.

    `positions` (int64 [n]) are those of the new data, `draws` (int64 [n, 3] or None) their augmentation, both on the
    CPU; x [n, ...] and y [n] may hold more rows, which a method added. `ends_epoch` marks the last step of an epoch.
    """

    client: Client
    number: int
    ends_epoch: bool
    positions: Tensor
    draws: Tensor | None
    x: Tensor
    y: Tensor
    logits: Tensor = NONE
    loss: Tensor = NONE


def with_hook(client: Client, hook: str) -> list[ClientHalf]:
    """Return the client's halves that bring this hook, in the listed order."""
    return [half for half in client.halves.values() if overrides(type(half), hook)]


def local_training(client: Client) -> Delta:
    """Train the model at hand on the client's data and return the change of its parameters and statistics."""
    model, knobs = client.model, client.host.config.training
    buffers = model.buffers.clone()
    positions = next((half.samples(client) for half in with_hook(client, "samples")), client.arrived)
    client.trained = len(positions)
    loop = _Loop(client)
    shuffle = client.generator("batches")
    augment = client.generator("augment") if client.data.augment else None
    model.module.train()
    for _ in range(knobs.local_epochs):
        epoch = positions[torch.from_numpy(shuffle.permutation(len(positions)))]
        for step in _steps(client, epoch, augment, loop.number):
            loop.step(step)
    client.steps = loop.number
    client.record("loss", loop.mean_loss())
    return Delta(model.parameters - client.received, model.buffers - buffers)


def _steps(client: Client, epoch: Tensor, augment: np.random.Generator | None, first: int) -> Iterator[Step]:
    """Yield the steps of one epoch over these positions. What a GPU has to be sent, it is sent once for the epoch."""
    model, size = client.model, client.host.config.training.batch_size
    parts = batches(len(epoch), size, model.normalises)
    draws = None if augment is None else _drawn(client.data, augment, parts)
    rows, task = client.stream.locate(epoch)
    rows = to_device(client.data.held(rows), model.device)
    tasks = to_device(task, model.device) if isinstance(task, Tensor) else task
    labels = client.data.labels(rows)
    shown = None if draws is None else to_device(draws, model.device)
    for number, part in enumerate(parts, first):
        of_task = tasks[part] if isinstance(tasks, Tensor) else tasks
        x = client.data.fetch(rows[part], of_task, _part(shown, part)).to(model.dtype)
        yield Step(client, number, part is parts[-1], epoch[part], _part(draws, part), x, labels[part])


def _drawn(data: Source | UserStream, augment: np.random.Generator, parts: Sequence[slice]) -> Tensor:
    """Draw an epoch's augmentation (int64 [n, 3]), batch by batch."""
    drawn = [data.draw(augment, part.stop - part.start) for part in parts]
    return torch.from_numpy(np.concatenate([np.zeros((0, 3), np.int64), *drawn]))


def _part(draws: Tensor | None, part: slice) -> Tensor | None:
    return None if draws is None else draws[part]


def batches(samples: int, size: int, normalises: bool) -> list[slice]:
    """Cut an epoch into batches; the last may be smaller.

    A remainder of one sample is left out where the model has BatchNorm, whose statistics one sample does not have; the
    next epoch's order gives that sample its turn.
    """
    parts = [slice(start, min(start + size, samples)) for start in range(0, samples, size)]
    return [part for part in parts if not (normalises and part.stop - part.start == 1)]


class _Loop:
    """The steps of one phase: the hooks that exist, looked up once, and the running loss."""

    def __init__(self, client: Client) -> None:
        knobs = client.host.config.training
        self.client = client
        self.optimizer = optimizer.make_optimizer(knobs.optimizer)
        self.clip_norm = knobs.clip_norm
        self.batch = with_hook(client, "batch")
        self.task_loss = with_hook(client, "task_loss")
        self.penalty = with_hook(client, "penalty")
        self.gradient = with_hook(client, "gradient")
        self.observe = with_hook(client, "observe")
        self.remembers = client.memory is not None and client.memory.fill == "arrival"
        self.number = 0
        self.samples = 0
        self.total_loss = torch.zeros((), dtype=client.model.dtype, device=client.model.device)

    def step(self, step: Step) -> None:
        client, model = self.client, self.client.model
        for half in self.batch:
            half.batch(step)
        step.logits = model.module(step.x)
        step.loss = self._loss(step)
        loss = step.loss
        for half in self.penalty:
            loss = loss + half.penalty(step)
        model.gradient.zero_()
        loss.backward()
        gradient = model.gradient
        for half in self.gradient:
            gradient = half.gradient(step, gradient)
        if self.clip_norm is not None:
            gradient = gradient * (self.clip_norm / (gradient.norm() + 1e-6)).clamp(max=1.0)
        self.optimizer.step(model.parameters, gradient, client.lr)
        self.total_loss.add_(step.loss.detach(), alpha=len(step.y))
        self.samples += len(step.y)
        self.number += 1
        for half in self.observe:
            half.observe(step)
        if self.remembers:
            client.offer(step)

    def _loss(self, step: Step) -> Tensor:
        for half in self.task_loss:
            return half.task_loss(step)
        return self.client.cross_entropy(step.logits, step.y)

    def mean_loss(self) -> Tensor:
        return self.total_loss / max(self.samples, 1)
