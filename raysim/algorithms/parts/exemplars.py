"""Exemplars near their class's mean, and a teacher: what iCaRL and GLFC have in common.

Rebuffi et al., CVPR 2017, Algorithms 3 to 5. Each client keeps exemplars of its own data, up to memory.capacity. The
teacher is the global model that ended the last task. As features, phi(x) = f(x) / ||f(x)||, f being the input of the
network's head.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import torch
from torch import Tensor
from torch.nn import functional

from raysim.algorithms.parts.finished_task import finished_task
from raysim.api import Broadcast, Client, ClientHalf, MemoryUse, Server, ServerHalf, Step, to_device

CLOSE = 1e-9  # distances between features of length 1, in float64
EXEMPLARS = MemoryUse(policies=("importance",), fills=("boundary",), per=("client",), by_class=True)


class ExemplarClient(ClientHalf):
    """Trains on new data and exemplars, with the teacher's logits."""

    old: Tensor | None = None  # int64: the classes of earlier tasks
    seen: Tensor | None = None  # int64: the classes of earlier tasks and of this one

    def start(self, client: Client, message: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
        """Store the old classes and those seen so far."""
        device = client.model.device
        self.old, self.seen = (to_device(torch.tensor(part, dtype=torch.int64), device) for part in message)

    def samples(self, client: Client) -> Tensor:
        """Return the exemplars and the samples that have arrived."""
        assert client.memory is not None
        return torch.cat([client.memory.entries().positions, client.arrived])

    def taught(self, step: Step) -> Tensor | None:
        """Return the teacher's logits [n, classes] of the step's rows, or None if no class is old."""
        assert self.old is not None
        if not len(self.old):
            return None
        with step.client.rng_scope(self.name):
            return step.client.model.logits(step.x, *step.client.from_server(self.name))


class TeacherServer(ServerHalf):
    """Broadcasts the teacher, and sends the old classes and those seen so far."""

    task: int = 0
    teacher: tuple[Tensor, Tensor] | None = None

    def announce(self, server: Server) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], Sequence[Broadcast]]:
        """Send the old and the seen classes; broadcast the model that ended the previous task."""
        present = server.present_classes()
        if server.task != self.task:
            self.task, self.teacher = server.task, (server.parameters, server.buffers)
        earlier = server.earlier_classes() if self.task else ()
        old = tuple(label for label in earlier if label not in present)
        broadcasts = [Broadcast(self.name, self.task, self.teacher)] if old else []
        return (old, tuple(sorted({*old, *present}))), broadcasts


def keep_exemplars(client: Client, purpose: str, herding: bool = True) -> None:
    """Choose exemplars of the finished task, Algorithm 4, and shorten the older lists, Algorithm 5."""
    memory = client.memory
    assert memory is not None
    stored, positions = memory.entries().positions, finished_task(client)
    held, new = client.labels(stored), client.labels(positions)
    tasks = torch.as_tensor(client.stream.locate(stored)[1]).expand(len(stored))
    labels = torch.cat([held, new]).unique().tolist()
    room = memory.kind.capacity // max(len(labels), 1)
    chosen = []
    for label in labels:
        lists = [stored[(held == label) & (tasks == task)] for task in tasks.unique().tolist()]
        lists.append(_exemplars(client, positions[new == label], room, purpose, herding))
        chosen.append(in_turn(lists)[:room])
    memory.replace(torch.cat([stored[:0], *chosen]))


def _exemplars(client: Client, positions: Tensor, size: int, purpose: str, herding: bool) -> Tensor:
    """Return the positions of up to `size` exemplars of one class, the best first."""
    if not (herding and len(positions)):
        return positions[torch.from_numpy(client.generator(purpose).permutation(len(positions))[:size])]
    return positions[herd(unit_features(client, positions, purpose), size)]


def unit_features(client: Client, positions: Tensor, purpose: str) -> Tensor:
    """Return phi [n, d], float64, of samples at the current model, in evaluation mode, not augmented."""
    model, head = client.model, client.model.head[0]
    rows = [model.parameters.new_zeros(0, model.widths[head])]
    with client.rng_scope(purpose):
        for part in client.batches(len(positions), single=True):
            x, _ = client.samples(positions[part])
            rows.append(model.inputs(x, model.parameters, model.buffers, [head])[head])
    return functional.normalize(torch.cat(rows).double(), dim=1)


def binary_loss(
    logits: Tensor, y: Tensor, teacher: Tensor | None, old: Tensor, seen: Tensor, weights: Tensor | None = None
) -> Tensor:
    """Return the binary cross-entropy of Algorithm 3, the mean over rows and the classes seen.

    For old classes the target is the teacher's sigmoid, also for exemplars. For the others it is whether the class is
    the label. `weights` [n, 1] are the rows'; None is 1 for each.
    """
    target = functional.one_hot(y, logits.shape[1]).to(logits.dtype)
    if teacher is not None:
        target[:, old] = teacher[:, old].sigmoid()
    return functional.binary_cross_entropy_with_logits(logits[:, seen], target[:, seen], weights)


def herd(features: Tensor, size: int) -> Tensor:
    """Return the indices (int64) of up to `size` rows of features [n, d]: their running mean stays nearest to the mean.

    Algorithm 4: always choose the unchosen row that brings the mean of the chosen rows nearest; the first of equals.
    Two samples of a class are equally far from their mean, up to rounding, so distances within CLOSE count as equal.
    """
    mean, total = features.mean(0), torch.zeros_like(features[0])
    free, chosen = torch.ones(len(features), dtype=torch.bool, device=features.device), list[int]()
    for number in range(1, min(size, len(features)) + 1):
        distances = (mean - (total + features) / number).norm(dim=1)
        distances = distances.where(free, torch.inf)
        best = int((distances <= distances.min() + CLOSE).nonzero()[0])
        total, free[best] = total + features[best], False
        chosen.append(best)
    return torch.tensor(chosen, dtype=torch.int64)


def in_turn(lists: Sequence[Tensor]) -> Tensor:
    """Return the entries of several lists (int64), one of each in turn, for a class that came in several tasks."""
    rounds = zip_longest(*(part.tolist() for part in lists))
    return torch.tensor([one for turn in rounds for one in turn if one is not None], dtype=torch.int64)
