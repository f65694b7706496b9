"""MFCL and TARGET: the server trains a generator on a model with BatchNorm, and clients learn from its images.

A model is its parameters w [371] and its running statistics s [10]: the means and the variances of 5 units.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, log, pi
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from raysim.system.seeding import seed_torch, torch_restored
from twins.problem import LR, Problem, Round, mean
from twins.teachers import distil

IMAGES = {"dataset.shape": [1, 8, 8], "model": "twins.network:normalized"}
FIRST = torch.cat([torch.zeros(5), torch.ones(5)]).double()  # the initial statistics


class Adam:
    """Adam (Kingma and Ba, ICLR 2015, algorithm 1)."""

    def __init__(self, first: float, second: float = 0.999) -> None:
        self.first, self.second, self.t = first, second, 0
        self.m = self.v = torch.zeros(1).double()

    def step(self, w: Tensor, g: Tensor, lr: float) -> Tensor:
        """Return w after a step along the gradient g."""
        self.t += 1
        self.m = self.first * self.m + (1 - self.first) * g
        self.v = self.second * self.v + (1 - self.second) * g.square()
        root = (self.v / (1 - self.second**self.t)).sqrt()
        return w - lr * self.m / (1 - self.first**self.t) / (root + 1e-8)


def units(w: Tensor, x: Tensor) -> Tensor:
    """Return the inputs [n, 5] of BatchNorm."""
    return x.flatten(1) @ w[:320].view(5, 64).T + w[320:325]


def features(w: Tensor, x: Tensor, s: Tensor | None = None) -> Tensor:
    """Return the hidden units [n, 5], normalized by the batch or by these statistics."""
    u = units(w, x)
    center, variance = (u.mean(0), u.var(0, correction=0)) if s is None else (s[:5], s[5:])
    return torch.tanh((u - center) / (variance + 1e-5).sqrt() * w[325:330] + w[330:335])


def head(w: Tensor, f: Tensor) -> Tensor:
    """Return the logits [n, 6] of hidden units."""
    return f @ w[335:365].view(6, 5).T + w[365:]


def moved(s: Tensor, w: Tensor, x: Tensor) -> Tensor:
    """Return the running statistics after a pass of the batch x in training mode."""
    u = units(w, x)
    return 0.9 * s + 0.1 * torch.cat([u.mean(0), u.var(0)])


def batches(p: Problem, client: int, task: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Return the batches of a local training. BatchNorm cannot train on one sample, so such a rest is left out."""
    x, y = p.samples(client, task)
    orders = [batch for batch in p.orders(client, len(y)) if len(batch) > 1]
    return iter([(x[batch], y[batch]) for batch in orders])


def down(v: Tensor, loss: Tensor) -> Tensor:
    """Return v after a step of SGD."""
    (gradient,) = torch.autograd.grad(loss, v)
    return (v - LR * gradient).detach()


def averaged(p: Problem) -> Tensor:
    """FedAvg of the network with BatchNorm."""
    return proximal(p, 0.0)


def proximal(p: Problem, mu: float) -> Tensor:
    """FedProx (Li et al., MLSys 2020, eq. 2) of a network with BatchNorm, and the mean of its statistics."""
    w, s = p.start, FIRST
    for r in p.rounds():
        ends = []
        for k in r.cohort:
            v, t = w, s
            for x, y in batches(p, k, r.task):
                v, t = v.clone().requires_grad_(), moved(t, v.detach(), x)
                pull = mu / 2 * (v - w).square().sum()
                v = down(v, cross_entropy(head(v, features(v, x)), y) + pull)
            ends.append((v, t))
        w, s = (mean([*part]) for part in zip(*ends, strict=True))
    return torch.cat([w, s])


def doubling(before: int, after: int, eps: float, bias: bool) -> list[nn.Module]:
    """Return layers that double an image."""
    convolution = nn.Conv2d(before, after, 3, padding=1, bias=bias)
    return [nn.Upsample(scale_factor=2), convolution, nn.BatchNorm2d(after, eps), nn.LeakyReLU(0.2)]


def generator(latent: int, width: int, eps: float, bias: bool, last: nn.Module) -> nn.Module:
    """Return a generator of images [n, 1, 8, 8]; torch draws its weights."""
    first = [nn.Linear(latent, 4 * width), nn.Unflatten(1, (width, 2, 2)), nn.BatchNorm2d(width)]
    doublings = doubling(width, width, eps, bias) + doubling(width, width // 2, eps, bias)
    return nn.Sequential(*first, *doublings, nn.Conv2d(width // 2, 1, 3, padding=1), last).double()


def among(z: Tensor, y: Tensor, labels: list[int]) -> Tensor:
    """Return the cross-entropy of a softmax over some classes."""
    return cross_entropy(z[:, labels], torch.tensor([labels.index(label) for label in y.tolist()]))


def mfcl(
    p: Problem, w_ft: float, w_kd: float, generated: int, latent: int, width: int, passes: int = 1, **server: Any
) -> Tensor:
    """MFCL (Babakniya et al., NeurIPS 2023): CE of new classes + w_ft CE of the head + w_kd/K (W* (f - f*))^2."""
    w, s = frozen = p.start, FIRST
    with torch_restored():
        seed_torch(p.config.seed, "network", "mfcl.generator")
        g = generator(latent, width, 0.8, True, nn.Tanh())
    for r in p.rounds():
        old, ends = p.earlier(r.task), []
        new = [label for label in p.earlier(r.task + 1) if label not in old]
        for k in r.cohort:
            (v, t), steps = (w, s), batches(p, k, r.task)
            with torch_restored():
                seed_torch(p.config.seed, k, p.trained[k], 0, "mfcl")
                for real, y in steps:
                    v, x, rows = v.clone().requires_grad_(), real, len(y)
                    if old:
                        made = images_of(g.eval(), torch.randn(generated, latent, dtype=torch.float64)).detach()
                        x = torch.cat([real, made])
                    f = features(v, x)
                    for _ in range(passes if old else 1):
                        t = moved(t, v.detach(), x)
                    loss = among(head(v, f[:rows]), y, new)
                    if old:
                        before = features(frozen[0], x, frozen[1])
                        labels = torch.tensor(old)[head(frozen[0], before[rows:])[:, old].argmax(1)]
                        loss = loss + w_ft * among(head(v, f.detach()), torch.cat([y, labels]), sorted(old + new))
                        far = (f - before) @ frozen[0][335:365].view(6, 5)[old].T
                        loss = loss + w_kd / len(old) * far.square().sum(1).mean()
                    v = down(v, loss)
            ends.append((v, t))
        w, s = (mean([*part]) for part in zip(*ends, strict=True))
        if r.ends and r.task < 2:
            frozen = w, s
            train_mfcl(p, r, frozen, g.train(), latent, **server)
    return torch.cat([w, s])


def images_of(g: nn.Module, noise: Tensor) -> Tensor:
    """Return MFCL's images: the outputs of tanh as pixels."""
    found: Tensor = (g(noise) + 1) / 2
    return found


def train_mfcl(
    p: Problem,
    r: Round,
    model: tuple[Tensor, Tensor],
    g: nn.Module,
    latent: int,
    steps: int,
    batch: int,
    lr: float,
    divisor: float,
    w_ie: float,
    w_bn: float,
    w_noise: float,
) -> None:
    """Train MFCL's generator on the model that ended a task: content, entropy, BatchNorm's statistics, and noise."""
    (w, s), classes, adam = model, p.earlier(r.task + 1), Adam(0.9)
    with torch_restored():
        seed_torch(p.config.seed, "server", r.number, "mfcl")
        for _ in range(steps):
            x = images_of(g, torch.randn(batch, latent, dtype=torch.float64))
            z, u = head(w, features(w, x, s))[:, classes], units(w, x)
            q = z.softmax(1).mean(0)
            variance, kept = u.var(0, correction=0) + 1e-8, s[5:] + 1e-8
            far = (variance / kept).sqrt().log() - (1 - (kept + (u.mean(0) - s[:5]).square()) / variance) / 2
            loss = cross_entropy(z / divisor, z.argmax(1)) + w_ie * (1 + (q * q.log()).sum() / log(len(classes)))
            loss = loss + w_bn * far.mean() + w_noise * (x - blurred(x)).square().mean()
            gradient = parameters_to_vector(torch.autograd.grad(loss, [*g.parameters()]))
            vector_to_parameters(adam.step(parameters_to_vector(g.parameters()).detach(), gradient, lr), g.parameters())


def blurred(x: Tensor) -> Tensor:
    """Return images [n, 1, 8, 8] after a 5 x 5 Gaussian filter of variance 2, with reflected margins."""
    taps = torch.exp(-torch.tensor([4.0, 1.0, 0.0, 1.0, 4.0], dtype=torch.float64) / 4)
    taps, wide = taps / taps.sum(), pad(x, [2] * 4, "reflect")
    shifted = [taps[i] * taps[j] * wide[:, :, i : i + 8, j : j + 8] for i in range(5) for j in range(5)]
    return torch.stack(shifted).sum(0)


def target(p: Problem, kd: float, temperature: float, client_batch: int, **server: Any) -> Tensor:
    """TARGET (Zhang et al., ICCV 2023): CE + kd KD of the last task's model on generated images, over old classes."""
    w, s = frozen = p.start, FIRST
    made = torch.zeros(0)
    for r in p.rounds():
        old, ends = p.earlier(r.task), []
        for k in r.cohort:
            (v, t), steps = (w, s), batches(p, k, r.task)
            draws, left = p.draws(k, "target"), list[Tensor]()
            for x, y in steps:
                v, t = v.clone().requires_grad_(), moved(t, v.detach(), x)
                loss = cross_entropy(head(v, features(v, x)), y)
                if old:
                    left = left or [*torch.from_numpy(draws.permutation(len(made))).split(client_batch)]
                    shown = (made[left.pop(0)].float() / 255).double()
                    t = moved(t, v.detach(), shown)
                    known = head(frozen[0], features(frozen[0], shown, frozen[1]))[:, old]
                    loss = loss + kd * distil(known, head(v, features(v, shown))[:, old], temperature)
                v = down(v, loss)
            ends.append((v, t))
        w, s = (mean([*part]) for part in zip(*ends, strict=True))
        if r.ends and r.task < 2:
            frozen = w, s
            made = target_images(p, r, frozen, **server)
    return torch.cat([w, s])


def target_images(
    p: Problem,
    r: Round,
    model: tuple[Tensor, Tensor],
    latent: int,
    width: int,
    calls: int,
    batch: int,
    steps: int,
    lr_g: float,
    lr_z: float,
    bn: float,
    oh: float,
    adv: float = 0.0,
    warmup: int = 20,
    student_steps: int = 0,
    student_temperature: float = 20.0,
    falls: bool = True,
) -> Tensor:
    """Return TARGET's images (uint8) of the model that ended a task (algorithm 2).

    A student learns from them after each batch that follows the warm-up. From the last batch of the warm-up on, images
    are also those in which both agree on the class and differ in its probability.
    """
    (w, s), classes, made = model, p.earlier(r.task + 1), list[Tensor]()
    earlier, meta, student = None, Adam(0.5), Student(s, classes)
    with torch_restored():
        seed_torch(p.config.seed, "server", r.number, "target")
        g = generator(latent, width, 1e-5, False, nn.Sigmoid())
        whole = parameters_to_vector(g.parameters()).detach()
        for call in range(1, calls + 1):
            z, labels = torch.randn(batch, latent).double(), torch.randint(len(classes), (batch,))
            copy, total, of_copy, of_z, least = whole, torch.zeros_like(whole), Adam(0.5), Adam(0.5), torch.inf
            for _ in range(steps):
                vector_to_parameters(copy, g.parameters())
                x = g(z.requires_grad_())
                u = units(w, x)
                moments = torch.cat([u.mean(0), u.var(0, correction=0)])
                moments = moments if earlier is None else 0.9 * earlier + 0.1 * moments
                far = (s[:5] - moments[:5]).norm() + (s[5:] - moments[5:]).norm()
                known = head(w, features(w, x, s))[:, classes]
                loss = bn * far + oh * cross_entropy(known, labels)
                if adv and call >= warmup:
                    learnt = head(student.weights, features(student.weights, x, student.statistics))[:, classes]
                    ratio = (known.softmax(1) * (known.log_softmax(1) - learnt.log_softmax(1))).sum(1)
                    loss = loss - adv * (ratio * (known.argmax(1) == learnt.argmax(1))).mean()
                if loss < least:
                    least, best = float(loss.detach()), x.detach()
                *of_g, slope = torch.autograd.grad(loss, [*g.parameters(), z])
                gradient = parameters_to_vector(of_g)
                total = total + gradient
                copy, z = of_copy.step(copy, gradient, lr_g), of_z.step(z.detach(), slope, lr_z)
            earlier, whole = moments.detach(), meta.step(whole, total, steps * lr_g)
            made.append((best * 255).to(torch.uint8))
            if call > warmup:
                teach(student, w, s, by_name(made), batch, student_steps, student_temperature, falls)
    return by_name(made)


def by_name(made: list[Tensor]) -> Tensor:
    """Return the images of all calls in the order of their files' names, such as 1-10.png."""
    batch = len(made[0])
    files = sorted(range(len(made) * batch), key=lambda place: f"{place // batch}-{place % batch}.png")
    return torch.cat(made)[files]


class Student:
    """TARGET's student: new weights, drawn when they are first read, with the teacher's statistics."""

    def __init__(self, statistics: Tensor, classes: list[int]) -> None:
        self.statistics, self.classes, self.taught = statistics, classes, 0
        self.velocity = torch.zeros(371).double()
        self._weights: Tensor | None = None

    @property
    def weights(self) -> Tensor:
        """The weights [371]."""
        if self._weights is None:
            glorot = (2 / (64 + 5)) ** 0.5, (2 / (5 + 6)) ** 0.5  # the deviations of Xavier's normal draws
            sizes = zip((320, 5, 5, 30, 6), (glorot[0], 1.0, 0.02, glorot[1], 1.0), strict=True)
            drawn = [deviation * torch.randn(size, dtype=torch.float64) for size, deviation in sizes]
            self._weights = torch.cat([*drawn[:2], 1 + drawn[2], torch.zeros(5), *drawn[3:]])
        return self._weights

    @weights.setter
    def weights(self, weights: Tensor) -> None:
        self._weights = weights


def teach(
    student: Student, w: Tensor, s: Tensor, made: Tensor, batch: int, steps: int, temperature: float, falls: bool
) -> None:
    """Distil the model into the student: T^2 KD, SGD with momentum .9 and decay 1e-4, and a rate that falls."""
    lr = 2e-4 + (0.2 - 2e-4) * (1 + cos(pi * student.taught * falls / 200)) / 2
    v, t, left = student.weights, student.statistics, list[Tensor]()
    for _ in range(steps):
        left = left or [rows for rows in torch.randperm(len(made)).split(batch) if len(rows) > 1]
        x = (made[left.pop(0)].float() / 255).double()
        v, t = v.clone().requires_grad_(), moved(t, v.detach(), x)
        known, learnt = head(w, features(w, x, s)), head(v, features(v, x))
        loss = temperature**2 * distil(known[:, student.classes], learnt[:, student.classes], temperature)
        (slope,) = torch.autograd.grad(loss, v)
        student.velocity = 0.9 * student.velocity + slope + 1e-4 * v.detach()
        v = v.detach() - lr * student.velocity
    student.weights, student.statistics, student.taught = v, t, student.taught + 1
