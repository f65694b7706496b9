"""A multi-layer perceptron for samples of any shape."""

from collections.abc import Sequence
from math import prod
from typing import Annotated

from annotated_types import Ge, Lt, MaxLen, doc
from torch import nn


def mlp(
    shape: tuple[int, ...],
    classes: int,
    *,
    hidden: Annotated[Sequence[Annotated[int, Ge(1)]], MaxLen(1000), doc("the widths of the hidden layers")] = (
        200,
        200,
    ),
    dropout: Annotated[float, Ge(0), Lt(1), doc("the probability that a hidden unit is dropped in training")] = 0.0,
    batch_norm: Annotated[bool, doc("whether hidden layers have BatchNorm")] = False,
) -> nn.Module:
    """A multi-layer perceptron with ReLU; keys hidden (widths), dropout, batch_norm; 2 x 200 as McMahan's 2NN."""
    layers: list[nn.Module] = [nn.Flatten()]
    width = prod(shape)
    for units in hidden:
        layers.append(nn.Linear(width, units))
        if batch_norm:
            layers.append(nn.BatchNorm1d(units))
        layers.append(nn.ReLU())
        if dropout:
            layers.append(nn.Dropout(dropout))
        width = units
    return nn.Sequential(*layers, nn.Linear(width, classes))
