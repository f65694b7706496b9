"""Small named components for the config's tests: tables, and what they lead to."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Interval, Le, Lt
from pydantic import AfterValidator

DATASETS = {
    "digits": "named_components:digits",
    "archive": "named_components:archive",
    "gone": "module_that_is_not_there:digits",
    "broken": "named_broken:digits",
}
MODELS = {"net": "named_components:net", "greedy": "named_components:greedy", "vague": "named_components:vague"}
METHODS = {
    "fedprox": "named_components:FedProx",
    "der": "named_components:Der",
    "picky": "named_components:picky",
    "plain": "named_components:Plain",
}

not_a_function = 3


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


def even(number: int) -> int:
    if number % 2:
        raise ValueError("it must be\neven")
    return number


def digits(root: Path, download: bool) -> None:
    """Digits."""


def archive(root: Path, download: bool, *, path: str, scale: Annotated[float, Gt(0), Le(4)] = 1) -> None:
    """Arrays of one's own.

    More about them.
    """


def net(
    shape: tuple[int, ...],
    classes: int,
    *,
    hidden: Sequence[Annotated[int, Ge(1)]] = (200, 100),
    kernel: tuple[int, float] = (3, 0.5),
    colour: Colour = Colour.RED,
    file: Path | None = None,
    copy: bool = False,
    model_kind: Literal["wide", "deep"] = "wide",
    anything=None,
) -> None:
    """Net: has keys of every type."""


def no_rate(*, momentum: float = 0.9) -> None:
    """An optimizer without a learning rate."""


class OwnRate:
    """An optimizer that would receive the learning rate twice."""

    default_lr = 0.1

    def __init__(self, *, lr: float = 0.1) -> None: ...


def stream(client: int, start: int) -> None:
    """A stream, which only the config looks at."""


def greedy(shape: tuple[int, ...], *, weights: int = 3) -> None:
    """Greedy: takes a key that every model has."""


def vague(shape: tuple[int, ...], *, size: int = 3) -> None:
    """Vague: its annotation does not exist."""


vague.__annotations__["size"] = "NoSuchType"


@dataclass(frozen=True, kw_only=True)
class FedProx:
    """FedProx."""

    mu: Annotated[float, Ge(0)] = 1e-05


@dataclass(frozen=True, kw_only=True)
class Der:
    """DER."""

    alpha: Annotated[float, Ge(0), Lt(1)] = 0.5
    sizes: list[int] = field(default_factory=lambda: [1, 2])
    share: Annotated[float, Interval(gt=0, le=1)] = 1.0


def _picky(*, pairs: Annotated[int, AfterValidator(even)], fixed: int = 1) -> dict[str, int]:
    return {"pairs": pairs, "fixed": fixed}


picky = functools.partial(_picky, fixed=2)


class Plain:
    """A class that is no dataclass."""

    def __init__(self, *, depth: int = 2) -> None:
        self.depth = depth
