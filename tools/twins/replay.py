"""ER, A-GEM, Fed-A-GEM, DER and DER++, with memories that hold all samples so far and are drawn whole."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from twins.network import logits
from twins.problem import LR, Problem, mean, plain_loss, slope

Memory = tuple[Tensor, Tensor, Tensor]
"""Stored samples: x [m, 8], y [m] and the logits [m, 6] with which each arrived."""

Gradient = Callable[[Tensor, Tensor, Tensor, Memory], Tensor]
"""A step's gradient at v [P] of a batch x [n, 8], y [n], with a memory that is not empty."""


def replayed(p: Problem, gradient: Gradient) -> Tensor:
    """Return FedAvg's model with this gradient, where each batch enters its client's memory after its first step."""
    w = p.start
    empty = torch.zeros(0, 8).double(), torch.zeros(0, dtype=torch.int64), torch.zeros(0, 6).double()
    memories: dict[int, Memory] = dict.fromkeys(p.clients, empty)
    stored: set[tuple[int, int, int]] = set()
    for r in p.rounds():
        ends = []
        for k in r.cohort:
            x, y = p.samples(k, r.task)
            v = w
            for batch in p.orders(k, len(y)):
                held, at_arrival = memories[k], v
                if len(held[0]):
                    v = v - LR * gradient(v, x[batch], y[batch], held)
                else:
                    v = v - LR * slope(plain_loss, v, x[batch], y[batch])
                new = [i for i in batch.tolist() if (k, r.task, i) not in stored]
                stored |= {(k, r.task, i) for i in new}
                more = x[new], y[new], logits(at_arrival, x[new])
                first, second, third = (torch.cat(pair) for pair in zip(held, more, strict=True))
                memories[k] = first, second, third
            ends.append(v)
        w = mean(ends)
    return w


def er(p: Problem) -> Tensor:
    """ER (Chaudhry et al., 2019, algorithm 1): one mean loss over the batch and the replayed samples."""

    def gradient(v: Tensor, x: Tensor, y: Tensor, held: Memory) -> Tensor:
        return slope(plain_loss, v, torch.cat([x, held[0]]), torch.cat([y, held[1]]))

    return replayed(p, gradient)


def a_gem(p: Problem) -> Tensor:
    """A-GEM (Chaudhry et al., ICLR 2019, eq. 11): g - its part along the memory's gradient r, if g.r < 0."""

    def gradient(v: Tensor, x: Tensor, y: Tensor, held: Memory) -> Tensor:
        g, r = slope(plain_loss, v, x, y), slope(plain_loss, v, held[0], held[1])
        return g - (g @ r) / (r @ r) * r if g @ r < 0 else g

    return replayed(p, gradient)


def fed_a_gem(p: Problem) -> Tensor:
    """Fed-A-GEM (Dai et al., TMLR 2024, algorithm 1): as A-GEM, with r the mean of the memories' gradients at w."""
    w, r = p.start, torch.zeros_like(p.start)
    so_far: dict[int, list[int]] = {}  # the tasks of the samples in a client's memory
    for one in p.rounds():
        ends = []
        for k in one.cohort:
            x, y = p.samples(k, one.task)
            v = w
            for batch in p.orders(k, len(y)):
                g = slope(plain_loss, v, x[batch], y[batch])
                v = v - LR * (g - (g @ r) / (r @ r) * r if g @ r < 0 else g)
            ends.append(v)
            so_far[k] = so_far.get(k, []) + [one.task] * (one.task not in so_far.get(k, []))
        w = mean(ends)
        held = {k: zip(*(p.samples(k, task) for task in so_far[k]), strict=True) for k in one.cohort}
        r = mean([slope(plain_loss, w, *map(torch.cat, of)) for of in held.values()])
    return w


def der(p: Problem, alpha: float, beta: float) -> Tensor:
    """DER and DER++ (Buzzega et al., NeurIPS 2020, eq. 6; a mean over classes, as in the authors' code)."""

    def gradient(v: Tensor, x: Tensor, y: Tensor, held: Memory) -> Tensor:
        def loss(u: Tensor, x: Tensor, y: Tensor) -> Tensor:
            distance = (logits(u, held[0]) - held[2]).square().mean()
            return plain_loss(u, x, y) + alpha * distance + beta * plain_loss(u, held[0], held[1])

        return slope(loss, v, x, y)

    return replayed(p, gradient)
