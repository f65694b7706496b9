"""The local loop: epochs of mini-batch steps on one client's data, with the methods' hooks."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import count, islice, repeat
from typing import Any

import numpy as np
import torch
from torch import Tensor

from raysim.api.client import Client
from raysim.api.local_optimizer import LocalOptimizer
from raysim.api.messages import Delta
from raysim.api.method import INSIDE_THE_LOOP, ClientHalf, halves_with_hook
from raysim.api.step import Step
from raysim.data.pixels import Source
from raysim.engine.hook_calls import HookCalls
from raysim.engine.hook_checks import check_loss, check_outputs
from raysim.engine.hook_errors import name_backward
from raysim.engine.optimizer import ScaledOptimizer
from raysim.engine.other_heads import OtherHeads
from raysim.federation.targets import refuse_infinite
from raysim.models.inputs import as_input
from raysim.system.custom_code import is_custom
from raysim.system.device import to_device

IN_THE_LOSS = ("batch", "task_loss", "penalty")  # the hooks before the backward pass


def run_local_loop(
    client: Client,
    positions: Tensor,
    halves: Sequence[ClientHalf],
    remember: Callable[[Step], None] | None,
    kept: dict[str, Any] | None,
    calls: HookCalls,
) -> Delta:
    """Train the current model on the client's data.

    Args:
        client: the client.
        positions: the positions (int64 [n]) that an epoch runs over, as from `choose_samples`.
        halves: its methods' client halves.
        remember: offers a step's samples to the memory; None if the memory is not filled on arrival.
        kept: the optimizer's attributes at the end of the last phase, which those of this phase's end replace. None
            begins with a new optimizer.
        calls: calls the halves' hooks.

    Returns:
        The change of the model's parameters and float buffers.
    """
    model, loop = client.model, LocalLoop(client, halves, remember, kept, calls)
    buffers = model.buffers.clone()
    model.module.train()
    for left in epochs(client, lambda: loop.number):
        batches = foreign_batches(client, halves, calls)
        if batches is not None:
            steps = _foreign_steps(client, islice(batches, left), loop.number)
        else:
            steps = epoch_of(client, positions, loop.number, left)
        for step in steps:
            loop.step(step)
    loop.end()
    client.steps = loop.number
    if loop.samples:
        client.record("loss", loop.total_loss / loop.samples)
    return Delta(model.parameters - client.received, model.buffers - buffers)


def epochs(client: Client, taken: Callable[[], int]) -> Iterator[int | None]:
    """Yield at each epoch of a phase how many steps are left, given those taken so far; None is no limit."""
    total = client.shared.training.local_steps
    if total is None:
        yield from repeat(None, client.local_epochs)
        return
    while (before := taken()) < total:
        yield total - before
        if taken() == before:  # the epoch has no batches: the loop would never reach `total`
            return


def choose_samples(client: Client, halves: Sequence[ClientHalf], calls: HookCalls) -> Tensor:
    """Return the positions (int64 [n]) that an epoch runs over."""
    for half in halves_with_hook(halves, "samples"):
        chosen: Tensor = calls(half, "samples", client)
        return chosen
    return client.arrived


def foreign_batches(
    client: Client, halves: Sequence[ClientHalf], calls: HookCalls
) -> Iterable[tuple[Tensor, Tensor]] | None:
    """Return an epoch's batches from another source than the stream, or None."""
    for half in halves_with_hook(halves, "batches"):
        batches: Iterator[tuple[Tensor, Tensor]] | None = calls(half, "batches", client)
        return batches
    return None


def _foreign_steps(client: Client, batches: Iterable[tuple[Tensor, Tensor]], first: int) -> Iterator[Step]:
    """Yield the steps of one epoch over these batches."""
    remaining, no_positions = iter(batches), torch.zeros(0, dtype=torch.int64)
    batch = next(remaining, None)
    for number in count(first):
        if batch is None:
            return
        following = next(remaining, None)
        yield Step(client, number, following is None, no_positions, None, *batch)
        batch = following


def epoch_of(client: Client, positions: Tensor, first: int, most: int | None) -> Iterator[Step]:
    """Shuffle these positions and yield the steps of one epoch, at most `most`. Data goes to a GPU once per epoch."""
    model = client.model
    epoch, draws, sizes = shuffle_epoch(client, positions, most)
    rows, task = client.stream.locate(epoch)
    rows = to_device(client.data.held(rows), model.device)
    tasks = to_device(task, model.device)
    labels = client.data.labels(rows)
    draws_there = to_device(draws, model.device)
    batches = zip(
        client.data.fetch_each(rows, tasks, draws_there, sizes),
        labels.split(sizes),
        epoch.split(sizes),
        [None] * len(sizes) if draws is None else draws.split(sizes),
        strict=True,
    )
    for number, (x, y, of_batch, drawn) in enumerate(batches, first):
        yield Step(client, number, number - first == len(sizes) - 1, of_batch, drawn, as_input(x, model.dtype), y)


def shuffle_epoch(client: Client, positions: Tensor, most: int | None) -> tuple[Tensor, Tensor | None, list[int]]:
    """Return an epoch's positions in random order, their augmentation, and the sizes of its batches, at most `most`."""
    epoch = positions[torch.from_numpy(client.generator("batches").permutation(len(positions)))]
    sizes = [part.stop - part.start for part in client.batches(len(epoch))[:most]]
    draws = _draw(client.data, client.generator("augment"), sizes) if client.data.augment else None
    return epoch[: sum(sizes)], draws, sizes


def _draw(data: Source, augment: np.random.Generator, sizes: Sequence[int]) -> Tensor:
    """Draw the random numbers for an epoch's augmentation, batch by batch; see `Source.draw`."""
    drawn = [data.draw(augment, size) for size in sizes]
    return torch.from_numpy(np.concatenate(drawn or [data.draw(augment, 0)]))


class LocalLoop:
    """The steps of one phase, with a new optimizer. Arguments as in `run_local_loop`."""

    def __init__(
        self,
        client: Client,
        halves: Sequence[ClientHalf],
        remember: Callable[[Step], None] | None,
        kept: dict[str, Any] | None,
        calls: HookCalls,
    ) -> None:
        training = client.shared.training
        self.client = client
        self.optimizer: LocalOptimizer = (
            ScaledOptimizer(training.optimizer, client.model.layout, training.lr_scales)
            if training.lr_scales
            else training.optimizer.make()
        )
        self.kept = kept
        vars(self.optimizer).update(kept or {})
        self.other_heads = OtherHeads(client.model, client.kept_out) if training.logits == "task" else None
        self.in_bfloat16 = training.precision == "bf16"
        self.parts = training.accumulate
        self.clip_norm = training.clip_norm
        self.remember = remember
        self.calls = calls
        self.halves = {hook: halves_with_hook(halves, hook) for hook in INSIDE_THE_LOOP}  # looked up once per phase
        self.features = any(half.features for half in halves)
        self.number = 0  # how many steps were taken
        self.samples = 0  # how many samples they had
        self.total_loss = torch.zeros((), dtype=client.model.dtype, device=client.model.device)
        # Whether a user-defined objective returned a loss that is not finite. It stays on the device until `end`.
        self.infinite = (
            torch.zeros_like(self.total_loss, dtype=torch.bool) if is_custom(type(client.shared.objective)) else None
        )

    def step(self, step: Step) -> None:
        """Take one step: forward and backward pass, hooks, optimizer, memory."""
        client, model, call = self.client, self.client.model, self.calls
        for half in self.halves["batch"]:
            call(half, "batch", step)
        if self.parts == 1:
            self._differentiate(step)
        else:
            self._differentiate_in_parts(step)
        if self.infinite is not None:
            self.infinite |= step.logits.isfinite().all() & ~step.loss.isfinite()
        gradient = model.gradient
        for half in self.halves["gradient"]:
            gradient = call(half, "gradient", step, gradient)
        if self.clip_norm is not None:
            gradient = gradient * (self.clip_norm / (gradient.norm() + 1e-6)).clamp(max=1.0)
        others = self.other_heads
        kept = nullcontext() if others is None else others.kept(model.parameters, gradient)
        with self.calls.profile.part("client: optimizer"), kept:
            self.optimizer.step(model.parameters, gradient, client.lr)
        self.total_loss.add_(step.loss.detach(), alpha=len(step.y))
        self.samples += len(step.y)
        self.number += 1
        for half in self.halves["observe"]:
            call(half, "observe", step)
        if self.remember is not None:
            with self.calls.profile.part("client: memory"):
                self.remember(step)

    def _differentiate(self, step: Step) -> None:
        """Compute the step's logits and loss, and the model's gradient, with the methods' losses and penalties."""
        client, call, owner = self.client, self.calls, self.halves["task_loss"]
        with self.calls.profile.part("client: forward pass"):
            self._forward(step)
        if owner:
            loss = step.loss = call(owner[0], "task_loss", step)
        else:
            loss = step.loss = client.loss(step.logits, step.y)
        for half in self.halves["penalty"]:
            loss = loss + call(half, "penalty", step)
        check_loss(owner[0] if owner else None, client.model, loss)
        client.model.gradient.zero_()
        self._backward(loss)

    def _differentiate_in_parts(self, step: Step) -> None:
        """Compute the same part by part, so that only one part's activations are in memory. No method changes the loss.

        The batch's loss is a mean over terms, so the weight of a part's loss is its number of terms. A part without a
        term would have no mean.
        """
        client, objective = self.client, self.client.shared.objective
        parts = [*zip(step.x.tensor_split(self.parts), step.y.tensor_split(self.parts), strict=True)]
        terms = [int(objective.terms(y)) for _, y in parts]
        logits, loss = [], torch.zeros_like(self.total_loss)
        client.model.gradient.zero_()
        for (x, y), of_part in zip(parts, terms, strict=True):
            if not len(y):  # a last batch may have fewer samples than there are parts
                continue
            part = replace(step, x=x, y=y)
            with self.calls.profile.part("client: forward pass"):
                self._forward(part)
            logits.append(part.logits.detach())
            if of_part:
                part_loss = client.loss(part.logits, y) * (of_part / sum(terms))
                check_loss(None, client.model, part_loss)
                self._backward(part_loss)
                loss += part_loss.detach()
        step.logits, step.loss = torch.cat(logits), loss

    def _backward(self, loss: Tensor) -> None:
        """Add the loss's gradient to the model's."""
        with self.calls.profile.part("client: backward pass"):
            try:
                loss.backward()
            except RuntimeError as error:
                name_backward(error, [(half, hook) for hook in IN_THE_LOSS for half in self.halves[hook]])
                raise

    def _forward(self, step: Step) -> None:
        """Set the step's logits and, if a half needs them, its features, in the model's dtype."""
        model = self.client.model
        with torch.autocast(model.device.type, torch.bfloat16) if self.in_bfloat16 else nullcontext():
            if self.features:
                step.logits, step.features = model.with_features(step.x)
            else:
                step.logits = model(step.x)
        check_outputs(model, step.logits, len(step.x))
        if self.in_bfloat16:
            step.logits, step.features = step.logits.to(model.dtype), step.features.to(model.dtype)

    def end(self) -> None:
        """Check the losses, and store the optimizer if it is kept. Raises WrongResult: see refuse_infinite."""
        if self.infinite is not None and bool(self.infinite):
            shared, excluded = self.client.shared, self.client.kept_out
            masks = excluded is not None and bool(excluded.any())
            refuse_infinite(shared.objective, shared.training.logits if masks else None)
        if self.kept is not None:
            self.kept.update(vars(self.optimizer))
