"""Samples that are several arrays, such as the ids and the mask of a text: one row that joins them, and its parts."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from raysim.models.stages import StagedNetwork


class NamedArray(NamedTuple):
    """One array of a sample: its name, its shape, and its number of ids from 0 or None, as in `Dataset.arrays`."""

    name: str
    shape: tuple[int, ...]
    ids: int | None = None


@dataclass(frozen=True)
class Arrays:
    """How a row [total] is made of a sample's arrays, one after the other.

    >>> parts = Arrays((NamedArray("input_ids", (2,), 9), NamedArray("mask", (2,), 2)))
    >>> parts.split(torch.tensor([[5, 6, 1, 0]]))["mask"]
    tensor([[1, 0]])
    """

    parts: tuple[NamedArray, ...]

    @property
    def total(self) -> int:
        """The numbers of a row."""
        return sum(prod(part.shape) for part in self.parts)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes by name."""
        return {part.name: part.shape for part in self.parts}

    @property
    def vocabulary(self) -> int | None:
        """The number of ids of the first array, or None if it has numbers."""
        return self.parts[0].ids

    def split(self, x: Tensor) -> dict[str, Tensor]:
        """Return views [n, *shape] by name of the rows x [n, total]."""
        pieces = x.split([prod(part.shape) for part in self.parts], dim=1)
        return {part.name: piece.unflatten(1, part.shape) for part, piece in zip(self.parts, pieces, strict=True)}

    def two_samples(self, dtype: torch.dtype | None) -> Tensor:
        """Return rows [2, total] to try a model on: zeros, and the last id of each array or zeros of this dtype."""
        last = [torch.full(part.shape, (part.ids or 1) - 1).flatten() for part in self.parts]
        rows = torch.stack([torch.zeros(self.total, dtype=torch.int64), torch.cat(last)])
        return rows if all(part.ids is not None for part in self.parts) else rows.to(dtype)


class SplitInputs:
    """A hook before a model's forward pass: the model receives a dict of tensors by name in place of rows.

    A pass that begins late receives features, which stay.
    """

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays

    def __call__(self, model: nn.Module, inputs: tuple[Tensor]) -> tuple[dict[str, Tensor] | Tensor]:
        """Return the inputs of the pass."""
        late = isinstance(model, StagedNetwork) and model.begin
        return inputs if late else (self._arrays.split(inputs[0]),)
