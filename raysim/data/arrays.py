"""Samples of several arrays, such as the ids and the mask of a text. `Split.x` has them in one row."""

from collections.abc import Mapping

import numpy as np

from raysim.data.dataset import Array, NamedShape
from raysim.system.errors import ConfigError


def join_arrays(
    train: Mapping[str, Array], test: Mapping[str, Array], ids: Mapping[str, int] | None = None
) -> tuple[Array, Array, tuple[NamedShape, ...]]:
    """Return the rows of a training and a test split, int64 or float32 [N, total], and how they are made.

    The results are `x` of the splits and `arrays` of the dataset. The model receives a dict of tensors [B, *shape].

    Args:
        train: the arrays [N, *shape] by name: all int64, or all float32.
        test: the same of the test samples.
        ids: the number of ids of int64 arrays by name. The default is the largest id plus one.

    Raises:
        ConfigError: the splits have other arrays, or an array is of another type than the others.
    """
    kinds = {array.dtype.name for array in (*train.values(), *test.values())}
    if len(kinds) != 1 or not kinds <= {"int64", "float32"}:
        raise ConfigError(f"arrays: found {', '.join(sorted(kinds)) or 'none'}, allowed: all int64, or all float32")
    shapes, others = ({name: array.shape[1:] for name, array in of.items()} for of in (train, test))
    if shapes != others:
        raise ConfigError(f"arrays: found {shapes} and for tests {others}, allowed: the same names and shapes")
    numbers = dict(ids or {})
    if kinds == {"int64"}:
        numbers = {name: 1 + max(int(of[name].max(initial=0)) for of in (train, test)) for name in train} | numbers
    parts = tuple((name, tuple(map(int, shape)), numbers.get(name)) for name, shape in shapes.items())
    rows, tests = (
        np.concatenate([of[name].reshape(len(of[name]), -1) for name in train], axis=1) for of in (train, test)
    )
    return rows, tests, parts
