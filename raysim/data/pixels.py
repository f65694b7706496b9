"""Batches of a split: rows gathered, transformed by their task, augmented, scaled and normalized."""

import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysim.config.component_blocks import ChannelStatistics
from raysim.data.dataset import Array, Split, Unread
from raysim.data.transforms import DRAWN, CustomAugmentation, apply_augmentation, apply_custom, draw_augmentation

TOGETHER = 2**20  # bytes of batches fetched together: single fetches are slower, as training evicts the caches
ALIGNED = {"cpu": 64, "cuda": 512}  # alignment of tensors in bytes, on which the bits of a product depend


class Source:
    """One split on one device, with the pixel map of every task.

    Args:
        split: the samples. The arrays may be read-only and are not copied on a CPU.
        maps: the `pixels` of every task, int32 [D] or None (see scenario.Task).
        device: the device of the batches.
        normalization: the statistics to normalize with; None disables it.
        augment: the names of all augmentations: "crop" and "flip", for images only, and custom ones.
        custom: the functions of the custom augmentations.
    """

    def __init__(
        self,
        split: Split,
        maps: Sequence[npt.NDArray[np.int32] | None],
        *,
        device: torch.device | str = "cpu",
        normalization: ChannelStatistics | None = None,
        augment: Sequence[str] = (),
        custom: Sequence[CustomAugmentation] = (),
    ) -> None:
        self.shape = tuple(int(size) for size in split.x.shape[1:])
        self.device = torch.device(device)
        self.augment = tuple(augment)
        self._custom = tuple(custom)
        self._crops_or_flips = len(self.augment) > len(self._custom)
        self.take(split)
        self._maps = None if all(pixels is None for pixels in maps) else self._stack(maps)
        self._identity = tuple(pixels is None for pixels in maps)
        self._max_pixel = torch.tensor(255.0, device=self.device)  # a tensor: CUDA divides by a number inexactly
        self._moments: tuple[Tensor, Tensor] | None = None
        if normalization is not None:
            mean, std = (
                torch.tensor(values, dtype=torch.float32, device=self.device)
                for values in (normalization.mean, normalization.std)
            )
            per_channel = (-1, 1, 1) if len(self.shape) == 3 else (-1,)
            self._moments = mean.view(per_channel), std.view(per_channel)

    def take(self, split: Split) -> None:
        """Use the samples of another split of the same shape and dtype."""
        x = split.x
        self._unread = x if isinstance(x, Unread) else None
        array = np.empty((0, *self.shape), x.dtype) if isinstance(x, Unread) else x
        self.x = _borrow(array.reshape(len(array), prod(self.shape))).to(self.device)
        self.y = _borrow(split.y).to(self.device)
        self._cpu_targets = _borrow(split.y)  # on the CPU, so that a lookup there does not wait for the GPU

    def __len__(self) -> int:
        return len(self.y)

    def held(self, rows: Tensor) -> Tensor:
        """Return the rows to `fetch` for these positions (int64 [B], on the CPU). In a split they are equal."""
        return rows

    def labels(self, rows: Tensor) -> Tensor:
        """Return the targets (labels: int64 [B]) of `rows` (int64 [B]), on the device of `rows`."""
        return (self._cpu_targets if rows.device.type == "cpu" else self.y).index_select(0, rows)

    def draw(self, generator: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
        """Draw the augmentation of `n` samples, for `fetch`: int64 [n, 3 (dy, dx, flip) + custom]."""
        return draw_augmentation(self.augment, generator, n, len(self._custom))

    def fetch(self, rows: Tensor, task: int | Tensor, drawn: Tensor | None = None) -> Tensor:
        """Return a batch on this device, float32 [B, *shape] or int64 of ids. It is a copy that the caller may change.

        uint8 pixels are divided by 255, as in torchvision's ToTensor, then normalized.

        Args:
            rows: int64 [B].
            task: the task with the map that transforms the samples, one number or int64 [B].
            drawn: the augmentation from `draw`, int64 [B, 3 + ...]; None disables augmentation.
        """
        return self._show(next(self._gather_each([rows])), task, drawn)

    def _show(self, x: Tensor, task: int | Tensor, drawn: Tensor | None) -> Tensor:
        """Return samples [B, D], as they are stored, as a batch; see `fetch`."""
        return self.shown(self._transform(x, task).view(-1, *self.shape), drawn)

    def _gather_each(self, parts: Sequence[Tensor]) -> Iterator[Tensor]:
        """Yield copies of the samples [n, D] of consecutive parts of rows (int64 [n]), as they are stored."""
        if self._unread is None:
            yield from (self.x.index_select(0, rows) for rows in parts)
            return
        for x in self._unread.read_each([rows.cpu().numpy() for rows in parts]):
            yield torch.from_numpy(x.reshape(len(x), -1)).to(self.device)

    def shown(self, x: Tensor, drawn: Tensor | None = None) -> Tensor:
        """Return samples [B, *shape] as a model sees those of the split: augmented, scaled and normalized; see `fetch`.

        float32 samples may be changed in place.
        """
        if drawn is not None and self._crops_or_flips:
            x = apply_augmentation(x, drawn)
        if drawn is not None and self._custom:
            x = apply_custom(self._custom, x, drawn[:, DRAWN:])
        if x.dim() == 4 and x.device.type == "cpu":
            x = _channels_last(x)
        if x.dtype == torch.uint8:
            x = x.float().div_(self._max_pixel)
        if self._moments is not None:
            mean, std = self._moments
            x = x.sub_(mean).div_(std)  # in place, as indexing has copied
        return x

    def fetch_each(
        self, rows: Tensor, task: int | Tensor, drawn: Tensor | None, sizes: Sequence[int]
    ) -> Iterator[Tensor]:
        """Yield consecutive batches of these sizes, as `fetch` returns them. The last one may be smaller.

        Several batches are fetched together where this cannot change a bit. Custom augmentations get single batches.
        """
        size = max(sizes, default=0) * prod(self.shape) * (4 if self.x.dtype == torch.uint8 else self.x.element_size())
        separately = self._custom or size % ALIGNED.get(self.device.type, size + 1)
        together = 1 if separately else max(1, TOGETHER // max(size, 1))
        groups = [sizes[first : first + together] for first in range(0, len(sizes), together)]
        ends = np.cumsum([0, *map(sum, groups)]).tolist()
        parts = [slice(begin, end) for begin, end in pairwise(ends)]
        gathered = self._gather_each([rows[part] for part in parts])
        for sizes_of_part, part, stored in zip(groups, parts, gathered, strict=True):
            of_task = task[part] if isinstance(task, Tensor) else task
            x = self._show(stored, of_task, None if drawn is None else drawn[part])
            # not views: autograd would count a change in place for all of them
            yield from x.unsafe_split_with_sizes(sizes_of_part)

    def _transform(self, x: Tensor, task: int | Tensor) -> Tensor:
        """Apply the tasks' maps to samples [B, D]."""
        if self._maps is None:
            return x
        pixels, keep = self._maps
        if isinstance(task, Tensor):
            return x.gather(1, pixels.index_select(0, task)).mul_(keep.index_select(0, task))
        if self._identity[task]:
            return x
        # On a CPU, gather is five times as fast as index_select along the second dimension.
        return x.gather(1, pixels[task].expand(len(x), -1)).mul_(keep[task])

    def _stack(self, maps: Sequence[npt.NDArray[np.int32] | None]) -> tuple[Tensor, Tensor]:
        """Return all maps as int64 [T, D], with 0 for -1, and factors [T, D] that are 0 there and 1 elsewhere."""
        features = self.x.shape[1]
        rows = np.stack([np.arange(features) if pixels is None else pixels.astype(np.int64) for pixels in maps])
        keep = torch.from_numpy(rows >= 0).to(self.device, self.x.dtype)
        return torch.from_numpy(np.maximum(rows, 0)).to(self.device), keep


def _borrow(array: Array) -> Tensor:
    """Return a tensor over the array's memory. It may be in Ray's read-only object store, so nothing writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _channels_last(x: Tensor) -> Tensor:
    """Return images [B, C, H, W] in channels-last memory order: convolutions on CPUs are a fifth faster with it.

    torch's own conversion changes no stride if there is one channel, so the images go through flat rows.
    """
    batch, channels, height, width = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(batch, -1)
    return rows.view(batch, height, width, channels).permute(0, 3, 1, 2)
