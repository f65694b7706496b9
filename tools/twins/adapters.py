"""Fed-LoRA, FFA-LoRA, LoRM and PILoRA, with adapters of the network's first layer."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from raysim.system.seeding import seed_torch, torch_restored
from twins.problem import LR, Problem, Round, mean, slope

SCALE = 0.5
ADAPTERS = {"model.adapters": {"rank": 2, "where": ["0"], "scale": SCALE}}


def parts(w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return A [2, 8], B [5, 2], and the head's weight [6, 5] and bias [6] of trained parameters w [62]."""
    a, b, head, bias = w.split([16, 10, 30, 6])
    return a.view(2, 8), b.view(5, 2), head.view(6, 5), bias


def product(w: Tensor) -> Tensor:
    """Return s B A [5, 8] (Hu et al., ICLR 2022, eq. 3)."""
    a, b, _, _ = parts(w)
    return SCALE * b @ a


def features(p: Problem, w: Tensor, x: Tensor) -> Tensor:
    """Return the hidden units [n, 5] of the network with the weight W0 + s B A in its first layer."""
    return torch.tanh(x @ (p.start[:40].view(5, 8) + product(w)).T + p.start[40:45])


def trained_part(p: Problem) -> Tensor:
    """Return the initial A, B and head. The initial parameters also have the frozen first layer."""
    return p.start[45:]


def next_task(p: Problem, w: Tensor, r: Round, method: str) -> Tensor:
    """Return w with a new A, drawn from the method's stream of the server, and B = 0."""
    with torch_restored():
        seed_torch(p.config.seed, "server", r.number, method)
        a = (2 * torch.rand(16, dtype=torch.float64) - 1) / 8**0.5
    return torch.cat([a, torch.zeros(10).double(), w[26:]])


def merged(p: Problem, w: Tensor, added: Tensor) -> Tensor:
    """Return the parameters [81] of the network with the weight W0 + `added` in its first layer, and the head of w."""
    return torch.cat([p.start[:40] + added.flatten(), p.start[40:45], w[26:]])


def averaged(p: Problem) -> Tensor:
    """FedAvg of one A, B and head in all tasks."""
    return low_rank(p, method=None)


def lora(p: Problem) -> Tensor:
    """LoRA (Hu et al., ICLR 2022, eq. 3) with the mean of A and of B, and the mean of the tasks' B A."""
    return low_rank(p, "lora")


def ffa_lora(p: Problem) -> Tensor:
    """FFA-LoRA (Sun et al., ICLR 2024): mean(B_k A) = mean(B_k) A, as A is fixed in each task."""
    return low_rank(p, "ffa_lora")


def low_rank(p: Problem, method: str | None) -> Tensor:
    """Return W0 + the mean over tasks of s B A, of which the server averages A and B."""

    def loss(v: Tensor, x: Tensor, y: Tensor) -> Tensor:
        if method == "ffa_lora":
            v = torch.cat([v[:16].detach(), v[16:]])
        _, _, head, bias = parts(v)
        return cross_entropy(features(p, v, x) @ head.T + bias, y)

    w, done = trained_part(p), []
    for r in p.rounds():
        w = mean([p.train(k, r.task, w, loss) for k in r.cohort])
        if r.ends and method:
            done.append(product(w))
            w = next_task(p, w, r, method)
    return merged(p, w, mean(done) if done else product(w))


def gram(rows: Tensor, alpha: float) -> Tensor:
    """Return alpha G + (1 - alpha) diag(G) for the Gram matrix G = X X^T of the inputs X^T = rows [n, d]."""
    g = rows.T @ rows
    return alpha * g + (1 - alpha) * g.diagonal().diag()


def lorm(p: Problem, alpha: float, alpha_head: float) -> Tensor:
    """LoRM (Salami et al., ICLR 2025): B = [sum B_k A G_k] A^T [A G A^T]^+, or A = [sum A_k G_k] G^+."""
    w, total, change = trained_part(p), torch.zeros(8, 8).double(), torch.zeros(5, 8).double()
    for r in p.rounds():
        fixed = slice(0, 16) if r.begins else slice(16, 26)  # of two rounds, the first trains B, the second A

        def loss(v: Tensor, x: Tensor, y: Tensor, fixed: slice = fixed) -> Tensor:
            held = torch.zeros(len(v), dtype=torch.bool)
            held[fixed] = True
            v = torch.where(held, v.detach(), v)
            _, _, head, bias = parts(v)
            return cross_entropy(features(p, v, x) @ head.T + bias, y)

        ends = [p.train(k, r.task, w, loss) for k in r.cohort]
        inputs = [p.samples(k, r.task)[0] for k in r.cohort]
        of_layer = [gram(x, alpha) for x in inputs]
        of_head = [gram(features(p, v, x), alpha_head) for v, x in zip(ends, inputs, strict=True)]
        a, b, _, _ = parts(w)
        if r.begins:
            weighted = torch.stack([parts(v)[1] @ a @ g for v, g in zip(ends, of_layer, strict=True)]).sum(0)
            b = weighted @ a.T @ torch.linalg.pinv(a @ sum(of_layer) @ a.T)
        else:
            a = sum(parts(v)[0] @ g for v, g in zip(ends, of_layer, strict=True)) @ torch.linalg.pinv(sum(of_layer))
        head = sum(parts(v)[2] @ g for v, g in zip(ends, of_head, strict=True)) @ torch.linalg.pinv(sum(of_head))
        w = torch.cat([a.flatten(), b.flatten(), head.flatten(), mean(ends)[56:]])
        if r.ends:
            of_task = gram(torch.cat([p.samples(k, r.task)[0] for k in p.clients]), alpha)
            total, change = total + of_task, change + product(w) @ of_task
            w = next_task(p, w, r, "lorm")
    return merged(p, w, change @ torch.linalg.pinv(total))


def pilora(p: Problem, compact: float, sparse: float, orthogonal: float, temperature: float) -> Tensor:
    """PILoRA (Guo et al., ECCV 2024): distances to prototypes, orthogonal A, prototypes weighed by mean features."""
    w, done = trained_part(p), list[Tensor]()
    for r in p.rounds():

        def loss(v: Tensor, x: Tensor, y: Tensor, done: tuple[Tensor, ...] = tuple(done)) -> Tensor:
            a, _, prototypes, _ = parts(v)
            far = (features(p, v, x)[:, None] - prototypes).square().mean(2)
            crossed = sum(((a @ parts(u)[0].T).abs().sum() for u in done), torch.tensor(0.0))
            pulled = compact * far.gather(1, y[:, None]).mean()
            return cross_entropy(-far, y) + pulled + sparse * a.abs().sum() + orthogonal * crossed

        ends, seen = [], dict[int, list[Tensor]]()
        for k in r.cohort:
            x, y = p.samples(k, r.task)
            v, rows, labels = w, list[Tensor](), list[Tensor]()
            for batch in p.orders(k, len(y)):
                rows, labels = [*rows, features(p, v, x[batch])], [*labels, y[batch]]
                v = v - LR * slope(loss, v, x[batch], y[batch])
            ends.append(v)
            for label in set(y.tolist()):
                seen.setdefault(label, []).append(torch.cat(rows)[torch.cat(labels) == label].mean(0))
        w = mean(ends).clone()
        for label, means in seen.items():
            own = torch.stack([parts(v)[2][label] for v in ends])
            near = 1 / ((own[:, None] - torch.stack(means)).norm(dim=2).sum(1) + 1e-10)
            weights = ((near - near.min()) / (near.max() - near.min()) / temperature).softmax(0)
            parts(w)[2][label] = weights @ own
        if r.ends:
            done.append(w)
            w = next_task(p, w, r, "pilora")
    prototypes = parts(w)[2]
    nearest = torch.cat([2 / 5 * prototypes.flatten(), -prototypes.square().mean(1)])
    return merged(p, torch.cat([w[:26], nearest]), torch.stack([product(u) for u in done]).sum(0))
