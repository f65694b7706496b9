"""Re-Fed: caches of the samples with the largest gradients on a personalized model."""

from __future__ import annotations

import torch
from torch import Tensor

from raysim.system.seeding import generator
from twins.problem import LR, Problem, mean, plain_loss, slope

CAPACITY = 20


def re_fed(p: Problem, lam: float, epochs: int) -> Tensor:
    """Re-Fed (Li et al., CVPR 2024, eq. 3 to 6): I = sum over epochs p of squared gradient norms / p, pulled to w."""
    w = p.start
    caches: dict[int, tuple[Tensor, Tensor]] = {}
    for r in p.rounds():
        ends = []
        for k in r.cohort:
            x, y = p.samples(k, r.task)
            if r.begins and r.task:
                last = p.samples(k, r.task - 1)
                held = [torch.cat(pair) for pair in zip(caches[k], last, strict=True)] if k in caches else [*last]
                caches[k] = cached(p, k, w, held[0], held[1], lam, epochs)
            if k in caches:
                x, y = torch.cat([caches[k][0], x]), torch.cat([caches[k][1], y])
            v = w
            for batch in p.orders(k, len(y)):
                v = v - LR * slope(plain_loss, v, x[batch], y[batch])
            ends.append(v)
        w = mean(ends)
    return w


def cached(p: Problem, k: int, w: Tensor, x: Tensor, y: Tensor, lam: float, epochs: int) -> tuple[Tensor, Tensor]:
    """Return the samples that a client caches, in the order of arrival."""
    if len(y) <= CAPACITY:
        return x, y
    draws = generator(p.config.seed, k, p.trained[k] + 1, 0, "re_fed")  # of the training that is about to begin
    v, importance, pull = w, torch.zeros(len(y)).double(), (1 - lam) / (2 * lam)
    for epoch in range(1, epochs + 1):
        for batch in torch.from_numpy(draws.permutation(len(y))).split(p.config.training.batch_size):
            for i in batch.tolist():
                importance[i] += slope(plain_loss, v, x[i : i + 1], y[i : i + 1]).square().sum() / epoch
            v = v - LR * (slope(plain_loss, v, x[batch], y[batch]) + pull * (v - w))
    kept = importance.argsort(descending=True, stable=True)[:CAPACITY].sort().values
    return x[kept], y[kept]
