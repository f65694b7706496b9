"""Ditto and FedPer: what the clients keep for themselves."""

from __future__ import annotations

import torch
from torch import Tensor

from twins.problem import LR, Problem, mean, plain_loss, slope


def ditto(p: Problem, lam: float) -> Tensor:
    """Ditto (Li et al., ICML 2021, algorithm 1): the personalized models."""
    w, own = p.start, dict.fromkeys(p.clients, p.start)
    for r in p.rounds():
        ends = []
        for k in r.cohort:
            x, y = p.samples(k, r.task)
            local = w
            for batch in p.orders(k, len(y)):
                local = local - LR * slope(plain_loss, local, x[batch], y[batch])
                own[k] = own[k] - LR * (slope(plain_loss, own[k], x[batch], y[batch]) + lam * (own[k] - w))
            ends.append(local)
        w = mean(ends)
    return torch.cat([own[k] for k in p.clients])


def fedper(p: Problem) -> Tensor:
    """FedPer (Arivazhagan et al., 2019, algorithm 1): the head stays at the client."""
    w, heads = p.start, dict.fromkeys(p.clients, p.start[45:])
    for r in p.rounds():
        ends = [p.train(k, r.task, torch.cat([w[:45], heads[k]]), plain_loss) for k in r.cohort]
        heads |= {k: end[45:] for k, end in zip(r.cohort, ends, strict=True)}
        w = mean(ends)
    return w[:45]
