"""A torch Dataset as a run's data: raysim run examples/torch_dataset.yaml --local.

`as_split` takes any map-style Dataset of (x, label). This one has bars across or down. With one of torchvision's, write
`as_split(torchvision.datasets.SVHN(str(root), "train", download=download))`.
"""

from collections.abc import Sized
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import torch
from annotated_types import Ge, doc
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from raysim.data.dataset import Dataset, Split, channels_first


class Bars(TorchDataset[tuple[Tensor, int]]):
    """Images [1, 8, 8] with a bar: class c < 4 has it in the rows 2c and 2c + 1, class 4 + c in these columns."""

    def __init__(self, samples: int, noise: float, seed: int) -> None:
        self.draws = torch.randn(samples, 1, 8, 8, generator=torch.Generator().manual_seed(seed)) * noise

    def __len__(self) -> int:
        return len(self.draws)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = index % 8
        image = self.draws[index].clone()
        across = image if label < 4 else image.transpose(1, 2)
        across[:, 2 * (label % 4) : 2 * (label % 4) + 2] += 1
        return image, label


def as_split(samples: TorchDataset[Any]) -> Split:
    """Return all samples: tensors and arrays as they are (images [C, H, W]), PIL's images as uint8."""
    pairs = [samples[index] for index in range(len(cast(Sized, samples)))]
    x = np.stack([np.asarray(sample) for sample, _ in pairs])
    if not isinstance(pairs[0][0], Tensor | np.ndarray):
        x = channels_first(x)
    return Split(x if x.dtype == np.uint8 else x.astype(np.float32), np.array([int(y) for _, y in pairs]))


def bars(
    root: Path,
    download: bool,
    *,
    noise: Annotated[float, Ge(0), doc("standard deviation of each pixel")] = 0.5,
) -> Dataset:
    """Bars across and down in noise, from a torch Dataset: 8 classes, 400 + 80 images."""
    return Dataset(as_split(Bars(400, noise, seed=0)), as_split(Bars(80, noise, seed=1)), classes=8)
