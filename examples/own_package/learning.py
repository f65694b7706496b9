"""More of the package: data, a stream of them, a model and a method."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le, doc
from torch import Tensor, nn

from raysim.api import Client, ClientHalf, Delta, Method, Terms
from raysim.data.builtin import digits
from raysim.data.dataset import Dataset, Split


def inverted(
    root: Path,
    download: bool,
    *,
    writers: Annotated[int, Ge(1), doc("client ids, for partition=natural: each wrote a run of the images")] = 20,
) -> Dataset:
    """scikit-learn's digits in black on white, each training image with the id of who might have written it."""
    plain = digits(root, download)
    clients = np.arange(len(plain.train)) * writers // len(plain.train)
    train = Split(255 - plain.train.x, plain.train.y, clients)
    return Dataset(train, Split(255 - plain.test.x, plain.test.y), classes=10)


def drifting(
    client: int,
    start: int,
    *,
    every: Annotated[int, Ge(1), doc("samples until the next class")] = 50,
) -> Iterator[tuple[np.ndarray[Any, Any], int]]:
    """A stream of noisy grey images, each class lighter than the one before; client k begins with class k."""
    for position in count(start):
        label = (client + position // every) % 10
        noise = np.random.default_rng([client, position]).integers(0, 20, (1, 8, 8))
        yield (20 * label + noise).astype(np.uint8), label


class Small(nn.Module):
    """A hidden layer with LayerNorm."""

    def __init__(self, features: int, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(features, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits [B, classes]."""
        logits: Tensor = self.layers(x)
        return logits


def small(
    shape: tuple[int, ...],
    classes: int,
    *,
    width: Annotated[int, Ge(1), doc("of the hidden layer")] = 32,
) -> nn.Module:
    """A network of one hidden layer with LayerNorm."""
    return Small(int(np.prod(shape)), width, classes)


@dataclass(frozen=True, kw_only=True)
class Shrink(Method):
    """Shrink: every client sends a part of its update (a toy)."""

    factor: Annotated[float, Gt(0), Le(1), doc("the part")] = 0.9

    class Client(ClientHalf):
        """Shrinks what is sent."""

        method: Shrink

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            """Return the smaller update, and no terms."""
            return Delta(self.method.factor * delta.parameters, delta.buffers), {}
