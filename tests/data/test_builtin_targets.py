"""The datasets of other targets than labels that need no files."""

from pathlib import Path

import numpy as np
import pytest

from raysim.data.builtin import digit_attributes, digits, friedman
from raysim.data.loading import check_dataset
from raysim.system.errors import ConfigError


def test_the_attributes_of_digits_by_hand() -> None:
    """By digit: even, prime, above 4, a multiple of 3."""
    wanted = [
        [1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0],
        [0, 1, 1, 0], [1, 0, 1, 1], [0, 1, 1, 0], [1, 0, 1, 0], [0, 0, 1, 1],
    ]  # fmt: skip
    found, plain = check_dataset(digit_attributes(Path(), False), "digit_attributes"), digits(Path(), False)
    for split, labels in ((found.train, plain.train), (found.test, plain.test)):
        assert np.array_equal(split.x, labels.x)
        assert split.y.tolist() == [wanted[digit] for digit in labels.y]


def test_friedmans_function() -> None:
    """Without noise the formula; with it, its variance beside that of the function, 23.8 (by sampling 2,000,000)."""
    found = check_dataset(friedman(Path(), False, train=4000, noise=0.0, third=(0.25, 0.5)), "friedman").train
    x1, x2, x3, x4, x5 = found.x.astype(np.float64).T[:5]
    assert 0.25 <= x3.min() < 0.26
    assert 0.49 < x3.max() <= 0.5
    assert np.allclose(found.y[:, 0], 10 * np.sin(np.pi * x1 * x2) + 20 * (x3 - 0.5) ** 2 + 10 * x4 + 5 * x5, atol=1e-4)
    noisy = friedman(Path(), False, train=20_000, noise=3.0)
    assert noisy.train.x.shape == (20_000, 10)
    assert abs(noisy.train.y.var() - (23.8 + 9)) < 1
    assert not np.array_equal(noisy.train.x[:400], noisy.test.x)
    with pytest.raises(ConfigError, match=r"dataset.third: found \[0.5, 0.5\], allowed: the smaller number first"):
        friedman(Path(), False, third=(0.5, 0.5))
