"""Made-up data of any size: for tests, benchmarks and first tries."""

import math
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt

from raysim.data.dataset import Dataset, Split


def synthetic(
    root: Path,
    download: bool,
    *,
    classes: Annotated[int, Ge(1)] = 10,  # how many classes
    shape: tuple[Annotated[int, Ge(1)], ...] = (1, 8, 8),  # of a sample: [features], or [channels, height, width]
    train: Annotated[int, Ge(1)] = 1000,  # training samples in all
    test: Annotated[int, Ge(1)] = 200,  # test samples in all
    noise: Annotated[float, Gt(0)] = 1.0,  # standard deviation of a sample around its class's mean
    seed: Annotated[int, Ge(0)] = 0,  # what the data are made from
) -> Dataset:
    """Gaussian classes of any `shape`, number and size, made on the spot from `seed`: float32 features.

    A class has a mean drawn from N(0, 1) in every feature; a sample is its class's mean plus `noise` times N(0, 1).
    train, test: samples in all, dealt to the classes as evenly as they go, in random order. The data depend on `seed`
    alone, not on the run's seed.
    """
    generator = np.random.default_rng(seed)
    means = generator.standard_normal((classes, math.prod(shape)))

    def draw(samples: int) -> Split:
        y = generator.permutation(np.arange(samples, dtype=np.int64) % classes)
        x = means[y] + noise * generator.standard_normal((samples, means.shape[1]))
        return Split(x.astype(np.float32).reshape(samples, *shape), y)

    return Dataset(draw(train), draw(test), classes)
