"""Datasets that need no download: scikit-learn's handwritten digits, and synthetic classes and numbers."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le, MaxLen, doc

from raysim.config.timing import MOST_CLIENTS
from raysim.data.dataset import Dataset, Split
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError

DIGITS = Path(__file__).with_name("digits.csv.gz")  # a copy: scikit-learn takes 55 MB and scipy 143 MB
WHILE_MADE = 32  # peak bytes per feature: the float64 draws and their copies, and the float32 result


def digits(root: Path, download: bool) -> Dataset:
    """Handwritten digits 8 x 8, 10 classes, 1433 + 364 images, scikit-learn's: no download (Alpaydin 1998).

    Gray values 0..16 become round(255 / 16 * value) as uint8. The split is fixed: the 1st, 6th, 11th, ... image of
    each class, in the file's order, is for testing. The others are for training. The column `ink` is an image's mean
    gray value, from 0 to 1.
    """
    rows = np.loadtxt(DIGITS, delimiter=",")
    x = np.rint(rows[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    y = rows[:, -1].astype(np.int64)
    testing = np.zeros(len(y), dtype=bool)
    for label in range(10):
        testing[np.flatnonzero(y == label)[::5]] = True
    ink = rows[:, :-1].mean(1) / 16
    train, test = (Split(x[part], y[part], columns={"ink": ink[part]}) for part in (~testing, testing))
    return Dataset(train, test, classes=10)


def digit_attributes(root: Path, download: bool) -> Dataset:
    """The handwritten digits with four labels each: even, prime, above 4, a multiple of 3; for multi_label.

    Images and split are those of `digits`; targets are int64 [N, 4] of 0 and 1.
    """
    images, digit = digits(root, download), np.arange(10)
    table = np.stack([digit % 2 == 0, np.isin(digit, [2, 3, 5, 7]), digit > 4, digit % 3 == 0], 1).astype(np.int64)
    train, test = (Split(split.x, table[split.y]) for split in (images.train, images.test))
    return Dataset(train, test, classes=2)


def friedman(
    root: Path,
    download: bool,
    *,
    train: Annotated[int, Ge(2), doc("training samples")] = 1000,
    test: Annotated[int, Ge(2), doc("test samples")] = 400,
    third: Annotated[
        tuple[Annotated[float, Ge(0)], Annotated[float, Le(1)]], doc("the interval of x3: parts make domains")
    ] = (0.0, 1.0),
    noise: Annotated[float, Ge(0), Le(1e6), doc("standard deviation of a target around the function")] = 1.0,
    seed: Annotated[int, Ge(0), doc("the seed of the data")] = 0,
) -> Dataset:
    """Friedman's first regression problem, generated from `seed`: 10 features, one target (Friedman 1991).

    y = 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5 + `noise` times N(0, 1). All x are from U(0, 1), x3 from
    U(`third`); x6 to x10 have no effect. This is the formula of scikit-learn's make_friedman1, with other draws.

    Raises:
        ConfigError: `third` is empty, or the samples do not fit into memory.
    """
    if third[0] >= third[1]:
        raise ConfigError(f"dataset.third: found {list(third)}, allowed: the smaller number first")
    largest = max([("train", train), ("test", test)], key=lambda size: size[1])
    require_memory(largest[1] * 10 * WHILE_MADE, f"dataset.{largest[0]}", f"{largest[1]} of 10 features")
    generator = np.random.default_rng(seed)

    def make_split(samples: int) -> Split:
        x = generator.uniform(size=(samples, 10))
        x[:, 2] = third[0] + (third[1] - third[0]) * x[:, 2]
        y = 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
        y += noise * generator.standard_normal(samples)
        return Split(x.astype(np.float32), y.astype(np.float32)[:, None])

    return Dataset(make_split(train), make_split(test), classes=1)


def synthetic(
    root: Path,
    download: bool,
    *,
    classes: Annotated[int, Ge(1), doc("how many classes")] = 10,
    shape: Annotated[tuple[Annotated[int, Ge(1)], ...], MaxLen(8), doc("of a sample: [features] or [C, H, W]")] = (
        1,
        8,
        8,
    ),
    train: Annotated[int, Ge(1), doc("training samples in all")] = 1000,
    test: Annotated[int, Ge(1), doc("test samples in all")] = 200,
    noise: Annotated[float, Gt(0), Le(1e6), doc("standard deviation of a sample around its class's mean")] = 1.0,
    seed: Annotated[int, Ge(0), doc("the seed of the data")] = 0,
    clients: Annotated[
        int, Ge(0), Le(MOST_CLIENTS), doc("how many client ids its training samples have, drawn uniformly; 0 is none")
    ] = 0,
) -> Dataset:
    """Gaussian classes of any `shape`, number and size, generated from `seed`: float32 features.

    A class has a mean drawn from N(0, 1) in every feature. A sample is its class's mean plus `noise` times N(0, 1).
    `train` and `test` samples are divided among the classes as evenly as possible, in random order. The data depend
    on `seed` only, not on the run's seed.

    Raises:
        ConfigError: the samples do not fit into memory.
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

    training, testing = make_split(train), make_split(test)
    if clients:
        training = replace(training, clients=generator.integers(clients, size=train))
    return Dataset(training, testing, classes)
