"""AF-FCL on the features of the small network's hidden layer, and its flow."""

from __future__ import annotations

from math import log, pi

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, leaky_relu, one_hot
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from raysim.system.seeding import seed_torch, torch_restored
from twins.generators import Adam
from twins.network import hidden, logits
from twins.problem import LR, Problem, mean, slope
from twins.teachers import distil


class Block(nn.Module):
    """h + V s(U s(h)) sigmoid(G y)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.u, self.v, self.g = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(6, width)
        nn.init.uniform_(self.v.weight, -1e-3, 1e-3)
        nn.init.uniform_(self.v.bias, -1e-3, 1e-3)

    def forward(self, h: Tensor, y: Tensor) -> Tensor:
        """Return [n, width] for h [n, width] and one-hot classes y [n, 6]."""
        found: Tensor = h + self.v(leaky_relu(self.u(leaky_relu(h)))) * self.g(y).sigmoid()
        return found


class Flow(nn.Module):
    """Four permutations of 5 features, each followed by an affine coupling (Dinh et al., ICLR 2017, eq. 7 and 8)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.orders = [torch.arange(5).flip(0)] * 2 + [torch.randperm(5), torch.randperm(5)]
        self.nets = nn.ModuleList(
            nn.ModuleList([nn.Linear(2 + 6, width), Block(width), Block(width), nn.Linear(width, 6)]) for _ in range(4)
        )

    def affine(self, number: int, kept: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the shift and the scale [n, 3] of a coupling, given the 2 features that it keeps."""
        first, one, two, last = self.nets[number].children()
        shift, raw = last(two(one(first(torch.cat([kept, y], 1)), y), y)).split(3, 1)
        return shift, (raw + 2).sigmoid() + 1e-3

    def encode(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the codes [n, 5] and ln q(x | y) [n]: ln N(code; 0, 1) + ln |det Jacobian|."""
        volume = torch.zeros(len(x)).double()
        for number, order in enumerate(self.orders):
            kept, changed = x[:, order].split([2, 3], 1)
            shift, scale = self.affine(number, kept, one_hot(y, 6).double())
            x, volume = torch.cat([kept, scale * changed + shift], 1), volume + scale.log().sum(1)
        return x, volume - x.square().sum(1) / 2 - 5 / 2 * log(2 * pi)

    def draw(self, known: list[int], count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return drawn features [n, 5], their classes, uniform over the known ones, and their codes."""
        y = torch.tensor(known)[torch.randint(len(known), (count,))]
        x = codes = torch.randn(count, 5, dtype=torch.float64)
        for number in (3, 2, 1, 0):
            kept, changed = x.split([2, 3], 1)
            shift, scale = self.affine(number, kept, one_hot(y, 6).double())
            x = torch.cat([kept, (changed - shift) / scale], 1)[:, self.orders[number].argsort()]
        return x.detach(), y, codes


def densities(at: Tensor, labels: Tensor, codes: Tensor, y: Tensor, usual: Tensor) -> Tensor:
    """Return the mean over 5 numbers of N(at; mean and variance of the codes of the label); `usual` without these."""
    found = []
    for code, label in zip(at, labels.tolist(), strict=True):
        own = codes[y == label]
        normal = torch.distributions.Normal(own.mean(0), own.var(0, correction=0).sqrt()) if len(own) > 1 else None
        found.append(usual if normal is None else normal.log_prob(code).exp().mean())
    return torch.stack(found)


def first_flow(p: Problem, width: int) -> Flow:
    """Return a flow with raysim's draws of its initial weights and permutations."""
    with torch_restored():
        seed_torch(p.config.seed, "network", "af_fcl.flow")
        return Flow(width).double()


def af_fcl(
    p: Problem,
    k_flow: float,
    theta: float,
    k_last: float,
    k_kdlast: float,
    k_feat: float,
    k_out: float,
    width: int,
    flow_lr: float,
) -> Tensor:
    """AF-FCL (Wuerkaixi et al., ICLR 2024): a flow's features count by their density among a client's own."""
    flow, past = first_flow(p, width), first_flow(p, width)
    w = last = p.start
    g = last_g = parameters_to_vector(flow.parameters()).detach()
    adams = {k: Adam(0.9) for k in p.clients}
    for r in p.rounds():
        last, last_g = (w, g) if r.begins else (last, last_g)
        old, known = p.earlier(r.task), (p.earlier(r.task), p.earlier(r.task + 1))
        vector_to_parameters(last_g, past.parameters())

        def replay(
            v: Tensor, x: Tensor, y: Tensor, last: Tensor = last, known: tuple[list[int], list[int]] = known
        ) -> Tensor:
            old, so_far = known
            drawn, labels, codes = flow.draw(so_far, len(y))
            own, likelihood = flow.encode(hidden(v, x).detach(), y)
            usual = (likelihood / 5).exp().mean().detach()
            z, before = (drawn @ u[45:75].view(6, 5).T + u[75:] for u in (v, last))
            weights = densities(codes, labels, own.detach(), y, usual)
            fit = -(weights * (z.softmax(1) + 1e-30).log()[range(len(y)), labels]).mean()
            loss = ((1 - theta) * usual + theta) * fit
            far = -((before / 2).softmax(1) * ((z / 2).softmax(1) + 1e-30).log()).sum(1).mean()
            return k_flow * (loss + k_out * k_kdlast * far if old else loss)

        def whole(v: Tensor, x: Tensor, y: Tensor, last: Tensor = last, old: list[int] = old) -> Tensor:
            far = k_feat * (hidden(v, x) - hidden(last, x)).square().mean()
            kept = far + k_out * distil(logits(last, x), logits(v, x), 2.0)
            return cross_entropy(logits(v, x), y) + (k_kdlast * kept if old else 0)

        ends = []
        for k in r.cohort:
            (x, y), v, c = p.samples(k, r.task), w, g
            batches = [*p.orders(k, len(y))]
            with torch_restored():
                seed_torch(p.config.seed, k, p.trained[k], 0, "af_fcl")
                for batch in batches:
                    vector_to_parameters(c, flow.parameters())
                    loss = -flow.encode(hidden(v, x[batch]), y[batch])[1].mean()
                    if old:
                        drawn, labels, _ = past.draw(old, len(batch))
                        loss = loss - k_last * flow.encode(drawn, labels)[1].mean()
                    of_flow = parameters_to_vector(torch.autograd.grad(loss, [*flow.parameters()]))
                    c = adams[k].step(c, of_flow, flow_lr)
                    vector_to_parameters(c, flow.parameters())
                    of_head = slope(replay, v, x[batch], y[batch])
                    v = v - LR * of_head
                    v = v - LR * slope(whole, v, x[batch], y[batch])
            ends.append((v, c))
        w, g = (mean([*part]) for part in zip(*ends, strict=True))
    return w
