"""HGP and CCVR: the server trains the head on features drawn from Gaussians of the classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import cos, pi

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from raysim.system.seeding import generator
from twins.network import hidden
from twins.problem import Problem, Round, mean, plain_loss
from twins.prompts import Named, by_name, federated, layer, outputs, tokens, trained, trained_part, whole

Drawn = Iterable[tuple[Tensor, Tensor, float]]
"""Batches of features [n, d] and labels [n], and the rate of their step."""


def tuned(
    weight: Tensor, bias: Tensor, drawn: Drawn, loss: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the head's weight and bias after steps of SGD with momentum 0.9 on drawn features."""
    head = [weight.clone().requires_grad_(), bias.clone().requires_grad_()]
    sgd = torch.optim.SGD(head, momentum=0.9)
    for x, y, rate in drawn:
        sgd.param_groups[0]["lr"] = rate
        sgd.zero_grad()
        loss(x @ head[0].T + head[1], y).backward()
        sgd.step()
    return head[0].detach(), head[1].detach()


def prefixed(t: Named, x: Tensor) -> Tensor:
    """Return the class token's outputs [n, 8] with the same prefixes for all images (Li and Liang, 2021)."""
    pairs = t["prompts.prefixes"]
    found = {block: (pairs[block, 0].expand(len(x), -1, 8), pairs[block, 1].expand(len(x), -1, 8)) for block in (0, 1)}
    return outputs(t, tokens(t, x), found)[:, 0]


def prefix_loss(r: Round, sent: Tensor, t: Named, x: Tensor, y: Tensor) -> Tensor:
    """Return the cross-entropy of the transformer with prefixes."""
    return cross_entropy(layer(t, "head", prefixed(t, x)), y)


def prefix_averaged(p: Problem) -> Tensor:
    """FedAvg of prefixes."""
    return federated(p, prefix_loss)


Gaussian = tuple[int, Tensor, Tensor]
"""A client's Gaussian of a class: the number of samples, the mean [8] and the variances [8]."""


def hgp(p: Problem, epochs: int, size: int, rate: float, temperature: float, spread: float) -> Tensor:
    """HGP (Salami et al., 2024): the head, trained on draws from mixtures of the clients' Gaussians of all classes."""
    w, mixtures = trained_part(p), dict[int, list[Gaussian]]()
    for r in p.rounds():
        ends = [trained(p, k, r, w, prefix_loss) for k in r.cohort]
        of_round = dict[int, list[Gaussian]]()
        for k, end in zip(r.cohort, ends, strict=True):
            x, y = p.samples(k, r.task)
            z = prefixed(by_name(p, end), x)
            for label in sorted({*y.tolist()}):
                rows = z[y == label]
                if len(rows) > 1:
                    center = rows.mean(0)
                    squares = (rows - center).square().sum(0) / (len(rows) - 1)
                    of_round.setdefault(label, []).append((len(rows), center, squares))
        mixtures |= of_round
        w = mean(ends).clone()
        t = by_name(p, w)  # views of w
        seen = sorted({*p.earlier(r.task), *p.federation.tasks[r.task].classes})

        def balanced(logits: Tensor, y: Tensor, seen: list[int] = seen) -> Tensor:
            z = logits[:, seen]
            norms = z.square().sum(1, keepdim=True).sqrt()
            places = torch.tensor([seen.index(label) for label in y.tolist()])
            return cross_entropy((z + 1e-12) / (norms + 1e-12) / temperature, places)

        draws = generator(p.config.seed, "server", r.number, "hgp")
        drawn = draw_mixtures(mixtures, spread, size, epochs * len(mixtures), draws)
        head = tuned(t["head.weight"], t["head.bias"], ((x, y, rate) for x, y in drawn), balanced)
        t["head.weight"].copy_(head[0])
        t["head.bias"].copy_(head[1])
    return whole(p, w)


def draw_mixtures(
    mixtures: Mapping[int, list[Gaussian]], spread: float, size: int, batches: int, draws: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of features and classes, of equally likely classes."""
    parts = [(label, *part) for label in sorted(mixtures) for part in mixtures[label]]
    total = {label: sum(n for n, _, _ in mixtures[label]) for label in mixtures}
    chances = np.array([n / total[label] / len(mixtures) for label, n, _, _ in parts])
    for _ in range(batches):
        chosen = [parts[i] for i in draws.choice(len(parts), size, p=chances / chances.sum())]
        noise = torch.from_numpy(draws.standard_normal((size, 8)))
        rows = [m + (spread * (v + 1e-8)).sqrt() * e for (_, _, m, v), e in zip(chosen, noise, strict=True)]
        yield torch.stack(rows), torch.tensor([label for label, *_ in chosen])


def ccvr(p: Problem, virtual: int, epochs: int, size: int, rate: float) -> Tensor:
    """CCVR (Luo et al., NeurIPS 2021): at a task's end, the head is trained on draws from N(mu_c, S_c)."""
    w, gaussians = p.start, dict[int, tuple[Tensor, Tensor]]()
    for r in p.rounds():
        w = mean([p.train(k, r.task, w, plain_loss) for k in r.cohort])
        if not r.ends:
            continue
        of_clients = [(hidden(w, x), y) for x, y in (p.samples(k, r.task) for k in p.clients)]
        for label in p.federation.tasks[r.task].classes:
            gaussians[label] = pooled([z[y == label] for z, y in of_clients if (y == label).any()])
        labels, draws = sorted(gaussians), generator(p.config.seed, "server", r.number, "ccvr")
        features = []
        for label in labels:
            mu, s = gaussians[label]
            root = torch.linalg.cholesky(s + 1e-8 * (1 + s.trace() / 5) * torch.eye(5))
            features.append(mu + torch.from_numpy(draws.standard_normal((virtual, 5))) @ root.T)
        drawn = in_batches(torch.cat(features), torch.tensor(labels).repeat_interleave(virtual), size, epochs, draws)

        def of_classes(logits: Tensor, y: Tensor, labels: list[int] = labels) -> Tensor:
            return cross_entropy(logits[:, labels], torch.searchsorted(torch.tensor(labels), y))

        rated = ((x, y, rate / 2 * (1 + cos(pi * epoch / epochs))) for epoch, x, y in drawn)
        weight, bias = tuned(w[45:75].view(6, 5), w[75:], rated, of_classes)
        w = torch.cat([w[:45], weight.flatten(), bias])
    return w


def pooled(of_clients: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return a class's mean and covariance, from the clients' numbers of samples, means and covariances."""
    n = sum(map(len, of_clients))
    means = [z.mean(0) for z in of_clients]
    mu = torch.stack([len(z) / n * m for z, m in zip(of_clients, means, strict=True)]).sum(0)
    s = -n / (n - 1) * torch.outer(mu, mu)
    for z, m in zip(of_clients, means, strict=True):
        s = s + ((z - m).T @ (z - m) + len(z) * torch.outer(m, m)) / (n - 1)
    return mu, s


def in_batches(
    x: Tensor, y: Tensor, size: int, epochs: int, draws: np.random.Generator
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield the epoch, the rows and the labels of each batch."""
    for epoch in range(epochs):
        for batch in torch.from_numpy(draws.permutation(len(x))).split(size):
            yield epoch, x[batch], y[batch]
