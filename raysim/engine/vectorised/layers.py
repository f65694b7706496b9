"""Layers under torch.vmap: dropout with each client's own random numbers, and convolutions as one product per client.

torch.vmap draws for all clients from one generator. It turns their convolutions into one grouped convolution, and inner
products with one vector into a product with a matrix. Both round differently for another number of clients. A batched
matrix product does not, and it is faster than a grouped convolution on a GPU.
"""

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from raysim.system.errors import RunError

STEPS = 2**22  # steps of a phase with different random numbers
CALLS = 2**10  # calls of dropout in a step, each with up to 2^32 numbers
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
OTHERS = (
    functional.conv1d,
    functional.conv3d,
    functional.conv_transpose1d,
    functional.conv_transpose2d,
    functional.conv_transpose3d,
)
INNER = (torch.dot, torch.Tensor.dot, torch.vdot, torch.Tensor.vdot, torch.inner, torch.Tensor.inner)
PRODUCTS = (torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.mv, torch.Tensor.mv, *INNER)
NORMS = (torch.norm, torch.Tensor.norm, torch.linalg.norm, torch.linalg.vector_norm)


def key_of_step(key: Tensor, step: int) -> Tensor:
    """Return the keys (int64 [n]) of a step's random numbers, given those of the clients' phases."""
    return key + _signed(step * CALLS * 2**32 * GOLDEN)


def uniform(key: Tensor, call: int, count: int) -> Tensor:
    """Return `count` random numbers in [0, 1), float32, multiples of 2^-24: SplitMix64.

    A number depends on its key (int64 []), call and index alone. Steele, Lea and Flood, OOPSLA 2014, figure 17.
    """
    index = torch.arange(1, count + 1, device=key.device)
    bits = key + (index + call * 2**32) * _signed(GOLDEN)
    bits = (bits ^ _shifted(bits, 30)) * _signed(FIRST)
    bits = (bits ^ _shifted(bits, 27)) * _signed(SECOND)
    return _shifted(bits ^ _shifted(bits, 31), 40).float() * 2.0**-24


def inner(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner product [] of two vectors, as one matrix product per client.

    A sum on a GPU would depend on the client's place in the block, as its row may not be aligned.
    """
    both = torch.zeros_like(a) + torch.zeros_like(b)  # makes both the client's own
    return ((a + both)[None] @ (b + both)[:, None]).view(())


def multiply(matrix: Tensor, vector: Tensor) -> Tensor:
    """Return the product [n] of a matrix [n, m] and a vector [m], as one matrix product per client."""
    both = torch.zeros_like(matrix) + torch.zeros_like(vector)
    return ((matrix + both) @ (vector + both[0])[:, None]).flatten()


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, int], pad: tuple[int, int]) -> Tensor:
    """Return the convolution of images [n, c, h, w] with a weight [o, c, k, l], as one matrix product."""
    if any(pad):
        x = functional.pad(x, (pad[1], pad[1], pad[0], pad[0]))
    patches = x.unfold(2, weight.shape[2], stride[0]).unfold(3, weight.shape[3], stride[1])
    n, _, height, width = patches.shape[:4]
    columns = patches.permute(1, 4, 5, 0, 2, 3).reshape(-1, n * height * width)
    y = weight.flatten(1) @ columns
    if bias is not None:
        y = y + bias[:, None] @ columns.new_ones(1, columns.shape[1])  # a product, as its gradient is no sum then
    return y.view(-1, n, height, width).transpose(0, 1)


class Layers(TorchFunctionMode):
    """While this context is active, dropout, convolutions, BatchNorm and inner products are those of this module.

    Args:
        key: the key (int64 []) of the client's random numbers in this step.
    """

    def __init__(self, key: Tensor) -> None:
        super().__init__()
        self._key, self._calls = key, 0

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the function's result. Raises RunError: the function has no form for several clients."""
        if function is functional.dropout:
            return self._drop(*args, **(kwargs or {}), dimensions=None)
        if function in (functional.dropout1d, functional.dropout2d, functional.dropout3d):
            return self._drop(*args, **(kwargs or {}), dimensions=2)
        if function is functional.conv2d:
            return _convolve_as_torch(*args, **(kwargs or {}))
        if function is functional.batch_norm:
            return _normalise(*args, **(kwargs or {}))
        shape = [part.dim() for part in args if isinstance(part, Tensor)]
        if function in PRODUCTS and shape in ([1, 1], [2, 1]):
            return inner(*args) if shape == [1, 1] else multiply(*args)
        if function in NORMS and shape == [1] and len(args) == 1 and not kwargs:
            return inner(args[0], args[0]).sqrt()
        if function in OTHERS:
            raise RunError(f"found {getattr(function, '__name__', function)}, allowed: two-dimensional convolutions")
        return function(*args, **(kwargs or {}))

    def _drop(
        self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False, *, dimensions: int | None
    ) -> Tensor:
        """Set entries to 0, each with probability p, and scale the rest; whole channels if `dimensions` is 2."""
        if not training or p == 0:
            return x
        if p == 1:
            return x * 0
        shape = x.shape[:dimensions]
        kept = uniform(self._key, self._calls, prod(shape)) >= p
        self._calls += 1
        return x * kept.view(*shape, *[1] * (x.dim() - len(shape))) / (1 - p)


def _convolve_as_torch(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve, with torch's arguments. Raises RunError: the convolution has groups, dilation or padding by name."""
    if isinstance(padding, str) or _pair(dilation) != (1, 1) or groups != 1:
        found = f"a convolution with padding {padding}, dilation {dilation}, groups {groups}"
        raise RunError(f"found {found}, allowed: padding as a number, dilation 1, groups 1")
    return convolve(x, weight, bias, _pair(stride), _pair(padding))


def _normalise(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Apply BatchNorm to x [n, c, ...], with torch's arguments. torch's own would lose the statistics under vmap."""
    mean, variance = running_mean, running_var
    if training or mean is None or variance is None:
        of_channel = [0, *range(2, x.dim())]
        mean, variance = x.mean(of_channel), x.var(of_channel, correction=0)
        if running_mean is not None and running_var is not None:
            count = x.numel() // x.shape[1]
            running_mean.mul_(1 - momentum).add_(mean.detach(), alpha=momentum)
            running_var.mul_(1 - momentum).add_(variance.detach(), alpha=momentum * count / (count - 1))
    shape = -1, *[1] * (x.dim() - 2)
    y = (x - mean.view(shape)) * (variance + eps).rsqrt().view(shape)
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def _signed(number: int) -> int:
    """Return a number modulo 2^64 as int64 holds it."""
    return (number + 2**63) % 2**64 - 2**63


def _shifted(bits: Tensor, by: int) -> Tensor:
    """Shift to the right, filling with zeros."""
    shifted: Tensor = (bits >> by) & (2 ** (64 - by) - 1)
    return shifted
