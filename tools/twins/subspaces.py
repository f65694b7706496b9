"""GPM and FOT: changes orthogonal to the inputs that the layers had in earlier tasks."""

from __future__ import annotations

import torch
from torch import Tensor

from twins.network import hidden
from twins.problem import LR, Problem, mean, plain_loss, slope

Bases = tuple[Tensor, Tensor]
"""Orthonormal directions of each layer's inputs: [8, m] and [5, m]."""


def inputs(w: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the inputs of both layers."""
    return x, hidden(w, x)


def extend(basis: Tensor, columns: Tensor, threshold: float) -> Tensor:
    """Return the basis with the fewest singular vectors that reach the threshold (Saha et al., ICLR 2021, eq. 8, 9)."""
    rest = columns - basis @ (basis.T @ columns)
    directions, values, _ = torch.linalg.svd(rest)
    energy = columns.square().sum()
    held, count = (energy - rest.square().sum()) / energy, 0
    while held < threshold - 1e-12 and basis.shape[1] + count < len(basis):
        held, count = held + values[count].square() / energy, count + 1
    return torch.cat([basis, directions[:, :count]], 1)


def without_span(change: Tensor, bases: Bases, freeze: bool) -> Tensor:
    """Return a change [P] without the parts of both weights in the span; `freeze` also sets biases to zero."""
    change = change.clone()
    for begin, end, basis in ((0, 40, bases[0]), (45, 75, bases[1])):
        weight = change[begin:end].view(-1, len(basis))
        change[begin:end] = (weight - weight @ basis @ basis.T).flatten()
    if freeze:
        change[40:45] = 0
        change[75:] = 0
    return change


def gpm(p: Problem, threshold: float) -> Tensor:
    """GPM (Saha et al., ICLR 2021, algorithm 1) at each client, with bases from the received model."""
    w, bases = p.start, dict[int, Bases]()
    for r in p.rounds():
        ends = []
        for k in r.cohort:
            if r.begins and r.task:
                found = inputs(w, p.samples(k, r.task - 1)[0])
                before = bases.get(k, tuple(torch.zeros(part.shape[1], 0).double() for part in found))
                first, second = (extend(b, part.T, threshold) for b, part in zip(before, found, strict=True))
                bases[k] = first, second
            x, y = p.samples(k, r.task)
            v = w
            for batch in p.orders(k, len(y)):
                g = slope(plain_loss, v, x[batch], y[batch])
                v = v - LR * (without_span(g, bases[k], freeze=True) if k in bases else g)
            ends.append(v)
        w = mean(ends)
    return w


def fot(p: Problem, epsilon: float) -> Tensor:
    """FOT (Bakman et al., ICLR 2024, algorithm 1): the server projects the mean change."""
    w, bases = p.start, (torch.zeros(8, 0).double(), torch.zeros(5, 0).double())
    for r in p.rounds():
        change = mean([p.train(k, r.task, w, plain_loss) - w for k in r.cohort])
        w = w + without_span(change, bases, freeze=False)
        if not r.ends:
            continue
        sketches = [torch.zeros(8, 8).double(), torch.zeros(5, 5).double()]
        for k in p.clients:
            draws = p.draws(k, "fot", request=1)
            x, _ = p.samples(k, r.task)
            for part in x[torch.from_numpy(draws.permutation(len(x)))].split(p.config.training.batch_size):
                for sketch, rows in zip(sketches, inputs(w, part), strict=True):
                    omega = draws.standard_normal((len(rows), len(sketch)), dtype="float32")
                    sketch += rows.T @ torch.from_numpy(omega).double()
        first, second = (extend(b, sketch, epsilon) for b, sketch in zip(bases, sketches, strict=True))
        bases = first, second
    return w
