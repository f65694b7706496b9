"""FedAvgM, FedAdam and FedYogi: the gradient of the server's optimizer is the mean change with the other sign."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from twins.problem import Problem, mean, plain_loss


def fedavgm(p: Problem, beta: float, lr: float) -> Tensor:
    """FedAvgM (Hsu et al., 2019): SGD with momentum, that of torch.optim."""
    w = p.start.clone().requires_grad_()
    optimizer = torch.optim.SGD([w], lr=lr, momentum=beta)
    for r in p.rounds():
        sent = w.detach().clone()
        w.grad = sent - mean([p.train(k, r.task, sent, plain_loss) for k in r.cohort])
        optimizer.step()
    return w.detach()


def fedadam(p: Problem, lr: float, tau: float) -> Tensor:
    """FedAdam (Reddi et al., ICLR 2021, algorithm 2): v = 0.99 v + 0.01 d^2, without a correction of bias."""
    return adaptive(p, lr, tau, lambda v, square: 0.99 * v + 0.01 * square)


def fedyogi(p: Problem, lr: float, tau: float) -> Tensor:
    """FedYogi (Reddi et al., ICLR 2021, algorithm 2): v = v - 0.01 d^2 sgn(v - d^2)."""
    return adaptive(p, lr, tau, lambda v, square: v - 0.01 * square * torch.sign(v - square))


def adaptive(p: Problem, lr: float, tau: float, second: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return the model after rounds of w + lr m / (sqrt v + tau), with this rule for the second moment."""
    w, m, v = p.start, torch.zeros_like(p.start), torch.full_like(p.start, tau**2)
    for r in p.rounds():
        d = mean([p.train(k, r.task, w, plain_loss) for k in r.cohort]) - w
        m, v = 0.9 * m + 0.1 * d, second(v, d.square())
        w = w + lr * m / (v.sqrt() + tau)
    return w
