"""LANDER: features near vectors of their classes, and a generator of images from these vectors.

A model is v [371 + 6 E]: the network's parameters, and those of att, a linear layer from features to vectors [E].
"""

from __future__ import annotations

from math import log2, sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.nn.functional import cross_entropy, kl_div, mse_loss
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from raysim.algorithms.parts.label_embeddings import embed_names
from raysim.system.seeding import seed_torch, torch_restored
from twins.generators import FIRST, Adam, batches, doubling, down, features, head, moved, units
from twins.problem import Problem, Round, mean
from twins.teachers import distil


def att(v: Tensor, f: Tensor) -> Tensor:
    """Return the vectors [n, E] that att makes of features [n, 5]."""
    size = (len(v) - 371) // 6
    return f @ v[371:-size].view(size, 5).T + v[-size:]


def both(v: Tensor, x: Tensor, s: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the logits and att's vectors."""
    f = features(v, x, s)
    return head(v[:371], f), att(v, f)


def far(found: Tensor, vectors: Tensor, radius: float) -> Tensor:
    """Return L_LTE: max(0, mean (found - vectors)^2 - radius)."""
    return (mse_loss(found, vectors) - radius).clamp(min=0)


def lander(
    p: Problem, dimension: int, anchor: float, radius: float, new: float, old: float, client_batch: int, **server: Any
) -> Tensor:
    """LANDER (Tran et al., CVPR 2024): CE and the distance to the classes' vectors; old logits and att on images."""
    vectors = embed_names([*map(str, range(6))], dimension, 0.44).double()
    with torch_restored():
        seed_torch(p.config.seed, "network", "lander.projection")
        first = parameters_to_vector(nn.Linear(5, dimension, dtype=torch.float64).parameters()).detach()
    model = frozen = kept = torch.cat([p.start, first]), FIRST
    made, least = torch.zeros(0), torch.inf
    for r in p.rounds():
        past, seen, total, ends = p.earlier(r.task), p.earlier(r.task + 1), 0.0, []
        a, b = log2(len(seen) / 2 + 1), sqrt(len(past) / len(seen))
        for k in r.cohort:
            (v, s), steps = model, [*batches(p, k, r.task)]
            draws, left = p.draws(k, "lander"), list[Tensor]()
            for number, (x, y) in enumerate(steps):
                v, s = v.clone().requires_grad_(), moved(s, v.detach(), x)
                z, found = both(v, x)
                loss = cross_entropy(z, y) + anchor * far(found, vectors[y], radius)
                if past:
                    left = left or [*torch.from_numpy(draws.permutation(len(made))).split(client_batch)]
                    shown = (made[left.pop(0)].float() / 255).double()
                    s, (z, found), (known, wanted) = (
                        moved(s, v.detach(), shown),
                        both(v, shown),
                        both(frozen[0], shown, frozen[1]),
                    )
                    kept_loss = distil(known[:, past], z[:, past], 2.0) + mse_loss(found, wanted)
                    loss = new * (1 + 1 / a) / b * loss + old * a * b * kept_loss
                total += float(loss.detach()) if number < len(steps) // 2 else 0.0  # the first of two epochs
                v = down(v, loss)
            ends.append((v, s))
        least, kept = (total, model) if total < least else (least, kept)
        model = mean([v for v, _ in ends]), mean([s for _, s in ends])
        if r.ends:
            model, frozen, least = kept, kept, torch.inf  # the model that was sent in the round of least loss
            if r.task < 2:
                made = anchored_images(p, r, model, vectors[seen], anchor, radius, **server)
    return torch.cat([model[0][:371], model[1]])


class FromVectors(nn.Module):
    """Images of vectors: BatchNorm, a random linear layer for each ten rows, and doublings."""

    def __init__(self, dimension: int, hidden: int, width: int, rows: int) -> None:
        super().__init__()
        linear = [nn.Linear(hidden, 4 * width), nn.Unflatten(1, (width, 2, 2)), nn.BatchNorm2d(width)]
        doublings = doubling(width, width, 1e-5, False) + doubling(width, width // 2, 1e-5, False)
        self.rest = nn.Sequential(*linear, *doublings, nn.Conv2d(width // 2, 1, 3, padding=1), nn.Sigmoid())
        self.norm = nn.BatchNorm1d(dimension)
        self.weights = nn.Parameter(torch.randn(-(-rows // 10), dimension, hidden))
        self.biases = nn.Parameter(torch.zeros(-(-rows // 10), hidden))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return images [n, 1, 8, 8] of vectors [n, E]."""
        parts = self.norm(vectors).split(10)
        noisy = [part @ w + b for part, w, b in zip(parts, self.weights, self.biases, strict=True)]
        found: Tensor = self.rest(torch.cat(noisy))
        return found


def drawn_student(dimension: int) -> Tensor:
    """Return a student's parameters: Xavier normal weights, N(0, 1) biases, BatchNorm's N(1, .02) and 0."""
    found = []
    for shape in ((5, 64), (6, 5), (dimension, 5)):
        weight, bias = torch.empty(shape).double(), torch.empty(shape[0]).double()
        found += [init.xavier_normal_(weight).flatten(), init.normal_(bias)]
        if shape == (5, 64):
            found += [init.normal_(torch.empty(5).double(), 1, 0.02), torch.zeros(5).double()]
    return torch.cat(found)


def anchored_images(
    p: Problem,
    r: Round,
    model: tuple[Tensor, Tensor],
    vectors: Tensor,
    anchor: float,
    radius: float,
    hidden: int,
    width: int,
    warmup: int,
    calls: int,
    batch: int,
    steps: int,
    student_steps: int,
    lr_g: float,
    lr_s: float,
    bn: float,
    oh: float,
    adv: float,
) -> Tensor:
    """Return LANDER's images (uint8) of the model that ended a task (algorithm 1)."""
    (v, s), seen, made, earlier = model, p.earlier(r.task + 1), list[Tensor](), None
    with torch_restored():
        seed_torch(p.config.seed, "server", r.number, "lander")
        student = drawn_student(vectors.shape[1]), s
        g, moments = FromVectors(vectors.shape[1], hidden, width, batch).double(), torch.tensor([0.5, 0.2]).double()
        for call in range(1 - warmup, calls + 1):
            whole = batch // len(seen)
            labels = torch.arange(len(seen)).repeat(whole)
            labels = torch.cat([labels, torch.randint(len(seen), (batch - whole * len(seen),))])
            init.normal_(g.weights)
            init.zeros_(g.biases)
            of_g, of_moments, least = Adam(0.5), Adam(0.5), torch.inf
            for _ in range(steps):
                leaf = moments.requires_grad_()
                images = g(vectors[labels])
                x = (images - leaf[0]) / leaf[1]
                (z, found), u = both(v, x, s), units(v, x)
                now = torch.cat([u.mean(0), u.var(0, correction=0)])
                now = now if earlier is None else 0.9 * earlier + 0.1 * now
                loss = oh * cross_entropy(z[:, seen], labels) + anchor * far(found, vectors[labels], radius)
                loss = loss + bn * ((s[:5] - now[:5]).norm() + (s[5:] - now[5:]).norm())
                if call > 2:
                    known, learnt = (part[:, seen].log_softmax(1) for part in (z, both(student[0], x, student[1])[0]))
                    apart = kl_div(learnt, known, reduction="none", log_target=True).sum(1)
                    loss = loss - adv * (apart * (known.argmax(1) == learnt.argmax(1))).mean()
                if loss < least:
                    least, best = float(loss.detach()), images.detach()
                *slopes, slope = torch.autograd.grad(loss, [*g.parameters(), leaf])
                weights = parameters_to_vector(g.parameters()).detach()
                vector_to_parameters(of_g.step(weights, parameters_to_vector(slopes), lr_g), g.parameters())
                moments = of_moments.step(moments.detach(), slope, lr_s)
            earlier = now.detach()
            if call >= 0:
                made.append((best * 255).to(torch.uint8))
                student = taught(student, model, seen, in_order(made), student_steps, anchor)
    return in_order(made)


def in_order(made: list[Tensor]) -> Tensor:
    """Return all images in the order of their files' names."""
    size = len(made[0])
    return torch.cat(made)[sorted(range(len(made) * size), key=lambda place: f"{place // size}-{place % size}.png")]


def taught(
    student: tuple[Tensor, Tensor],
    model: tuple[Tensor, Tensor],
    seen: list[int],
    made: Tensor,
    steps: int,
    anchor: float,
) -> tuple[Tensor, Tensor]:
    """Return the student after SGD with momentum on T^2 KL and the distance of att, at T = 20."""
    (v, s), velocity = student, torch.zeros_like(student[0])
    for _ in range(steps):
        x = (made[torch.randperm(len(made))] / 255).double()
        leaf, s = v.clone().requires_grad_(), moved(s, v, x)
        (z, found), (known, wanted) = both(leaf, x), both(model[0], x, model[1])
        loss = 400 * distil(known[:, seen], z[:, seen], 20.0) + anchor * mse_loss(found, wanted)
        (slope,) = torch.autograd.grad(loss, leaf)
        velocity = 0.9 * velocity + slope + 2e-4 * v
        v = v - 0.1 * velocity
    return v, s
