"""What is done to samples before a model sees them: normalisation, and random crops and flips of images.

Crops and flips are drawn and applied separately, so that a memory can replay the same augmentation. A draw is int64
[n, 3]: the shift of the rows dy, the shift of the columns dx (both -4..4), and 1 for a flip or 0. Zeros change nothing.
Behind these stands a number for each augmentation of the user's own, from 0 to 2^53 - 1, by which it changes a sample.
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
from raysim.data.dataset import Array, Dataset, Split
from raysim.system.custom_code import place_of
from raysim.system.errors import ConfigError, WrongResult, locate_errors

AUGMENTATIONS: Mapping[str, str] = {"crop": "raysim.data.transforms:crop", "flip": "raysim.data.transforms:flip"}
"""Name in YAML -> `module:function`. crop and flip are drawn and applied together; a user's own come after them."""

OwnAugmentation = Callable[[Tensor, Tensor], Tensor]
"""f(images [B, ...], numbers int64 [B]) -> the changed images, of the same shape and dtype, a function of both alone.

numbers / 2^53 is uniform on [0, 1); the samples are as the data set has them, uint8 from 0 to 255, float32 or int64.
"""

PADDING = 4  # pixels, as in RandomCrop(size, padding=4)
DRAWN = 3  # columns for crop and flip
LARGEST_NUMBER = 2**53  # and one less is the largest


def crop(images: Tensor, numbers: Tensor) -> Tensor:
    """Random crops after padding by 4 pixels: images [B, C, H, W] moved up to 4 each way, 0 beyond the edge."""
    down, across = numbers // 9 % 9 - PADDING, numbers % 9 - PADDING
    return apply_augmentation(images, torch.stack([down, across, torch.zeros_like(numbers)], 1))


def flip(images: Tensor, numbers: Tensor) -> Tensor:
    """Random sideways flips, of half of the images [B, C, H, W]: where the number is odd."""
    return apply_augmentation(images, torch.stack([*[torch.zeros_like(numbers)] * 2, numbers % 2], 1))


def check_augmentation(augment: Sequence[str], own: Sequence[OwnAugmentation], split: Split) -> None:
    """Refuse crops and flips of samples that are not images (C, H, W), and try the user's own on two samples.

    Raises:
        ConfigError: these are no images.
        WrongResult: see `apply_own`.
    """
    known, shape = [name for name in augment if name in AUGMENTATIONS], split.x.shape[1:]
    if known and (len(shape) != 3 or split.x.dtype == np.int64):
        what = "are ids of" if split.x.dtype == np.int64 else "have"
        raise ConfigError(
            f"dataset.augment: {', '.join(known)} needs images (C, H, W), the samples {what} shape {shape}"
        )
    with locate_errors("dataset.augment, tried on two samples"):
        x = torch.from_numpy(split.x[:2].copy())
        apply_own(own, x, torch.tensor([0, LARGEST_NUMBER - 1])[: len(x), None].expand(-1, len(own)))


def apply_own(own: Sequence[OwnAugmentation], images: Tensor, numbers: Tensor) -> Tensor:
    """Return images [B, ...] changed by the user's own augmentations, one after the other; numbers int64 [B, K].

    Raises:
        WrongResult: one of them returned another shape or dtype, or values that are not finite.
    """
    for function, number in zip(own, numbers.unbind(1), strict=True):
        wanted = images
        images = function(wanted, number)
        if not isinstance(images, Tensor) or (images.shape, images.dtype) != (wanted.shape, wanted.dtype):
            found = describe_tensor(images) if isinstance(images, Tensor) else type(images).__name__
            allowed = f"{describe_tensor(wanted)}, as it was given"
            raise WrongResult(f"dataset.augment: {place_of(function)} returned {found}, allowed: {allowed}")
        if images.is_floating_point() and not bool(images.isfinite().all()):
            raise WrongResult(
                f"dataset.augment: {place_of(function)} returned NaN or infinite values, allowed: finite ones"
            )
    return images


def describe_tensor(found: Tensor) -> str:
    """Return a tensor's dtype and shape, in words."""
    return f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}"


def draw_augmentation(
    augment: Sequence[str], generator: np.random.Generator, n: int, own: int = 0
) -> npt.NDArray[np.int64]:
    """Draw the augmentation of `n` images: `crop` is RandomCrop with padding 4, `flip` a flip of half of them.

    Returns int64 [n, 3 + own]; what `augment` does not list stays 0 and draws nothing.
    """
    drawn = np.zeros((n, DRAWN + own), dtype=np.int64)
    if "crop" in augment:
        drawn[:, :2] = generator.integers(-PADDING, PADDING, size=(n, 2), endpoint=True)
    if "flip" in augment:
        drawn[:, 2] = generator.integers(0, 2, size=n)
    if own:
        drawn[:, DRAWN:] = generator.integers(0, LARGEST_NUMBER, size=(n, own))
    return drawn


def apply_augmentation(images: Tensor, drawn: Tensor) -> Tensor:
    """Return images [B, C, H, W] cropped (0 beyond the edge), then flipped, by `drawn` (int64 [B, 3 + ...])."""
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
    in_floats = x.ndim != 4 and x.dtype == np.float32 and x.max() > 1 and (x == np.rint(x)).all()
    if in_floats or x.dtype == np.int64:
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
