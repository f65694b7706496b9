"""The sizes of images that annotations name, compared with the files': which pixels do the boxes belong to?"""

from __future__ import annotations

from typing import TypeGuard

LARGEST = 2**31  # pixels: beyond any image

Size = tuple[float, float]
"""Width and height in pixels."""


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number of pixels: finite, and neither a truth value nor huge."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST


def is_side(value: object) -> bool:
    """Return whether a value is the width or height of an image: whole and above 0."""
    return is_number(value) and value > 0 and value == int(value)


def is_resized(one: Size, other: Size) -> bool:
    """Return whether rounding explains that one image is the other one, resized with its proportions.

    A resize of W x H by s has sides w and h. Rounding moves each by less than a pixel: |w - sW| < 1 and |h - sH| < 1.
    So |wH - hW| <= H |w - sW| + W |h - sH| < W + H. Either image may be the resized one.
    """
    return _difference(one, other) < max(sum(one), sum(other))


def _difference(one: Size, other: Size) -> float:
    return abs(one[0] * other[1] - one[1] * other[0])


def is_stored_size(named: Size, stored: Size, upright: Size) -> bool | None:
    """Return whether a size is that of the pixels as stored, and not as shown; None if it is neither.

    Metadata may turn an image by a quarter when it is shown. Of two sizes that both match, the nearer one counts, and
    where they are equal, the image as shown.
    """
    nearest = min((upright, stored), key=lambda size: _difference(named, size))
    return nearest != upright if is_resized(named, nearest) else None
