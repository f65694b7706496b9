"""LwF, FLwF-2T and CFeD: losses with old models as teachers."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from raysim.system.seeding import generator
from twins.network import logits
from twins.problem import LR, Problem, mean, plain_loss, slope


def distil(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """Return - sum_c softmax(teacher/T) log softmax(student/T), the mean over rows (Hinton et al., 2015)."""
    return -((teacher / temperature).softmax(1) * (student / temperature).log_softmax(1)).sum(1).mean()


def lwf(p: Problem, strength: float, temperature: float) -> Tensor:
    """LwF (Li and Hoiem, TPAMI 2018, eq. 4): the teacher ended the last task, over the classes before this one."""
    w = teacher = p.start
    for r in p.rounds():
        teacher = w if r.begins else teacher
        old = p.earlier(r.task)

        def loss(v: Tensor, x: Tensor, y: Tensor, old: list[int] = old, teacher: Tensor = teacher) -> Tensor:
            z = logits(v, x)
            if not old:
                return cross_entropy(z, y)
            return cross_entropy(z, y) + strength * distil(logits(teacher, x)[:, old], z[:, old], temperature)

        w = mean([p.train(k, r.task, w, loss) for k in r.cohort])
    return w


def flwf(p: Problem, alpha: float, beta: float, temperature: float) -> Tensor:
    """FLwF-2T (Usmanova et al., 2021): the client's last model of the previous task, and the model of the round."""
    w, latest, past = p.start, dict[int, Tensor](), dict[int, Tensor]()
    for r in p.rounds():
        past = dict(latest) if r.begins else past
        ends = {}
        for k in r.cohort:
            mine = past.get(k)

            def loss(v: Tensor, x: Tensor, y: Tensor, sent: Tensor = w, own: Tensor | None = mine) -> Tensor:
                z = logits(v, x)
                if own is None:
                    return cross_entropy(z, y)
                first = beta * distil(logits(own, x), z, temperature)
                return (
                    alpha * cross_entropy(z, y) + first + (1 - alpha - beta) * distil(logits(sent, x), z, temperature)
                )

            ends[k] = p.train(k, r.task, w, loss)
        latest |= ends
        w = mean([*ends.values()])
    return w


def cfed(p: Problem, review_share: float, weight: float, temperature: float) -> Tensor:
    """CFeD (Ma et al., IJCAI 2022): some of a cohort distil the last task's model on samples without labels."""
    w = teacher = p.start
    second = p.federation.unlabelled
    assert second is not None
    assert second.split is not None
    pool = torch.from_numpy(second.split.x).double()
    for r in p.rounds():
        teacher = w if r.begins else teacher
        learners = round((1 - review_share) * len(r.cohort))
        order = generator(p.config.seed, "server", r.number, "cfed").permutation(len(r.cohort))
        reviewers = {r.cohort[place] for place in order[learners:]} if r.task else set()

        def review(v: Tensor, x: Tensor, y: Tensor, teacher: Tensor = teacher) -> Tensor:
            return weight * distil(logits(teacher, x), logits(v, x), temperature)

        ends = []
        for k in r.cohort:
            if k not in reviewers:
                ends.append(p.train(k, r.task, w, plain_loss))
                continue
            x, v = pool[second.streams[k].rows[0]], w
            p.trained[k] += 1
            draws, training = p.draws(k, "cfed"), p.config.training
            for _ in range(training.local_epochs or 0):
                for batch in torch.from_numpy(draws.permutation(len(x))).split(training.batch_size):
                    v = v - LR * slope(review, v, x[batch], batch)
            ends.append(v)
        w = mean(ends)
    return w
