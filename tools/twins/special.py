"""SPECIAL and SPECIAL-C: a pull to the model that ended the last task, at the server or at the clients."""

from __future__ import annotations

from torch import Tensor

from twins.problem import LR, Problem, mean, plain_loss, slope


def special(p: Problem, lam: float) -> Tensor:
    """SPECIAL (Xu and Li, 2026, eq. 6): the mean of the model after the mean change, times 1/i, and lambda anchors."""
    w = anchor = p.start
    for r in p.rounds():
        anchor = w if r.begins else anchor
        moved = w + (mean([p.train(k, r.task, w, plain_loss) for k in r.cohort]) - w) / (r.task + 1)
        w = (moved + lam * anchor) / (1 + lam) if r.task else moved
    return w


def special_c(p: Problem, lam: float) -> Tensor:
    """SPECIAL-C (Xu and Li, 2026, algorithm 2): a proximal step of the clients to the anchor after each epoch."""
    w = anchor = p.start
    for r in p.rounds():
        anchor, ends = (w if r.begins else anchor), []
        for k in r.cohort:
            x, y = p.samples(k, r.task)
            v, seen = w, 0
            for batch in p.orders(k, len(y)):
                v = v - LR * slope(plain_loss, v, x[batch], y[batch])
                seen += len(batch)
                if r.task and seen % len(y) == 0:  # an epoch has ended
                    v = (v + 2 * lam * anchor) / (1 + 2 * lam)
            ends.append(v)
        w = w + (mean(ends) - w) / (r.task + 1)
    return w
