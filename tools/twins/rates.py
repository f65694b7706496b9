"""NCCL, C-FLAG and FedTrack: rates on new data and on memories, which hold all earlier samples and are drawn whole."""

from __future__ import annotations

from math import ceil

import torch
from torch import Tensor

from raysim.system.seeding import generator
from twins.problem import LR, Problem, Round, mean, plain_loss, slope


def earlier_samples(p: Problem, client: int, task: int) -> tuple[Tensor, Tensor]:
    """Return a client's samples of all tasks before this one, at least one: x [n, 8] and y [n]."""
    x, y = zip(*(p.samples(client, before) for before in range(task)), strict=True)
    return torch.cat(x), torch.cat(y)


def nccl(p: Problem, smoothness: float) -> Tensor:
    """NCCL (Keshri et al., AISTATS 2025, table 1, for one step): w - a F - b g, with b at most the learning rate."""
    w = p.start
    for r in p.rounds():
        ends = []
        for k in r.cohort:
            x, y = p.samples(k, r.task)
            v, old = w, earlier_samples(p, k, r.task) if r.task else None
            for batch in p.orders(k, len(y)):
                g = slope(plain_loss, v, x[batch], y[batch])
                f, a, b = torch.zeros_like(g), 0.0, LR
                if old is not None:
                    f = slope(plain_loss, v, *old)
                    a, b = adapted(float(f @ g), float(f @ f), float(g @ g), smoothness)
                    b = min(b, LR)
                v = v - a * f - b * g
            ends.append(v)
        w = mean(ends)
    return w


def adapted(inner: float, of_memory: float, of_new: float, smoothness: float) -> tuple[float, float]:
    """Return table 1's rates for the memory and the new data, given <F, A>, |F|^2 and c |A|^2."""
    if inner <= 0:
        return LR * (1 - inner / of_memory), LR
    return LR, (1 - smoothness * LR) * inner / (smoothness * of_new)


def c_flag(p: Problem, smoothness: float) -> Tensor:
    """C-FLAG (Keshri et al., AISTATS 2025, algorithm 1 and eq. 4, 5): delayed gradients, and one step on memories."""
    w = p.start
    for r in p.rounds():
        found = tracked(p, r, w)
        changes = [LR * (corrections + a) for corrections, a in found]
        if r.task:
            f = mean([slope(plain_loss, w, *earlier_samples(p, k, r.task)) for k in r.cohort])
            changes = []
            for corrections, a in found:
                # N p_i = 1, as all clients have the same share
                of_f, of_a = adapted(float(f @ a), float(f @ f), float(a @ a), smoothness)
                changes.append(min(of_f, 2 / smoothness) * f + max(of_a, 1e-4) * (corrections + a))
        w = w - mean(changes)
    return w


def fedtrack(p: Problem) -> Tensor:
    """FedTrack (Mitra et al., CDC 2021): the steps of C-FLAG, without memories."""
    w = p.start
    for r in p.rounds():
        w = w - mean([LR * (corrections + a) for corrections, a in tracked(p, r, w)])
    return w


def tracked(p: Problem, r: Round, w: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return for each client the sums of its E corrections G - G_i and of its estimates S of the local gradient."""
    parts = {k: components(p, k, r.task) for k in r.cohort}
    own = {k: total([slope(plain_loss, w, x, y) for x, y in of], of) for k, of in parts.items()}
    of_all = mean([*own.values()])
    found = []
    for k, of in parts.items():
        p.trained[k] += 1
        table = [slope(plain_loss, w, x, y) for x, y in of]
        steps = (p.config.training.local_epochs or 0) * len(of)
        chosen, v, a = p.draws(k, "batches").integers(len(of), size=steps), w, torch.zeros_like(w)
        for step in range(steps):
            if step:  # the component that was drawn for the step before
                place = int(chosen[step - 1])
                table[place] = slope(plain_loss, v, *of[place])
            s = total(table, of)
            a, v = a + s, v - LR * (of_all - own[k] + s)
        found.append((steps * (of_all - own[k]), a))
    return found


def components(p: Problem, client: int, task: int) -> list[tuple[Tensor, Tensor]]:
    """Return the mini-batches of a client's samples of a task, which are drawn once."""
    x, y = p.samples(client, task)
    order = generator(p.config.seed, client, "components of window", task).permutation(len(y))
    size = p.config.training.batch_size
    places = [torch.from_numpy(order[first * size : (first + 1) * size]) for first in range(ceil(len(y) / size))]
    return [(x[place], y[place]) for place in places]


def total(gradients: list[Tensor], of: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the sum of the components' gradients by their shares of the samples."""
    count = sum(len(y) for _, y in of)
    return torch.stack([len(y) / count * g for g, (_, y) in zip(gradients, of, strict=True)]).sum(0)
