"""The image sizes for which image generators are built, and the grids from which they begin."""

from collections.abc import Sequence

UPSAMPLINGS = {8: 2, 28: 2, 32: 2, 64: 3}
"""Height and width of an image -> how often a generator doubles its first grid, unless its paper differs."""
CHANNELS = (1, 3)


def first_grid(height: int, width: int, upsamplings: int | None = None) -> tuple[int, int]:
    """Return a generator's first grid as (base, ups): base 2^ups = height, with base x base cells doubled ups times.

    `upsamplings` replaces the table's number, as TARGET's generator doubles two times at 64 x 64, MFCL's three times.

    Raises:
        ValueError: no generator is built for this size, or the height cannot be halved that often.
    """
    if height != width or height not in UPSAMPLINGS:
        raise ValueError(f"found images of {height} x {width}, allowed: {_list_sizes()}")
    ups = UPSAMPLINGS[height] if upsamplings is None else upsamplings
    base, rest = divmod(height, 2**ups)
    if rest:
        raise ValueError(f"found {ups} upsamplings for {height} x {width}, allowed: a number of halvings of {height}")
    return base, ups


def unfit_shape(shape: Sequence[int]) -> str | None:
    """Return why no image generator makes samples of this shape, and which it can make. None if one does."""
    if len(shape) == 3 and shape[0] in CHANNELS and shape[1] == shape[2] and shape[1] in UPSAMPLINGS:
        return None
    return (
        f"generates images, but the samples have the shape {tuple(shape)}, allowed: {_list_sizes()}, of "
        f"{' or '.join(map(str, CHANNELS))} channels; resize the images, or choose a method without a generator"
    )


def _list_sizes() -> str:
    *some, last = (f"{size} x {size}" for size in UPSAMPLINGS)
    return f"{', '.join(some)} and {last} pixels"
