"""Data sets that come with raysim: scikit-learn's handwritten digits, and synthetic Gaussian classes."""

import math
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le, MaxLen

from raysim.data.dataset import Dataset, Split, require_memory

DIGITS = Path(__file__).with_name("digits.csv.gz")  # scikit-learn's file, which would cost 55 MB and needs scipy's 143
WHILE_MADE = 32  # bytes per feature: float64 numbers, twice what is drawn of them, and the float32 ones


def digits(root: Path, download: bool) -> Dataset:
    """Handwritten digits 8 x 8, 10 classes, 1433 + 364 images, scikit-learn's: no download (Alpaydin 1998).

    Grey values 0..16 become round(255 / 16 * value) as uint8. The split is fixed: of each class, in the order of the
    file, the 1st, 6th, 11th, ... image is for testing and the others for training.
    """
    rows = np.loadtxt(DIGITS, delimiter=",")
    x = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    y = rows[:, -1].astype(np.int64)
    testing = np.zeros(len(y), dtype=bool)
    for label in range(10):
        testing[np.flatnonzero(y == label)[::5]] = True
    return Dataset(Split(x[~testing], y[~testing]), Split(x[testing], y[testing]), classes=10)


def synthetic(
    root: Path,
    download: bool,
    *,
    classes: Annotated[int, Ge(1)] = 10,  # how many classes
    shape: Annotated[tuple[Annotated[int, Ge(1)], ...], MaxLen(8)] = (1, 8, 8),  # of a sample: [features] or [C, H, W]
    train: Annotated[int, Ge(1)] = 1000,  # training samples in all
    test: Annotated[int, Ge(1)] = 200,  # test samples in all
    noise: Annotated[float, Gt(0), Le(1e6)] = 1.0,  # standard deviation of a sample around its class's mean
    seed: Annotated[int, Ge(0)] = 0,  # what the data are made from
) -> Dataset:
    """Gaussian classes of any `shape`, number and size, made on the spot from `seed`: float32 features.

    A class has a mean drawn from N(0, 1) in every feature; a sample is its class's mean plus `noise` times N(0, 1).
    train, test: samples in all, dealt to the classes as evenly as they go, in random order. The data depend on `seed`
    alone, not on the run's seed.

    Raises:
        ConfigError: they do not fit into memory.
    """
    features = math.prod(shape)
    largest = max([("classes", classes), ("train", train), ("test", test)], key=lambda size: size[1])
    require_memory(largest[1] * features * WHILE_MADE, f"dataset.{largest[0]}", f"{largest[1]} of {features} features")
    generator = np.random.default_rng(seed)
    means = generator.standard_normal((classes, math.prod(shape)))

    def make_split(samples: int) -> Split:
        y = generator.permutation(np.arange(samples, dtype=np.int64) % classes)
        x = means[y] + noise * generator.standard_normal((samples, means.shape[1]))
        return Split(x.astype(np.float32).reshape(samples, *shape), y)

    return Dataset(make_split(train), make_split(test), classes)
