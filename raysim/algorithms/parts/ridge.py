"""Ridge regression in closed form, from sums over samples: W = (G + lambda I)^-1 P.

For features z [M] and one-hot labels y [C], G = sum z z^T [M, M] and P = sum z y^T [M, C]. W minimizes

    sum || W^T z - y ||^2 + lambda || W ||_F^2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from raysim.api import Server, Weights


def upper(matrix: Tensor) -> Tensor:
    """Return the upper triangle [M (M + 1) / 2] of a symmetric matrix [M, M]."""
    rows, columns = torch.triu_indices(*matrix.shape)
    return matrix[rows, columns]


def symmetric(triangle: Tensor, size: int) -> Tensor:
    """Return the symmetric matrix [size, size] of an upper triangle."""
    rows, columns = torch.triu_indices(size, size)
    full = triangle.new_zeros(size, size)
    full[rows, columns] = triangle
    full[columns, rows] = triangle
    return full


def strength(gram: Tensor, ridge: float, relative: bool) -> float:
    """Return lambda: `ridge`, or `ridge` times the mean of the Gram's diagonal."""
    return ridge * float(gram.diagonal().mean()) if relative else ridge


def solve(gram: Tensor, cross: Tensor, penalty: float) -> Tensor | None:
    """Return W [M, C] by Cholesky's decomposition, for G [M, M] and P [M, C] in float64.

    None if the matrix G + penalty I is not positive definite in float64.
    """
    matrix = gram + penalty * torch.eye(len(gram), dtype=gram.dtype)
    factor, failed = torch.linalg.cholesky_ex(matrix)
    # pivots of a singular matrix are rounding errors, which may be positive
    least = len(gram) * torch.finfo(gram.dtype).eps * matrix.diagonal().max()
    if bool(failed) or not bool((factor.diagonal().square() > least).all()):
        return None
    return torch.cholesky_solve(cross, factor)


def describe_singular(name: str, ridge: float) -> str:
    """Return the error message for a penalty that is too small for `solve`."""
    return (
        f"methods.{name}.ridge: found {ridge:g}, with which the features' Gram matrix is singular, allowed: a larger "
        "number, such as 0.01 with ridge_relative=true"
    )


def with_head(server: Server, weight: Tensor) -> Weights:
    """Return the server's model with this weight [C, M] of the head. The head's bias is 0."""
    parameters = server.parameters.clone()
    named = server.network.named(parameters)
    name, *bias = server.network.head
    named[name].copy_(weight)
    for other in bias:
        named[other].zero_()
    return Weights(parameters, server.buffers, server.integers)
