"""The batches of a block's clients, fetched together: each step's samples of all clients are one batch [n, B, ...]."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from raysim.api.method import ClientHalf
from raysim.engine.hook_calls import HookCalls
from raysim.engine.hosted_client import HostedClient
from raysim.engine.local_training import choose_samples, epochs, shuffle_epoch
from raysim.models.inputs import as_input
from raysim.system.device import to_device

IGNORED = -100  # the label of rows that only fill a batch; torch's cross-entropy leaves them out


@dataclass(frozen=True)
class Phase:
    """One client's samples of a phase, batch by batch."""

    positions: Sequence[Tensor]
    """For each step: the positions (int64 [m])."""
    draws: Sequence[Tensor | None]
    """For each step: the augmentation (int64 [m, k])."""

    @classmethod
    def plan(cls, client: HostedClient, calls: HookCalls) -> "Phase":
        """Draw a phase's batches, as the loop of one client draws them. Sets `client.trained` and `client.steps`."""
        halves: list[ClientHalf] = [*client.halves.values()]
        positions = choose_samples(client, halves, calls)
        client.trained = len(positions)
        batches: list[Tensor] = []
        draws: list[Tensor | None] = []
        for left in epochs(client, lambda: len(batches)):
            epoch, drawn, sizes = shuffle_epoch(client, positions, left)
            batches.extend(epoch.split(sizes))
            draws.extend([None] * len(sizes) if drawn is None else drawn.split(sizes))
        client.steps = len(batches)
        return cls(batches, draws)


class Batches:
    """The batches of all clients of a block.

    Args:
        clients: the clients; their samples come from the training split.
        phases: their phases.
        size: the rows of a batch. Smaller batches are filled with rows of label -100.
    """

    def __init__(self, clients: Sequence[HostedClient], phases: Sequence[Phase], size: int) -> None:
        self._data, self._dtype = clients[0].data, clients[0].model.dtype
        steps = max((len(phase.positions) for phase in phases), default=0)
        shape = steps, len(clients), size
        rows, tasks = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.counts = np.zeros(shape[:2], np.int64)
        drawn = None
        for i, (client, phase) in enumerate(zip(clients, phases, strict=True)):
            for step, positions in enumerate(phase.positions):
                found, task = client.stream.locate(positions)
                rows[step, i, : len(found)], tasks[step, i, : len(found)] = found.numpy(), np.asarray(task)
                self.counts[step, i] = len(found)
                draws = phase.draws[step]
                if draws is not None:
                    drawn = np.zeros((*shape, draws.shape[1]), np.int64) if drawn is None else drawn
                    drawn[step, i, : len(found)] = draws.numpy()
        device = clients[0].model.device
        of_samples = tasks[np.arange(size) < self.counts[..., None]]
        self._rows = to_device(torch.from_numpy(rows), device)
        self._filling = to_device(torch.from_numpy(np.arange(size) >= self.counts[..., None]), device)
        self._task = int(of_samples[0]) if len(of_samples) and (of_samples == of_samples[0]).all() else None
        self._tasks = to_device(torch.from_numpy(tasks), device)
        self._draws = None if drawn is None else to_device(torch.from_numpy(drawn), device)

    def fetch(self, step: int) -> tuple[Tensor, Tensor]:
        """Return the clients' inputs [n, B, ...] and targets [n, B] of a step."""
        rows = self._rows[step].flatten()
        task = self._tasks[step].flatten() if self._task is None else self._task
        drawn = None if self._draws is None else self._draws[step].flatten(0, 1)
        filling = self._filling[step]
        x = as_input(self._data.fetch(rows, task, drawn), self._dtype).unflatten(0, filling.shape)
        y = self._data.labels(rows).view(filling.shape)
        return x.masked_fill(filling.view(*filling.shape, *[1] * (x.dim() - 2)), 0), y.masked_fill(filling, IGNORED)


def fill(x: Tensor, y: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return a batch with more rows, of label -100."""
    more = rows - len(y)
    return torch.cat([x, x.new_zeros(more, *x.shape[1:])]), torch.cat([y, y.new_full((more,), IGNORED)])
