"""The Gaussians of classes, from sums over their samples: with a covariance matrix, or with variances alone.

The sums are those of z and of z z^T, or of z^2. So the Gaussian of a class is that of all clients' samples together,
however they are divided among clients.
"""

from __future__ import annotations

from abc import abstractmethod
from math import isfinite

import numpy as np
import torch
from torch import Tensor

from raysim.algorithms.parts import ridge

TINY = 1e-8  # of the mean variance, plus one: added to variances, so that a covariance has a Cholesky factor


class Moments:
    """How second moments of rows are summed, and features drawn with them."""

    @abstractmethod
    def squares(self, rows: Tensor) -> Tensor:
        """Return the sum of the squares of rows [n, d]."""

    @abstractmethod
    def outer(self, mean: Tensor) -> Tensor:
        """Return the squares of one row [d]."""

    @abstractmethod
    def deviates(self, noise: Tensor, spread: Tensor) -> Tensor:
        """Return rows [n, d] with this covariance (in the form of `squares`), made of standard normal ones."""

    def covariance(self, count: Tensor, total: Tensor, squares: Tensor) -> Tensor:
        """Return the unbiased covariance of n samples with these sums, in the form of `squares`; 0 of one sample.

        With n_k, m_k and S_k of client k, it equals CCVR's pooled form (Luo et al., NeurIPS 2021)

            sum (n_k - 1)/(n - 1) S_k + sum n_k/(n - 1) m_k m_k^T - n/(n - 1) m m^T.
        """
        return (squares - count * self.outer(total / count)) / (count - 1).clamp(min=1)

    def draw(self, count: Tensor, total: Tensor, squares: Tensor, samples: int, draws: np.random.Generator) -> Tensor:
        """Return rows [samples, d] of the Gaussian with these sums, in float64."""
        noise = torch.from_numpy(draws.standard_normal((samples, len(total))))
        return total / count + self.deviates(noise, self.covariance(count, total, squares))


class FullMoments(Moments):
    """Sums of z z^T, as upper triangles [d (d + 1) / 2]."""

    def squares(self, rows: Tensor) -> Tensor:
        """Return the upper triangle of the sum of z z^T."""
        return ridge.upper(rows.T @ rows)

    def outer(self, mean: Tensor) -> Tensor:
        """Return the upper triangle of m m^T."""
        return ridge.upper(mean[:, None] * mean)

    def deviates(self, noise: Tensor, spread: Tensor) -> Tensor:
        """Return L z for rows z and S = L L^T, of which a small multiple of I is a part.

        The multiple grows tenfold until S has a factor: with large means, rounding may leave larger negative
        eigenvalues than the smallest one can lift. A covariance that is not finite has rows that are not.
        """
        matrix = ridge.symmetric(spread, noise.shape[1])
        added = float(TINY * (1 + matrix.diagonal().mean()))
        matrix.diagonal().add_(added)
        factor, failed = torch.linalg.cholesky_ex(matrix)
        while failed and isfinite(10 * added):
            matrix.diagonal().add_(9 * added)
            added *= 10
            factor, failed = torch.linalg.cholesky_ex(matrix)
        rows: Tensor = noise @ factor.T
        return rows


class DiagonalMoments(Moments):
    """Sums of z^2 [d]."""

    def squares(self, rows: Tensor) -> Tensor:
        """Return the sum of z^2."""
        return rows.square().sum(0)

    def outer(self, mean: Tensor) -> Tensor:
        """Return m^2."""
        return mean.square()

    def deviates(self, noise: Tensor, spread: Tensor) -> Tensor:
        """Return the deviations times z, for rows z. Rounding may leave a variance below zero, which counts as none."""
        return noise * (spread.clamp(min=0) + TINY * (1 + spread.mean())).sqrt()


MOMENTS: dict[str, Moments] = {"full": FullMoments(), "diagonal": DiagonalMoments()}
