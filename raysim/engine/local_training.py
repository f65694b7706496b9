"""The local loop: epochs of mini-batch steps on one client's data, with the methods' hooks at their places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from raysim.api.client import Client
from raysim.api.messages import Delta
from raysim.api.method import ClientHalf, halves_with_hook
from raysim.api.step import Step
from raysim.data.pixels import Source
from raysim.data.user_stream import UserStream
from raysim.engine.optimizer import Optimizer
from raysim.system.device import to_device


def train(client: Client, halves: Sequence[ClientHalf], loop: LocalLoop) -> Delta:
    """Train the model at hand on the client's data and return the change of its parameters and statistics."""
    model = client.model
    buffers = model.buffers.clone()
    positions = choose_samples(client, halves)
    client.trained = len(positions)
    shuffle = client.generator("batches")
    augment = client.generator("augment") if client.data.augment else None
    model.module.train()
    for _ in range(client.local_epochs):
        epoch = positions[torch.from_numpy(shuffle.permutation(len(positions)))]
        for step in _steps(client, epoch, augment, loop.number):
            loop.step(step)
    client.steps = loop.number
    client.record("loss", loop.mean_loss())
    return Delta(model.parameters - client.received, model.buffers - buffers)


def choose_samples(client: Client, halves: Sequence[ClientHalf]) -> Tensor:
    """Return the positions (int64) that an epoch runs over."""
    return next((half.samples(client) for half in halves_with_hook(halves, "samples")), client.arrived)


def _steps(client: Client, epoch: Tensor, augment: np.random.Generator | None, first: int) -> Iterator[Step]:
    """Yield the steps of one epoch over these positions. What a GPU has to be sent, it is sent once for the epoch."""
    model, parts = client.model, client.batches(len(epoch))
    draws = None if augment is None else _draw(client.data, augment, parts)
    rows, task = client.stream.locate(epoch)
    rows = to_device(client.data.held(rows), model.device)
    tasks = to_device(task, model.device) if isinstance(task, Tensor) else task
    labels = client.data.labels(rows)
    shown = None if draws is None else to_device(draws, model.device)
    for number, part in enumerate(parts, first):
        of_task = tasks[part] if isinstance(tasks, Tensor) else tasks
        x = client.data.fetch(rows[part], of_task, _part(shown, part)).to(model.dtype)
        yield Step(client, number, part is parts[-1], epoch[part], _part(draws, part), x, labels[part])


def _draw(data: Source | UserStream, augment: np.random.Generator, parts: Sequence[slice]) -> Tensor:
    """Draw an epoch's augmentation (int64 [n, 3]), batch by batch."""
    drawn = [data.draw(augment, part.stop - part.start) for part in parts]
    return torch.from_numpy(np.concatenate([np.zeros((0, 3), np.int64), *drawn]))


def _part(draws: Tensor | None, part: slice) -> Tensor | None:
    return None if draws is None else draws[part]


class LocalLoop:
    """The steps of one phase: the hooks that exist, looked up once, and the running loss.

    Args:
        client: whose phase it is.
        halves: its methods' halves.
        optimizer: a fresh one.
        clip_norm: the largest norm that a gradient may have, or None.
        remember: offers a step's new data to the memory; None if it is not filled on arrival.
    """

    def __init__(
        self,
        client: Client,
        halves: Sequence[ClientHalf],
        optimizer: Optimizer,
        clip_norm: float | None,
        remember: Callable[[Step], None] | None,
    ) -> None:
        self.client = client
        self.optimizer = optimizer
        self.clip_norm = clip_norm
        self.remember = remember
        self.batch = halves_with_hook(halves, "batch")
        self.task_loss = halves_with_hook(halves, "task_loss")
        self.penalty = halves_with_hook(halves, "penalty")
        self.gradient = halves_with_hook(halves, "gradient")
        self.observe = halves_with_hook(halves, "observe")
        self.number = 0
        self.samples = 0
        self.total_loss = torch.zeros((), dtype=client.model.dtype, device=client.model.device)

    def step(self, step: Step) -> None:
        """Take one step: forward, backward, the methods' changes, the optimizer; then let the methods observe it."""
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
        if self.remember is not None:
            self.remember(step)

    def _loss(self, step: Step) -> Tensor:
        for half in self.task_loss:
            return half.task_loss(step)
        return self.client.cross_entropy(step.logits, step.y)

    def mean_loss(self) -> Tensor:
        """Return the mean loss over all samples of the phase's steps, a scalar."""
        return self.total_loss / max(self.samples, 1)
