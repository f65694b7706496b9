"""A multi-layer perceptron for tables: numbers, and categories that are embedded."""

from collections.abc import Sequence
from typing import Annotated

import torch
from annotated_types import Ge, Lt, MaxLen, doc
from torch import Tensor, nn

from raysim.models.mlp import mlp
from raysim.system.errors import ConfigError


class TableMLP(nn.Module):
    """Numbers [B, D - C] and the embeddings of C categories, one after the other, and a multi-layer perceptron."""

    def __init__(self, numbers: int, categories: Sequence[int], width: int, layers: nn.Module) -> None:
        super().__init__()
        self.numbers = numbers
        self.categories = nn.ModuleList(nn.Embedding(size, width) for size in categories)
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [B, outputs] of rows [B, D]: numbers, then ids."""
        numbers, ids = x[:, : self.numbers], x[:, self.numbers :].long()
        vectors = [embedding(ids[:, place]) for place, embedding in enumerate(self.categories)]
        logits: Tensor = self.layers(torch.cat([numbers, *vectors], 1))
        return logits


def table_mlp(
    shape: tuple[int, ...],
    classes: int,
    *,
    hidden: Annotated[Sequence[Annotated[int, Ge(1)]], MaxLen(1000), doc("the widths of the hidden layers")] = (64, 64),
    width: Annotated[int, Ge(1), doc("numbers of the vector of a category's value")] = 8,
    dropout: Annotated[float, Ge(0), Lt(1), doc("the probability that a hidden unit is dropped in training")] = 0.0,
    batch_norm: Annotated[bool, doc("whether hidden layers have BatchNorm")] = False,
    categories: Annotated[
        tuple[Annotated[int, Ge(1)], ...] | None, doc("the number of ids of each category; null is as the data have")
    ] = None,
) -> nn.Module:
    """A multi-layer perceptron for tables, with embedded categories; keys hidden, width, dropout, batch_norm."""
    if len(shape) != 1 or len(categories or ()) > shape[0]:
        found = f"samples of shape {shape} and {len(categories or ())} categories"
        raise ConfigError(f"model.name: found {found}, allowed for table_mlp: rows [D] of a table")
    if not categories:
        return mlp(shape, classes, hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    numbers = shape[0] - len(categories)
    inputs = numbers + width * len(categories)
    layers = mlp((inputs,), classes, hidden=hidden, dropout=dropout, batch_norm=batch_norm)
    return TableMLP(numbers, categories, width, layers)
