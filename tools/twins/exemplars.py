"""iCaRL and GLFC: exemplars near their class's mean, and a teacher of the old classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, normalize, one_hot

from twins.network import hidden, logits
from twins.problem import LR, Problem, mean, slope
from twins.teachers import distil

CAPACITY = 12  # exemplars of a client

Loss = Callable[[Tensor, Tensor, Tensor | None, list[int], list[int]], Tensor]
"""The loss of logits [n, 6] with labels y [n], the teacher's logits, and the classes that are old or seen."""


def herd(features: Tensor, size: int) -> list[int]:
    """Return the rows chosen by iCaRL's algorithm 4: the mean of the chosen ones stays nearest to the mean of all."""
    chosen: list[int] = []
    while len(chosen) < min(size, len(features)):
        left = [i for i in range(len(features)) if i not in chosen]
        means = [features[[*chosen, i]].mean(0) for i in left]
        far = [float((features.mean(0) - found).norm()) for found in means]
        chosen.append(left[next(i for i, distance in enumerate(far) if distance < min(far) + 1e-9)])
    return chosen


def with_exemplars(p: Problem, loss: Loss) -> Tensor:
    """Return FedAvg's model on new samples and exemplars, with this loss and the model of the last task as teacher."""
    w = teacher = p.start
    held: dict[int, dict[int, Tensor]] = {k: {} for k in p.clients}  # the exemplars of each class, the best first
    for r in p.rounds():
        teacher = w if r.begins else teacher
        old, seen = p.earlier(r.task), p.earlier(r.task + 1)

        def of(
            u: Tensor,
            x: Tensor,
            y: Tensor,
            teacher: Tensor = teacher,
            old: list[int] = old,
            seen: list[int] = seen,
        ) -> Tensor:
            return loss(logits(u, x), y, logits(teacher, x) if old else None, old, seen)

        ends = []
        for k in r.cohort:
            x, y = p.samples(k, r.task)
            x = torch.cat([*held[k].values(), x])
            y = torch.cat([torch.full((len(part),), label) for label, part in held[k].items()] + [y])
            v = w
            for batch in p.orders(k, len(y)):
                v = v - LR * slope(of, v, x[batch], y[batch])
            ends.append(v)
        w = mean(ends)
        if not r.ends:
            continue
        for k in p.clients:
            x, y = p.samples(k, r.task)
            labels = sorted({*held[k], *y.tolist()})
            room = CAPACITY // len(labels)
            for label in labels:
                if label not in held[k]:
                    own = x[y == label]
                    held[k][label] = own[herd(normalize(hidden(w, own), dim=1), room)]
                held[k][label] = held[k][label][:room]
            held[k] = {label: held[k][label] for label in labels}
    return w


def icarl_bce(p: Problem) -> Tensor:
    """iCaRL (Rebuffi et al., CVPR 2017, algorithm 3): targets of old classes are the teacher's sigmoids."""

    def loss(z: Tensor, y: Tensor, teacher: Tensor | None, old: list[int], seen: list[int]) -> Tensor:
        target = one_hot(y, 6).double()
        if teacher is not None:
            target[:, old] = teacher[:, old].sigmoid()
        return binary_cross_entropy_with_logits(z[:, seen], target[:, seen])

    return with_exemplars(p, loss)


def icarl_ce_kd(p: Problem, strength: float, temperature: float) -> Tensor:
    """iCaRL with the cross-entropy, and the distillation of the old classes alone."""

    def loss(z: Tensor, y: Tensor, teacher: Tensor | None, old: list[int], seen: list[int]) -> Tensor:
        first = cross_entropy(z, y)
        return first if teacher is None else first + strength * distil(teacher[:, old], z[:, old], temperature)

    return with_exemplars(p, loss)


def glfc(p: Problem, strength: float) -> Tensor:
    """GLFC (Dong et al., CVPR 2022, eq. 3 to 7): losses of rows are balanced over old and new classes."""

    def loss(z: Tensor, y: Tensor, teacher: Tensor | None, old: list[int], seen: list[int]) -> Tensor:
        hard = one_hot(y, 6).double()
        if teacher is None:
            return binary_cross_entropy_with_logits(z[:, seen], hard[:, seen])
        sizes = (z.gather(1, y[:, None]).sigmoid() - 1).abs().detach()[:, 0]
        of_old = torch.tensor([label in old for label in y.tolist()])
        weights = torch.ones_like(sizes)
        for group in (of_old, ~of_old):
            if group.any():
                weights[group] = sizes[group] / sizes[group].mean()
        soft = hard.clone()
        soft[:, old] = teacher[:, old].sigmoid()
        terms = [binary_cross_entropy_with_logits(z[:, seen], t[:, seen], reduction="none") for t in (hard, soft)]
        return (1 - strength) * (weights[:, None] * terms[0]).mean() + strength * terms[1].mean()

    return with_exemplars(p, loss)
