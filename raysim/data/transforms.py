"""Transforms of samples before a model sees them: normalization, random crops and flips, and custom augmentations.

Augmentations are drawn and applied separately, so that a memory can replay the same augmentation. A draw is int64
[n, 3 + custom]. It begins with the shifts of rows and columns (dy and dx, -4..4), and 1 for a flip or 0. Zeros change
nothing. A number from 0 to 2^53 - 1 follows for each custom augmentation, which derives its change from it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad

from raysim.config.component_blocks import ChannelStatistics
from raysim.config.document import to_plain
from raysim.config.error_text import show
from raysim.data.dataset import Array, Dataset, Split, Unread
from raysim.system.custom_code import place_of
from raysim.system.errors import ConfigError, WrongResult, locate_errors
from raysim.system.progress import tell_progress

AUGMENTATIONS: Mapping[str, str] = {"crop": "raysim.data.transforms:crop", "flip": "raysim.data.transforms:flip"}
"""Name in YAML -> `module:function`. crop and flip are drawn and applied together, before custom augmentations."""

CustomAugmentation = Callable[[Tensor, Tensor], Tensor]
"""f(images [B, ...], numbers int64 [B]) -> changed images of the same shape and dtype. It must be deterministic.

numbers / 2^53 is uniform on [0, 1). The samples are unscaled: uint8 from 0 to 255, float32 or int64.
"""

PADDING = 4  # pixels, as in RandomCrop(size, padding=4)
DRAWN = 3  # columns for crop and flip
LARGEST_NUMBER = 2**53  # exclusive
TOGETHER = 256  # images of a pass over all of them


def crop(images: Tensor, numbers: Tensor) -> Tensor:
    """Random crops after padding by 4 pixels: images [B, C, H, W] shifted by up to 4, 0 beyond the edge."""
    down, across = numbers // 9 % 9 - PADDING, numbers % 9 - PADDING
    return apply_augmentation(images, torch.stack([down, across, torch.zeros_like(numbers)], 1))


def flip(images: Tensor, numbers: Tensor) -> Tensor:
    """Random horizontal flips of half of the images [B, C, H, W]: those with an odd number."""
    return apply_augmentation(images, torch.stack([*[torch.zeros_like(numbers)] * 2, numbers % 2], 1))


def check_augmentation(augment: Sequence[str], custom: Sequence[CustomAugmentation], split: Split) -> None:
    """Refuse crops and flips of samples that are not images (C, H, W), and try custom augmentations on two samples.

    Raises:
        ConfigError: the samples are not images.
        WrongResult: see `apply_custom`.
    """
    built_in, shape = [name for name in augment if name in AUGMENTATIONS], split.x.shape[1:]
    if len(built_in) > len({*built_in}):
        raise ConfigError(f"dataset.augment: found {show([*augment])}, allowed: crop and flip once each")
    if built_in and (len(shape) != 3 or split.x.dtype == np.int64):
        what = "are ids of" if split.x.dtype == np.int64 else "have"
        raise ConfigError(
            f"dataset.augment: {', '.join(built_in)} needs images (C, H, W), the samples {what} shape {shape}"
        )
    if not custom:
        return
    with locate_errors("dataset.augment, tried on two samples"):
        x = torch.from_numpy(split.x[:2].copy())
        apply_custom(custom, x, torch.tensor([0, LARGEST_NUMBER - 1])[: len(x), None].expand(-1, len(custom)))


def apply_custom(custom: Sequence[CustomAugmentation], images: Tensor, numbers: Tensor) -> Tensor:
    """Return images [B, ...] after all custom augmentations, in order; numbers are int64 [B, K].

    Raises:
        WrongResult: a function changed the shape or dtype, or returned values that are not finite.
    """
    for function, number in zip(custom, numbers.unbind(1), strict=True):
        before = images
        images = function(before, number)
        if not isinstance(images, Tensor) or (images.shape, images.dtype) != (before.shape, before.dtype):
            description = describe_tensor(images) if isinstance(images, Tensor) else type(images).__name__
            allowed = f"{describe_tensor(before)}, as it was given"
            raise WrongResult(f"dataset.augment: {place_of(function)} returned {description}, allowed: {allowed}")
        if images.is_floating_point() and not bool(images.isfinite().all()):
            raise WrongResult(
                f"dataset.augment: {place_of(function)} returned NaN or infinite values, allowed: finite ones"
            )
    return images


def describe_tensor(tensor: Tensor) -> str:
    """Return a tensor's dtype and shape as text."""
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def draw_augmentation(
    augment: Sequence[str], generator: np.random.Generator, n: int, custom: int = 0
) -> npt.NDArray[np.int64]:
    """Draw the augmentation of `n` images: `crop` is RandomCrop with padding 4, `flip` flips half of them.

    Returns int64 [n, 3 + custom]. Columns of an augmentation that is not in `augment` are 0 and draw nothing.
    """
    drawn = np.zeros((n, DRAWN + custom), dtype=np.int64)
    if "crop" in augment:
        drawn[:, :2] = generator.integers(-PADDING, PADDING, size=(n, 2), endpoint=True)
    if "flip" in augment:
        drawn[:, 2] = generator.integers(0, 2, size=n)
    if custom:
        drawn[:, DRAWN:] = generator.integers(0, LARGEST_NUMBER, size=(n, custom))
    return drawn


def apply_augmentation(images: Tensor, drawn: Tensor) -> Tensor:
    """Return images [B, C, H, W] cropped (0 beyond the edge), then flipped, by `drawn` (int64 [B, 3 + ...])."""
    batch, channels, height, width = images.shape
    across = torch.arange(width, device=images.device)
    down = torch.arange(height, device=images.device)
    padded = pad(images, (PADDING, PADDING, PADDING, PADDING))
    rows = (drawn[:, 0:1] + PADDING) + down  # [B, H], in the padded image
    columns = torch.where(drawn[:, 2:3] == 1, width - 1 - across, across) + (drawn[:, 1:2] + PADDING)  # [B, W]
    padded_width = width + 2 * PADDING
    indices = (rows[:, :, None] * padded_width + columns[:, None, :]).view(batch, 1, -1).expand(-1, channels, -1)
    return padded.view(batch, channels, -1).gather(2, indices).view(images.shape)


def normalization(
    value: Literal["none", "standard"] | ChannelStatistics, dataset: Dataset, scale: float = 1.0
) -> ChannelStatistics | None:
    """Return each channel's mean and std for x -> scale (x - mean) / std, or None to leave x unchanged.

    `standard` takes them from the untransformed training split, in float64. Images have one number per channel, other
    samples one for all features. `scale` divides the deviations that are returned.

    Raises:
        ConfigError: the given lists have another length, or samples that are not images are integers such as token ids,
            which would become meaningless.
    """
    if value == "none" and scale == 1:
        return None
    found, unset = f"dataset.normalize: found {show(to_plain(value))}", "none"
    if value == "none":
        found, unset = f"dataset.input_scale: found {scale:g}", "1"
    if dataset.categories:
        raise ConfigError(
            f"{found} for a table with categories, allowed: {unset}; dataset.standardize scales the numbers"
        )
    x = dataset.train.x[:1] if dataset.missing else dataset.train.x  # a placeholder has no values: one sample is enough
    in_floats = (
        not isinstance(x, Unread) and x.ndim != 4 and x.dtype == np.float32 and x.max() > 1 and (x == np.rint(x)).all()
    )
    if in_floats or x.dtype == np.int64:
        raise ConfigError(
            f"{found} for samples that are whole numbers, such as token ids, allowed: {unset}; counts can be scaled "
            "before they are saved"
        )
    channels = dataset.shape[0] if len(dataset.shape) == 3 else 1
    statistics = _statistics(value, x, channels)
    if scale == 1:
        return statistics
    return ChannelStatistics(mean=statistics.mean, std=tuple(std / scale for std in statistics.std))


def _statistics(
    value: Literal["none", "standard"] | ChannelStatistics, x: Array | Unread, channels: int
) -> ChannelStatistics:
    """Return each channel's mean and std before the scale. Raises ConfigError: their number is wrong."""
    if value == "none":
        return ChannelStatistics(mean=(0.0,) * channels, std=(1.0,) * channels)
    if value == "standard":
        if isinstance(x, Unread):
            return _count_pixels(x)
        flat = x.reshape(len(x), channels, -1)
        means, stds = zip(*(_moments(flat[:, channel]) for channel in range(channels)), strict=True)
        return ChannelStatistics(mean=means, std=stds)
    if len(value.mean) != channels:
        raise ConfigError(f"dataset.normalize: found {len(value.mean)} values, allowed: {channels}, one per channel")
    return value


def _count_pixels(x: Unread) -> ChannelStatistics:
    """Return the statistics of uint8 images [N, C, H, W] in one pass over all of them. They equal those of an array."""
    counts = np.zeros((x.shape[1], 256), np.int64)
    for start, images in zip(range(0, len(x), TOGETHER), x.read_each(_parts_of(len(x))), strict=True):
        tell_progress(f"reading all images for dataset.normalize: {start:,} of {len(x):,}", start / len(x))
        counts += [np.bincount(images[:, channel].reshape(-1), minlength=256) for channel in range(len(counts))]
    means, stds = zip(*(_moments_of_counts(of_channel) for of_channel in counts), strict=True)
    return ChannelStatistics(mean=means, std=stds)


def _parts_of(samples: int) -> list[npt.NDArray[np.int64]]:
    return [np.arange(start, min(start + TOGETHER, samples)) for start in range(0, samples, TOGETHER)]


def _moments_of_counts(counts: Array) -> tuple[float, float]:
    """Return the moments of uint8 values, scaled to 0..1, by how many samples have each value, int64 [256]."""
    levels = np.arange(256) / 255
    mean = float((counts * levels).sum() / counts.sum())
    std = float(np.sqrt((counts * (levels - mean) ** 2).sum() / counts.sum()))
    return mean, std if np.count_nonzero(counts) > 1 else 1.0  # rounding makes a small deviation of equal values


def _moments(values: Array) -> tuple[float, float]:
    """Return mean and population standard deviation in float64. The standard deviation of equal values becomes 1.

    uint8 values are scaled to 0..1. They are counted first, so that the order of summing does not matter.
    """
    if values.dtype == np.uint8:
        return _moments_of_counts(np.bincount(values.reshape(-1), minlength=256))
    mean, std = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64))
    return mean, std if values.min() < values.max() else 1.0  # rounding makes a small deviation of equal values
