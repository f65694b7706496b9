"""FedProx, EWC, FedCurv and SCAFFOLD: the cross-entropy with a pull, or with corrected steps."""

from __future__ import annotations

import torch
from torch import Tensor

from twins.problem import LR, Problem, mean, plain_loss, slope


def fedavg(p: Problem) -> Tensor:
    """FedAvg (McMahan et al., AISTATS 2017, algorithm 1), with equal weights."""
    w = p.start
    for r in p.rounds():
        w = mean([p.train(k, r.task, w, plain_loss) for k in r.cohort])
    return w


def fedprox(p: Problem, mu: float) -> Tensor:
    """FedProx (Li et al., MLSys 2020, eq. 2): the square of the distance from the received model is added."""
    w = p.start
    for r in p.rounds():
        sent = w

        def loss(v: Tensor, x: Tensor, y: Tensor, sent: Tensor = sent) -> Tensor:
            return plain_loss(v, x, y) + mu / 2 * (v - sent).square().sum()

        w = mean([p.train(k, r.task, w, loss) for k in r.cohort])
    return w


def fisher_of(p: Problem, client: int, task: int, w: Tensor) -> Tensor:
    """Return the mean over a client's samples of the squared gradient of log p(y|x)."""
    x, y = p.samples(client, task)
    squares = [slope(plain_loss, w, x[i : i + 1], y[i : i + 1]).square() for i in range(len(y))]
    return mean(squares)


def ewc(p: Problem, strength: float, decay: float) -> Tensor:
    """Online EWC (Schwarz et al., ICML 2018, eq. 9): the Fisher decays, and that of the task is added."""
    w, fisher, anchor = p.start, torch.zeros_like(p.start), p.start
    for r in p.rounds():
        w = mean([_pulled(p, k, r.task, w, LR * strength * fisher, anchor) for k in r.cohort])
        if r.ends:
            fisher, anchor = decay * fisher + mean([fisher_of(p, k, r.task, w) for k in p.clients]), w
    return w


def _pulled(p: Problem, client: int, task: int, w: Tensor, pull: Tensor, anchor: Tensor) -> Tensor:
    """Train locally with a pull [P] to the anchor. It is that of the new w where it is above 1, else of the old."""
    x, y = p.samples(client, task)
    for batch in p.orders(client, len(y)):
        free = w - LR * slope(plain_loss, w, x[batch], y[batch])
        of_new = (free + pull * anchor) / (1 + pull)  # solves v = free - pull (v - anchor)
        w = torch.where(pull > 1, of_new, free - pull * (w - anchor))
    return w


def fedcurv(p: Problem, strength: float) -> Tensor:
    """FedCurv (Shoham et al., 2019, eq. 4): a pull to the models of the others in the last round."""
    w, others = p.start, dict[int, tuple[Tensor, Tensor]]()
    for r in p.rounds():
        ends = {}
        for k in r.cohort:
            held = [pair for j, pair in others.items() if j != k]

            def loss(v: Tensor, x: Tensor, y: Tensor, held: list[tuple[Tensor, Tensor]] = held) -> Tensor:
                pulls = [(fisher * (v - end).square()).sum() for fisher, end in held]
                return plain_loss(v, x, y) + strength * sum(pulls, torch.zeros(()))

            ends[k] = p.train(k, r.task, w, loss)
        others = {k: (fisher_of(p, k, r.task, end), end) for k, end in ends.items()}
        w = mean([*ends.values()])
    return w


def scaffold(p: Problem, global_rate: float) -> Tensor:
    """SCAFFOLD, option II (Karimireddy et al., ICML 2020, algorithm 1)."""
    w, c = p.start, torch.zeros_like(p.start)
    own = dict.fromkeys(p.clients, c)
    for r in p.rounds():
        moves, changes = [], []
        for k in r.cohort:
            x, y = p.samples(k, r.task)
            v, steps = w, 0
            for batch in p.orders(k, len(y)):
                g = slope(plain_loss, v, x[batch], y[batch])
                v, steps = v - LR * (g - own[k] + c), steps + 1
            new = own[k] - c + (w - v) / (steps * LR)
            changes.append(new - own[k])
            own[k] = new
            moves.append(v - w)
        w = w + global_rate * mean(moves)
        c = c + len(r.cohort) / len(p.clients) * mean(changes)
    return w
