"""What decides the bits of golden runs: torch's version, the CPU's instructions, the precision, and the arithmetic.

Two CPUs with the same instructions may still round differently, as MKL and oneDNN choose kernels by the CPU's maker. So
the results of a few operations on fixed numbers are hashed as well, without any code of raysim. Where these agree,
other bits of a run come from raysim.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Machine:
    """A machine that computes golden runs.

    Attributes:
        torch: the version, without its build.
        capability: what `torch.backends.cpu.get_cpu_capability` returns.
        arithmetic: by precision, the hash of `operations`.
    """

    torch: str
    capability: str
    arithmetic: dict[str, str]

    def stem(self, precision: str) -> str:
        """Return the name of the file of golden runs of this machine and a precision."""
        return f"torch-{self.torch}-{self.capability.lower()}-{precision}-{self.arithmetic[precision]}"


def this_machine() -> Machine:
    """Return the machine of this process."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as in a run
    try:
        with torch.random.fork_rng(devices=[]):
            arithmetic = {
                "float32": _hashed(operations(torch.float32)),
                "bfloat16": _hashed(operations(torch.bfloat16)),
            }
    finally:
        torch.set_num_threads(before)
    return Machine(torch.__version__.partition("+")[0], torch.backends.cpu.get_cpu_capability(), arithmetic)


def operations(dtype: torch.dtype) -> Iterator[Tensor]:
    """Yield the results of operations that golden runs consist of, on numbers that need no generator.

    Those of bfloat16 begin with those of float32, as runs in bfloat16 keep weights and losses in float32.
    """
    torch.manual_seed(0)
    yield from (torch.randn(99), torch.rand(99), torch.randperm(99), functional.dropout(torch.ones(99), 0.3))
    draws = np.random.default_rng(0)
    yield from map(torch.from_numpy, (draws.standard_normal(99), draws.dirichlet([0.5] * 9), draws.permutation(99)))
    yield from _elementwise(_numbers(7, 33))
    yield from _decompositions(_numbers(9, 9).double())
    for kind in dict.fromkeys((torch.float32, dtype)):
        yield from _networks(kind)


def _elementwise(x: Tensor) -> Iterator[Tensor]:
    for name in ("exp", "tanh", "sigmoid", "sin", "erf", "log1p", "rsqrt"):
        yield getattr(torch, name)(x.abs() + 0.1)
    yield from (x.log_softmax(1), functional.gelu(x), x.sum(), x.var(0), x.norm(), x.double().sum())


def _decompositions(square: Tensor) -> Iterator[Tensor]:
    positive = square @ square.T + torch.eye(9)
    yield from (torch.linalg.cholesky(positive), torch.linalg.solve(positive, square), torch.linalg.eigvalsh(positive))
    yield from (torch.linalg.svdvals(square), torch.linalg.svdvals(square.float()))


def _networks(dtype: torch.dtype) -> Iterator[Tensor]:
    """Yield outputs and gradients of small networks."""
    layers: list[tuple[nn.Module, Tensor]] = [
        *((nn.Linear(wide, out), _numbers(rows, wide)) for rows, wide, out in ((6, 36, 8), (48, 36, 8), (6, 8, 6))),
        (nn.BatchNorm1d(8), _numbers(6, 8)),
        (nn.LayerNorm(8), _numbers(6, 4, 8)),
        *((nn.Conv2d(3, 4, 3, padding=1, stride=step), _numbers(2, 3, 8, 8)) for step in (1, 2)),
        (nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1), _numbers(2, 4, 4, 4)),
    ]
    with torch.autocast("cpu", dtype, enabled=dtype is not torch.float32):
        for layer, x in layers:
            for parameter in layer.parameters():
                parameter.data = _numbers(*parameter.shape)
            out = layer(x.requires_grad_())
            out.square().sum().backward()
            yield from (out, *(tensor.grad for tensor in (x, *layer.parameters()) if tensor.grad is not None))
        query = _numbers(2, 2, 6, 4)
        yield functional.scaled_dot_product_attention(query, query.sin(), query)


def _numbers(*shape: int) -> Tensor:
    """Return numbers in (-1, 1) that are the same everywhere: multiples of 1/97 in an order without a pattern."""
    count = int(np.prod(shape))
    return ((torch.arange(count) * 37 % 193 - 96).double() / 97).float().reshape(shape)


def _hashed(tensors: Iterator[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:8]
