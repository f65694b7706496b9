"""What is done to samples before a model sees them: normalisation, and random crops and flips of images.

Crops and flips are drawn and applied separately, so that a memory can replay the same augmentation. A draw is int64
[n, 3]: the shift of the rows dy, the shift of the columns dx (both -4..4), and 1 for a flip or 0. Zeros change nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from raysim.config.error_text import show
from raysim.data.dataset import Array, Dataset
from raysim.system.errors import ConfigError

Augmentation = Literal["crop", "flip"]

PADDING = 4  # pixels, as in RandomCrop(size, padding=4)


def check_images(augment: Sequence[Augmentation], shape: Sequence[int]) -> None:
    """Refuse augmentation of samples that are not images (C, H, W). Raises ConfigError."""
    if augment and len(shape) != 3:
        raise ConfigError(
            f"dataset.augment: {', '.join(augment)} needs images (C, H, W), the samples have shape {tuple(shape)}"
        )


def draw_augmentation(augment: Sequence[Augmentation], generator: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
    """Draw the augmentation of `n` images: `crop` is RandomCrop with padding 4, `flip` a flip of half of them.

    Returns int64 [n, 3]; what `augment` does not list stays 0 and draws nothing.
    """
    drawn = np.zeros((n, 3), dtype=np.int64)
    if "crop" in augment:
        drawn[:, :2] = generator.integers(-PADDING, PADDING, size=(n, 2), endpoint=True)
    if "flip" in augment:
        drawn[:, 2] = generator.integers(0, 2, size=n)
    return drawn


def apply_augmentation(images: Tensor, drawn: Tensor) -> Tensor:
    """Return images [B, C, H, W] cropped (0 beyond the edge), then flipped, by `drawn` (int64 [B, 3], same device)."""
    batch, channels, height, width = images.shape
    across = torch.arange(width, device=images.device)
    down = torch.arange(height, device=images.device)
    padded = pad(images, (PADDING, PADDING, PADDING, PADDING))
    rows = (drawn[:, 0:1] + PADDING) + down  # [B, H], in the padded image
    columns = torch.where(drawn[:, 2:3] == 1, width - 1 - across, across) + (drawn[:, 1:2] + PADDING)  # [B, W]
    wide = width + 2 * PADDING
    places = (rows[:, :, None] * wide + columns[:, None, :]).view(batch, 1, -1).expand(-1, channels, -1)
    return padded.view(batch, channels, -1).gather(2, places).view(images.shape)


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
        ConfigError: a given list has the wrong length, or a std is not positive; or samples that are no images are
            whole numbers, such as token ids, which a model could not read any more.
    """
    if wanted == "none":
        return None
    x = dataset.train.x
    if x.ndim != 4 and x.dtype == np.float32 and x.max() > 1 and (x == np.rint(x)).all():
        raise ConfigError(
            f"dataset.normalize: found {show(wanted)} for samples that are whole numbers, such as token ids, allowed: "
            "none; counts can be scaled before they are saved"
        )
    channels = dataset.shape[0] if len(dataset.shape) == 3 else 1
    if wanted == "standard":
        flat = x.reshape(len(x), channels, -1)
        means, stds = zip(*(_moments(flat[:, channel]) for channel in range(channels)), strict=True)
        return Normalization(means, stds)
    assert isinstance(wanted, Mapping)
    mean, std = (tuple(float(value) for value in wanted[key]) for key in ("mean", "std"))
    for key, values in (("mean", mean), ("std", std)):
        if len(values) != channels:
            raise ConfigError(f"dataset.normalize.{key}: {len(values)} values, the data have {channels} channels")
    if not all(value > 0 for value in std) or not np.isfinite((*mean, *std)).all():
        raise ConfigError(f"dataset.normalize: mean {list(mean)}, std {list(std)}; all finite and std above 0")
    return Normalization(mean, std)


def _moments(values: Array) -> tuple[float, float]:
    """Compute mean and standard deviation (of the population) in float64; a standard deviation of 0 becomes 1.

    Those of uint8 values, on the scale 0..1, come from the counts of the 256 values, so that no order of summing
    matters.
    """
    if values.dtype == np.uint8:
        counts, levels = np.bincount(values.reshape(-1), minlength=256), np.arange(256) / 255
        mean = float((counts * levels).sum() / counts.sum())
        std = float(np.sqrt((counts * (levels - mean) ** 2).sum() / counts.sum()))
    else:
        mean, std = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
    return mean, std if std > 0 else 1.0
