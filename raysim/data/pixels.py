"""Batches of a split: rows gathered, transformed by their task, augmented, scaled and normalised."""

import warnings
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysim.config.component_blocks import ChannelStatistics
from raysim.data.dataset import Array, Split
from raysim.data.transforms import DRAWN, OwnAugmentation, apply_augmentation, apply_own, draw_augmentation

TOGETHER = 2**20  # bytes of batches that are fetched at a time: each alone takes longer, as training empties the caches
ALIGNED = {
    "cpu": 64,
    "cuda": 512,
}  # bytes that a tensor's memory begins at a multiple of, on which a product's bits depend


class Source:
    """One split on one device, with the pixel map of every task.

    Args:
        split: its arrays may be read-only and are not copied on a CPU.
        maps: the `pixels` of every task, int32 [D] or None (see scenario.Task).
        device: where batches are made.
        normalization: how they are normalised; None leaves them as they are.
        augment: the names of the augmentations: "crop" and "flip", for images only, and the user's own.
        own: the functions of the user's own.
    """

    def __init__(
        self,
        split: Split,
        maps: Sequence[npt.NDArray[np.int32] | None],
        *,
        device: torch.device | str = "cpu",
        normalization: ChannelStatistics | None = None,
        augment: Sequence[str] = (),
        own: Sequence[OwnAugmentation] = (),
    ) -> None:
        self.shape = tuple(int(size) for size in split.x.shape[1:])
        self.device = torch.device(device)
        self.augment = tuple(augment)
        self._own = tuple(own)
        self._moves = len(self.augment) > len(self._own)
        self.take(split)
        self._maps = None if all(pixels is None for pixels in maps) else self._stack(maps)
        self._identity = tuple(pixels is None for pixels in maps)
        self._white = torch.tensor(255.0, device=self.device)  # a tensor: CUDA divides by a number only roughly
        self._moments: tuple[Tensor, Tensor] | None = None
        if normalization is not None:
            mean, std = (
                torch.tensor(values, dtype=torch.float32, device=self.device)
                for values in (normalization.mean, normalization.std)
            )
            per_channel = (-1, 1, 1) if len(self.shape) == 3 else (-1,)
            self._moments = mean.view(per_channel), std.view(per_channel)

    def take(self, split: Split) -> None:
        """Have the samples of a split, which is like the one before."""
        self.x = _borrow(split.x.reshape(len(split), -1)).to(self.device)
        self.y = _borrow(split.y).to(self.device)
        self._known = _borrow(split.y)  # the labels on the CPU, so that looking them up there waits for no GPU

    def __len__(self) -> int:
        return len(self.y)

    def held(self, rows: Tensor) -> Tensor:
        """Return the rows to `fetch` for these positions (int64 [B], on the CPU): in a split they are the same."""
        return rows

    def labels(self, rows: Tensor) -> Tensor:
        """Return the targets (labels: int64 [B]) of `rows` (int64 [B]), on the rows' device: this one or the CPU."""
        return (self._known if rows.device.type == "cpu" else self.y).index_select(0, rows)

    def draw(self, generator: np.random.Generator, n: int) -> npt.NDArray[np.int64]:
        """Draw this source's augmentation for `n` samples, for `fetch`: int64 [n, 3 (dy, dx, flip) + own]."""
        return draw_augmentation(self.augment, generator, n, len(self._own))

    def fetch(self, rows: Tensor, task: int | Tensor, drawn: Tensor | None = None) -> Tensor:
        """Return a batch, float32 [B, *shape], or int64 of ids, on this device: a copy that the caller may change.

        Args:
            rows: int64 [B].
            task: the number of the task by whose map the samples are transformed, one for all or int64 [B].
            drawn: the augmentation that `draw` returned, int64 [B, 3 + ...]; None leaves the samples unaugmented.

        uint8 pixels are divided by 255, as torchvision's ToTensor does, then normalised.
        """
        x = self._transform(self.x.index_select(0, rows), task).view(-1, *self.shape)
        if drawn is not None and self._moves:
            x = apply_augmentation(x, drawn)
        if drawn is not None and self._own:
            x = apply_own(self._own, x, drawn[:, DRAWN:])
        if x.dim() == 4 and x.device.type == "cpu":
            x = _channels_last(x)
        if x.dtype == torch.uint8:
            x = x.float().div_(self._white)
        if self._moments is not None:
            mean, std = self._moments
            x = x.sub_(mean).div_(std)  # in place: indexing has made a copy already
        return x

    def fetch_each(
        self, rows: Tensor, task: int | Tensor, drawn: Tensor | None, sizes: Sequence[int]
    ) -> Iterator[Tensor]:
        """Yield what `fetch` returns for batches of these sizes, one after the other; the last may be smaller.

        An augmentation of the user's own is given a batch at a time.
        """
        batch = max(sizes, default=0) * prod(self.shape) * (4 if self.x.dtype == torch.uint8 else self.x.element_size())
        apart = self._own or batch % ALIGNED.get(self.device.type, batch + 1)
        together = 1 if apart else max(1, TOGETHER // max(batch, 1))
        end = 0
        for first in range(0, len(sizes), together):
            own = sizes[first : first + together]
            begin, end = end, end + sum(own)
            part = slice(begin, end)
            of_task = task[part] if isinstance(task, Tensor) else task
            x = self.fetch(rows[part], of_task, None if drawn is None else drawn[part])
            # not views, which would share what autograd notes of changes in place
            yield from x.unsafe_split_with_sizes(own)

    def _transform(self, x: Tensor, task: int | Tensor) -> Tensor:
        """Apply the map of their task to samples [B, D]."""
        if self._maps is None:
            return x
        pixels, keep = self._maps
        if isinstance(task, Tensor):
            return x.gather(1, pixels.index_select(0, task)).mul_(keep.index_select(0, task))
        if self._identity[task]:
            return x
        # On a CPU gather is five times as fast as index_select along the second dimension.
        return x.gather(1, pixels[task].expand(len(x), -1)).mul_(keep[task])

    def _stack(self, maps: Sequence[npt.NDArray[np.int32] | None]) -> tuple[Tensor, Tensor]:
        """Return all maps as int64 [T, D] with 0 in place of -1, and the factors [T, D]: 0 where -1 was, else 1."""
        features = self.x.shape[1]
        rows = np.stack([np.arange(features) if pixels is None else pixels.astype(np.int64) for pixels in maps])
        keep = torch.from_numpy(rows >= 0).to(self.device, self.x.dtype)
        return torch.from_numpy(np.maximum(rows, 0)).to(self.device), keep


def _borrow(array: Array) -> Tensor:
    """Return a tensor over the array's memory, read-only in Ray's object store: nothing here writes to it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _channels_last(x: Tensor) -> Tensor:
    """Return images [B, C, H, W] in channels-last memory order, in which convolutions on CPUs are a fifth faster.

    They go through flat rows, because with one channel torch takes either order for the other and changes no stride.
    """
    batch, channels, height, width = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(batch, -1)
    return rows.view(batch, height, width, channels).permute(0, 3, 1, 2)
