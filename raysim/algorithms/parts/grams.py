"""Gram matrices of layers' inputs, with which RegMean and LoRM merge weights. Jin et al., ICLR 2023.

A Gram G = X X^T of inputs X [d, n] is a matrix [d, d], or its diagonal [d].
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from raysim.api import Client


def gram_matrices(client: Client, positions: Tensor, alphas: Mapping[str, float], purpose: str) -> dict[str, Tensor]:
    """Return the Gram of each layer's inputs, by the weight's name, over the samples at these positions.

    The model is the client's current one, in evaluation mode. The samples are augmented as in training.

    Args:
        client: the client.
        positions: int64 [n], in the client's stream.
        alphas: the factor of the entries off the diagonal, by the weight's name. At 0 the Gram is its diagonal.
        purpose: the name of the random streams.
    """
    model, grams = client.model, dict[str, Tensor]()
    draws = None
    if client.data.augment:
        draws = torch.from_numpy(client.data.draw(client.generator(purpose), len(positions)))
    for part in client.batches(len(positions), single=True):
        x, _ = client.samples(positions[part], None if draws is None else draws[part])
        with client.rng_scope(purpose):
            inputs = model.inputs(x, model.parameters, model.buffers, [*alphas])
        for name, rows in inputs.items():
            gram = rows.T @ rows if alphas[name] else rows.square().sum(0)
            grams[name] = grams[name] + gram if name in grams else gram
    return {name: shrink(gram, alphas[name]) for name, gram in grams.items()}


def shrink(gram: Tensor, alpha: float) -> Tensor:
    """Return alpha G + (1 - alpha) diag(G)."""
    return gram if gram.ndim == 1 else alpha * gram + (1 - alpha) * gram.diagonal().diag()


def pack(grams: Mapping[str, Tensor]) -> Tensor:
    """Return the Grams as one vector: diagonals, and the upper triangles of matrices."""
    return torch.cat([gram if gram.ndim == 1 else gram[_triangle(len(gram))] for gram in grams.values()])


def unpack(vector: Tensor, alphas: Mapping[str, float], widths: Mapping[str, int]) -> dict[str, Tensor]:
    """Return the Grams of a vector that `pack` made, in float64.

    `widths` are the sizes d by the weight's name.
    """
    sizes = [d * (d + 1) // 2 if alpha else d for alpha, d in ((alpha, widths[name]) for name, alpha in alphas.items())]
    grams = {}
    for (name, alpha), part in zip(alphas.items(), vector.double().split(sizes), strict=True):
        grams[name] = part
        if alpha:
            upper = part.new_zeros(widths[name], widths[name])
            upper[_triangle(widths[name])] = part
            grams[name] = upper + upper.T - upper.diagonal().diag()
    return grams


def times(matrix: Tensor, gram: Tensor) -> Tensor:
    """Return matrix [..., d] G."""
    return matrix * gram if gram.ndim == 1 else matrix @ gram


def pseudo_inverse(gram: Tensor, dtype: torch.dtype) -> Tensor:
    """Return G^+ in float64, for a Gram of numbers that were rounded to `dtype`."""
    tolerance = 10 * torch.finfo(dtype).eps
    if gram.ndim == 1:
        return torch.where(gram > tolerance * gram.max(), 1 / gram, 0.0)
    inverse: Tensor = torch.linalg.pinv(gram.double(), rtol=tolerance, hermitian=True)
    return inverse


def _triangle(size: int) -> tuple[Tensor, Tensor]:
    rows, columns = torch.triu_indices(size, size)
    return rows, columns
