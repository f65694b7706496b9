"""What is done to samples before a model sees them: normalisation, and random crops and flips of images.

Crops and flips are drawn and applied separately, so that a memory can replay the same augmentation. A draw is int64
[n, 3]: the shift of the rows dy, the shift of the columns dx (both -4..4), and 1 for a flip or 0. Zeros change nothing.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from raysim.config.component_blocks import ChannelStatistics
from raysim.config.document import to_plain
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


def normalization(
    wanted: Literal["none", "standard"] | ChannelStatistics, dataset: Dataset
) -> ChannelStatistics | None:
    """Return the mean and std of each channel by which x becomes (x - mean) / std; None leaves it as it is.

    `standard` takes the mean and standard deviation of the training split, untransformed, in float64. Images have one
    number per channel, other samples one for all features.

    Raises:
        ConfigError: the given lists have another length; or samples that are no images are whole numbers, such as token
            ids, which a model could not read any more.
    """
    if wanted == "none":
        return None
    x = dataset.train.x[: 1 if dataset.missing else None]  # one sample stands for all that have no values
    if x.ndim != 4 and x.dtype == np.float32 and x.max() > 1 and (x == np.rint(x)).all():
        raise ConfigError(
            f"dataset.normalize: found {show(to_plain(wanted))} for samples that are whole numbers, such as token ids, "
            "allowed: none; counts can be scaled before they are saved"
        )
    channels = dataset.shape[0] if len(dataset.shape) == 3 else 1
    if wanted == "standard":
        flat = x.reshape(len(x), channels, -1)
        means, stds = zip(*(_moments(flat[:, channel]) for channel in range(channels)), strict=True)
        return ChannelStatistics(mean=means, std=stds)
    if len(wanted.mean) != channels:
        raise ConfigError(f"dataset.normalize: found {len(wanted.mean)} values, allowed: {channels}, one per channel")
    return wanted


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
