"""Normalisation of samples: the mean and standard deviation of every channel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from raysim.data.dataset import Array, Dataset
from raysim.system.errors import ConfigError


@dataclass(frozen=True)
class Normalization:
    """x becomes (x - mean) / std, channel by channel; uint8 pixels are on the scale 0..1 by then."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def normalization(
    wanted: Literal["none", "standard"] | Mapping[str, Sequence[float]], dataset: Dataset
) -> Normalization | None:
    """Return the normalisation that `wanted` asks for; None is none.

    `standard` takes the mean and standard deviation of the training split, untransformed, in float64; a mapping gives
    them as {mean: [...], std: [...]}. Images have one number per channel, other samples one for all features.

    Raises:
        ConfigError: a given list has the wrong length, or a std is not positive.
    """
    if wanted == "none":
        return None
    channels = dataset.shape[0] if len(dataset.shape) == 3 else 1
    if wanted == "standard":
        return _standard(dataset.train.x.reshape(len(dataset.train), channels, -1))
    assert isinstance(wanted, Mapping)
    mean, std = (tuple(float(value) for value in wanted[key]) for key in ("mean", "std"))
    for key, values in (("mean", mean), ("std", std)):
        if len(values) != channels:
            raise ConfigError(f"dataset.normalize.{key}: {len(values)} values, the data have {channels} channels")
    if not all(value > 0 for value in std) or not np.isfinite((*mean, *std)).all():
        raise ConfigError(f"dataset.normalize: mean {list(mean)}, std {list(std)}; all finite and std above 0")
    return Normalization(mean, std)


def _standard(x: Array) -> Normalization:
    """Compute mean and standard deviation (of the population) by channel of x [N, C, ...]; a constant channel has 1."""
    if x.dtype == np.uint8:
        pairs = [_from_counts(np.bincount(x[:, channel].reshape(-1), minlength=256)) for channel in range(x.shape[1])]
    else:
        pairs = [
            (float(x[:, channel].mean(dtype=np.float64)), float(x[:, channel].std(dtype=np.float64)))
            for channel in range(x.shape[1])
        ]
    return Normalization(tuple(mean for mean, _ in pairs), tuple(std if std > 0 else 1.0 for _, std in pairs))


def _from_counts(counts: Array) -> tuple[float, float]:
    """Compute both on the scale 0..1 from the counts of the values 0..255, so that no order of summing matters."""
    values = np.arange(256) / 255
    mean = float((counts * values).sum() / counts.sum())
    return mean, float(np.sqrt((counts * (values - mean) ** 2).sum() / counts.sum()))
