"""Bytes of a message as a line through what rehearsals of different size showed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from raysim.federation.stream import Stream


@dataclass(frozen=True)
class Sizes:
    """How many samples a client has in a window of its stream."""

    arrived: int
    """Those in the window."""
    finished: int
    """Those of the stages before."""
    so_far: int
    """Those up to the end of the window."""
    made: float = 1.0
    """The share that methods make of what they make at the server, such as images; see `Brevity`."""


def sizes_in(stream: Stream, window: int, made: float = 1.0) -> Sizes:
    """Return a client's sizes in a window of its stream."""
    return Sizes(stream.size(window), len(stream.span(0, stream.stage(window))), stream.arrived(window), made)


def add_up(sizes: Iterable[Sizes]) -> Sizes:
    """Return the sizes of several clients together."""
    every = [*sizes]
    return Sizes(sum(s.arrived for s in every), sum(s.finished for s in every), sum(s.so_far for s in every))


@dataclass(frozen=True)
class ByteLine:
    """Bytes that grow with one of the attributes of `Sizes`; None if they are constant."""

    constant: float
    slope: float = 0.0
    of: str | None = None

    def at(self, sizes: Sizes) -> int:
        """Return the bytes of a client with these sizes."""
        return round(self.constant + (self.slope * getattr(sizes, self.of) if self.of else 0))


def fit(points: Sequence[tuple[Sizes, int]], attributes: Sequence[str]) -> tuple[ByteLine, bool]:
    """Return the line that is nearest to these points, and whether all are on it.

    Of lines that are equally near, the constant comes first, and then those of the attributes in turn.
    """
    nbytes = np.array([each for _, each in points], float)
    lines = [ByteLine(float(nbytes[-1]))]
    for of in attributes:
        x = np.array([getattr(sizes, of) for sizes, _ in points], float)
        if np.ptp(x) > 0:
            slope, constant = np.polyfit(x, nbytes, 1)
            lines.append(ByteLine(float(constant), float(slope), of))
    off = [sum(abs(line.at(sizes) - each) for sizes, each in points) for line in lines]
    return lines[int(np.argmin(off))], min(off) == 0
