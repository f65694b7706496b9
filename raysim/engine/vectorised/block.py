"""The local loop of several clients at a time: `training.vectorise`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from raysim.api.method import halves_with_hook, overrides
from raysim.api.step import Step
from raysim.config.experiment import Training
from raysim.engine.hook_calls import HookCalls
from raysim.engine.hosted_client import HostedClient
from raysim.engine.other_heads import OtherHeads
from raysim.engine.vectorised.batches import Batches, Phase, fill
from raysim.engine.vectorised.layers import key_of_step
from raysim.engine.vectorised.one_client import Hidden, Tensors, make_halves, stack_halves
from raysim.engine.vectorised.program import FEWEST, Passed, Program, Programs
from raysim.models.flat import FlatModel, Weights
from raysim.system.device import to_device
from raysim.system.seeding import hashed
from raysim.system.state import map_tensors

IN_PROGRAM = ("task_loss", "penalty", "gradient")
Batch = tuple[Tensor, Tensor]
"""Inputs x [m, ...] and targets y [m]."""


@dataclass(frozen=True)
class Group:
    """Clients with batches of as many rows."""

    chosen: list[int]
    """Their indices in the block."""
    x: Tensor
    """[n, rows, ...]"""
    y: Tensor
    """[n, rows]"""
    rows: list[int]
    """For each, the number of rows that do not only fill the batch."""


class ClientBlock:
    """The local loop of up to `training.vectorise` clients.

    Args:
        model: the host's model.
        training: the config's block `training`.
        calls: calls the halves' hooks.
        graphs: whether the programs become CUDA graphs.
    """

    def __init__(self, model: FlatModel, training: Training, calls: HookCalls, graphs: bool) -> None:
        self._model, self._training, self._calls = model, training, calls
        self.width = training.vectorise or 1  # the most clients of a block
        self._programs = Programs(graphs)

    def train(self, clients: Sequence[HostedClient], state: Weights, cohort: int) -> None:
        """Train clients from their weights in `state`, [n, ...] each, which change in place, and record their losses.

        Every client has begun its phase. `cohort` is the number of clients of the round.
        """
        names = [name for name, half in clients[0].halves.items() if any(overrides(type(half), h) for h in IN_PROGRAM)]
        program = Program(clients[0], make_halves(clients, names), self._training.clip_norm)
        own = {**_own(clients), "halves": stack_halves(clients, names)}
        phases = [self._plan(client, row) for client, row in zip(clients, _rows(state), strict=True)]
        batches = Batches(clients, phases, self._training.batch_size)
        self._model.module.train()
        keys, optimizer = _keys(clients, "model"), self._training.optimizer.make()
        losses, gradient = torch.zeros_like(state.parameters[:, 0]), torch.zeros_like(state.parameters)
        samples = [0] * len(clients)
        masked = clients if self._training.logits == "task" else ()
        others = [OtherHeads(self._model, client.kept_out) for client in masked]
        for number, counts in enumerate(batches.counts):
            of_step = {**own, "key": key_of_step(keys, number)}
            for group in self._groups(clients, phases, batches, number):
                passed = self._pass(program, of_step, state, group, cohort)
                index = self._index(group.chosen, len(clients))
                gradient[index] = passed.gradient
                state.buffers[index], state.integers[index] = passed.buffers, passed.integers
                losses[index] += passed.loss * to_device(torch.tensor(group.rows), losses.device)
                for i, rows in zip(group.chosen, group.rows, strict=True):
                    samples[i] += rows
                self._remember(clients, phases, number, group, passed.logits)
            done = self._index((counts == 0).nonzero()[0].tolist(), len(clients))
            ended = state.parameters[done]
            with ExitStack() as kept:
                for heads, parameters, slope in zip(others, state.parameters, gradient, strict=False):
                    kept.enter_context(heads.kept(parameters, slope))
                optimizer.step(state.parameters, gradient, clients[0].lr)
            state.parameters[done] = ended
        for client, loss, count in zip(clients, losses.tolist(), samples, strict=True):
            if count:
                client.record("loss", loss / count)

    def gradients(
        self,
        clients: Sequence[HostedClient],
        state: Weights,
        batches: Mapping[int, Batch],
        purpose: tuple[str, int],
        cohort: int,
    ) -> dict[int, Tensor]:
        """Return the gradients [P] of clients' mean losses on a batch each, by index in the block; see `train`.

        `purpose` is the stream from which dropout draws, and how often it has drawn in this exchange. The weights in
        `state` stay.
        """
        name, count = purpose
        keys = key_of_step(_keys(clients, name), count)
        program, own = Program(clients[0]), {**_own(clients), "halves": {}, "key": keys}
        state = Weights(state.parameters, state.buffers.clone(), state.integers.clone())
        self._model.module.train()
        found: dict[int, Tensor] = {}
        for group in self._grouped(batches, self._model.normalises):
            passed = self._pass(program, own, state, group, cohort)
            found |= dict(zip(group.chosen, passed.gradient.clone(), strict=True))
        return found

    def _plan(self, client: HostedClient, weights: Weights) -> Phase:
        """Draw a client's batches. A hook that chooses its samples sees the client's model and random stream."""
        if not halves_with_hook(client.halves.values(), "samples"):
            return Phase.plan(client, self._calls)
        self._model.load(weights)
        client.go_on()
        phase = Phase.plan(client, self._calls)
        client.pause()
        return phase

    def _groups(
        self, clients: Sequence[HostedClient], phases: Sequence[Phase], batches: Batches, number: int
    ) -> Iterator[Group]:
        """Yield the groups of a step's clients, after the hook `batch`."""
        x, y = batches.fetch(number)
        counts = batches.counts[number].tolist()
        active = [i for i, count in enumerate(counts) if count]
        if self._counts_rows(clients[0]) or halves_with_hook(clients[0].halves.values(), "batch"):
            steps = {i: _step(clients[i], phases[i], number, x[i, : counts[i]], y[i, : counts[i]]) for i in active}
            for i, step in steps.items():
                clients[i].go_on()
                for half in halves_with_hook(clients[i].halves.values(), "batch"):
                    self._calls(half, "batch", step)
                clients[i].pause()
            exact = self._counts_rows(clients[0])
            yield from self._grouped({i: (step.x, step.y) for i, step in steps.items()}, exact)
        else:
            index = self._index(active, len(clients))
            yield Group(active, x[index], y[index], [counts[i] for i in active])

    def _counts_rows(self, client: HostedClient) -> bool:
        """Return whether batches are not filled: BatchNorm and hooks for the loss would count the rows."""
        in_loss = any(halves_with_hook(client.halves.values(), hook) for hook in ("task_loss", "penalty"))
        return self._model.normalises or in_loss

    def _grouped(self, batches: Mapping[int, Batch], exact: bool) -> Iterator[Group]:
        """Yield groups of batches with as many rows, after filling them unless `exact`."""
        groups: dict[int, list[int]] = {}
        size = 1 if exact else self._training.batch_size
        for i, (_, y) in batches.items():
            groups.setdefault(-(-len(y) // size) * size, []).append(i)
        for rows, chosen in sorted(groups.items()):
            filled = [fill(*batches[i], rows) for i in chosen]
            x, y = (torch.stack(parts) for parts in zip(*filled, strict=True))
            yield Group(chosen, x, y, [len(batches[i][1]) for i in chosen])

    def _pass(self, program: Program, own: Mapping[str, Any], state: Weights, group: Group, cohort: int) -> Passed:
        """Run a program for a group's clients; stand-ins fill it, and their results are dropped."""
        places = [*range(len(group.chosen))]
        places += [0] * (self._fewest(cohort) - len(places))
        index, place = (
            self._index([group.chosen[k] for k in places], len(own["key"])),
            self._index(places, len(group.y)),
        )
        vectors = {"parameters": state.parameters, "buffers": state.buffers, "integers": state.integers}
        clients = map_tensors(lambda tensor: tensor[index], {**vectors, **own})
        tensors = Tensors({**clients, "x": group.x[place], "y": group.y[place]}, program.like.shared.broadcasts)
        passed: Passed = map_tensors(lambda t: t[: len(group.chosen)], self._programs(program, tensors))
        return passed

    def _fewest(self, cohort: int) -> int:
        """Return the fewest clients of a program. A GPU's kernels may round differently with another number."""
        return FEWEST if self._model.device.type == "cpu" else max(FEWEST, min(self.width, cohort))

    def _index(self, chosen: Sequence[int], count: int) -> slice | Tensor:
        """Return the index of chosen rows: a slice without a copy if they are all."""
        return (
            slice(None)
            if [*chosen] == [*range(count)]
            else to_device(torch.tensor(chosen, dtype=torch.int64), self._model.device)
        )

    def _remember(
        self, clients: Sequence[HostedClient], phases: Sequence[Phase], number: int, group: Group, logits: Tensor
    ) -> None:
        """Offer a group's samples to the memories."""
        for k, i in enumerate(group.chosen):
            if clients[i].fills_on_arrival:
                step = _step(clients[i], phases[i], number, group.x[k], group.y[k])
                step.logits = logits[k]
                clients[i].offer(step)


def stack(weights: Sequence[Weights]) -> Weights:
    """Return the weights of clients as [n, ...]."""
    if all(one is weights[0] for one in weights):
        return Weights(*(vector.expand(len(weights), -1).clone() for vector in weights[0].vectors))
    return Weights(*(torch.stack(vectors) for vectors in zip(*(one.vectors for one in weights), strict=True)))


def _rows(state: Weights) -> Iterator[Weights]:
    """Yield each client's weights of those stacked."""
    return (Weights(*vectors) for vectors in zip(*state.vectors, strict=True))


def _own(clients: Sequence[HostedClient]) -> dict[str, Any]:
    """Return the clients' tensors besides their weights: the received parameters, if they differ, and masks."""
    own: dict[str, Any] = {}
    if halves_with_hook(clients[0].halves.values(), "receive"):
        own["received"] = torch.stack([client.received for client in clients])
    masks = [mask for client in clients if (mask := client.kept_out) is not None]
    if masks:
        own["kept_out"] = torch.stack(masks)
    return own


def _keys(clients: Sequence[HostedClient], purpose: str) -> Tensor:
    """Return the keys (int64 [n]) of the clients' random numbers for layers."""
    keys = [hashed(*client.random_name, purpose, "vectorised", bits=64) - 2**63 for client in clients]
    return to_device(torch.tensor(keys), clients[0].model.device)


def _step(client: HostedClient, phase: Phase, number: int, x: Tensor, y: Tensor) -> Step:
    """Return a client's step for hooks outside the program, which see neither its loss nor whether it ends an epoch."""
    ends: Any = Hidden("whether the step ends an epoch")
    return Step(client, number, ends, phase.positions[number], phase.draws[number], x, y)
