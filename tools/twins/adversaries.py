"""FedCIL: an AC-GAN of the network with BatchNorm and a generator, at every client and at the server.

A critic is v [377]: the network's parameters, and those of the second head, for real images against generated ones.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, softplus
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from raysim.system.seeding import seed_torch, torch_restored
from twins.generators import FIRST, Adam, batches, features, head, moved
from twins.problem import LR, Problem, Round, mean

Source = tuple[Tensor, list[int]]
"""A generator's parameters, and its classes."""


def images_of(noise: int, width: int) -> nn.Module:
    """Return a generator of images [n, 1, 8, 8]; torch draws its weights."""
    layers: list[nn.Module] = [nn.Linear(6 + noise, 8 * width), nn.Unflatten(1, (8 * width, 1, 1))]
    layers += [nn.BatchNorm2d(8 * width), nn.ReLU()]
    for outputs in (4 * width, 2 * width, width):
        layers += [nn.ConvTranspose2d(2 * outputs, outputs, 4, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(width, 1, 3, padding=1), nn.Tanh()).double()


def draw(g: nn.Module, source: Source, count: int, noise: int) -> tuple[Tensor, Tensor]:
    """Return images of a generator and their labels, uniform over its classes."""
    vector_to_parameters(source[0], g.parameters())
    y = torch.tensor(source[1])[torch.randint(len(source[1]), (count,))]
    z = torch.cat([one_hot(y, 6).double(), torch.randn(count, noise, dtype=torch.float64)], 1)
    return (g(z) + 1) / 2, y


def judge(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits, and those of real against generated [n]."""
    f = features(v, x)
    return head(v[:371], f), f @ v[371:376] + v[376]


class Gan:
    """An AC-GAN in training: the critic v, its statistics s, and the generator's parameters with its classes."""

    def __init__(self, g: nn.Module, v: Tensor, s: Tensor, source: Source, noise: int) -> None:
        self.g, self.v, self.s, self.source, self.noise = g, v.clone().requires_grad_(), s, source, noise

    def critic(self, x: Tensor, y: Tensor) -> Tensor:
        """Return CE(x, y) + BCE(x, real) + BCE(x', fake) + CE(x', y') (Odena et al., ICML 2017, eq. 2 and 3)."""
        z, real = self.judged(x)
        fakes, labels = draw(self.g, self.source, max(len(x), 2), self.noise)
        of_fakes, fooled = self.judged(fakes.detach())
        told = softplus(-real).mean() + softplus(fooled).mean()
        return cross_entropy(z, y) + told + cross_entropy(of_fakes, labels)

    def judged(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return `judge`'s logits of a pass in training mode."""
        self.s = moved(self.s, self.v.detach(), x.detach())
        return judge(self.v, x)

    def generator_slope(self, count: int) -> Tensor:
        """Return the gradient of BCE(x', real) + CE(x', y') in the generator."""
        fakes, labels = draw(self.g, self.source, max(count, 2), self.noise)
        z, fooled = self.judged(fakes)
        loss = softplus(-fooled).mean() + cross_entropy(z, labels)
        return parameters_to_vector(torch.autograd.grad(loss, [*self.g.parameters()]))

    def put(self, v: Tensor) -> None:
        """Replace the critic."""
        self.v = v.detach().clone().requires_grad_()


def fedcil(p: Problem, noise: int, width: int, replay: float, server_steps: int, size: int, lr: float) -> Tensor:
    """FedCIL (Qi et al., ICLR 2023): AC-GANs, replay of a client's last generator, and consolidation by the server."""
    with torch_restored():
        seed_torch(p.config.seed, "network", "fedcil.generator")
        g = images_of(noise, width)
        seed_torch(p.config.seed, "network", "fedcil.realness")
        second = parameters_to_vector(nn.Linear(5, 1, dtype=torch.float64).parameters()).detach()
    v, s, c = torch.cat([p.start, second]), FIRST, parameters_to_vector(g.parameters()).detach()
    latest, frozen, stage = dict[int, Source](), dict[int, Source](), dict[int, int]()
    for r in p.rounds():
        ends, current = [], list[Source]()
        for k in r.cohort:
            present = sorted({*p.samples(k, r.task)[1].tolist()})
            known = sorted({*present, *(latest[k][1] if k in latest else ())})
            if k in latest and stage[k] != r.task:
                frozen[k] = latest[k]
            stage[k] = r.task
            gan, steps = Gan(g, v, s, (c, known), noise), [*batches(p, k, r.task)]
            with torch_restored():
                seed_torch(p.config.seed, k, p.trained[k], 0, "fedcil")
                for x, y in steps:
                    loss = gan.critic(x, y)
                    if k in frozen:
                        old, labels = draw(g, frozen[k], max(len(y), 2), noise)
                        loss = (1 - replay) * loss + replay * gan.critic(old.detach(), labels)
                    (slope,) = torch.autograd.grad(loss, gan.v)
                    gan.put(gan.v - LR * slope)
                    gan.source = gan.source[0] - LR * gan.generator_slope(len(y)), known
            ends.append((gan.v.detach(), gan.s, gan.source[0]))
            latest[k] = gan.source
            current.append((gan.source[0], present))
        v, s, c = (mean([*part]) for part in zip(*ends, strict=True))
        past = [frozen[k] for k in r.cohort if k in frozen]
        v, s, c = consolidated(p, r, (v, s, c), current, past, noise, width, replay, server_steps, size, lr)
    return torch.cat([v[:371], s])


def consolidated(
    p: Problem,
    r: Round,
    networks: tuple[Tensor, Tensor, Tensor],
    current: list[Source],
    past: list[Source],
    noise: int,
    width: int,
    replay: float,
    steps: int,
    size: int,
    lr: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the critic, its statistics and the generator after the server's steps on the clients' images."""
    (v, s, c), of_v, of_c = networks, Adam(0.5, 0.99), Adam(0.5, 0.99)
    known = sorted({label for _, labels in current + past for label in labels})
    with torch_restored():
        seed_torch(p.config.seed, "server", r.number, "fedcil")
        g = images_of(noise, width)
        gan = Gan(g, v, s, (c, known), noise)
        for _ in range(steps):
            loss = gan.critic(*balanced(g, current, size, noise))
            if past:
                loss = (1 - replay) * loss + replay * gan.critic(*balanced(g, past, size, noise))
            (slope,) = torch.autograd.grad(loss, gan.v)
            gan.put(of_v.step(gan.v.detach(), slope + 1e-5 * gan.v.detach(), lr))
            c = gan.source[0]
            gan.source = of_c.step(c, gan.generator_slope(size) + 1e-5 * c, lr), known
    return gan.v.detach(), gan.s, gan.source[0]


def balanced(g: nn.Module, sources: list[Source], size: int, noise: int) -> tuple[Tensor, Tensor]:
    """Return images of several generators in equal shares of classes."""
    x, y = (torch.cat([*part]).detach() for part in zip(*(draw(g, one, size, noise) for one in sources), strict=True))
    wanted = y.unique()[torch.randint(len(y.unique()), (size,))]
    places = torch.rand(size, len(y))
    return x[
        [int(torch.where(y == label, row, -1.0).argmax()) for label, row in zip(wanted, places, strict=True)]
    ], wanted
