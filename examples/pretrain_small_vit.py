"""Pretrain a small vision transformer on some classes of a dataset, and write the other classes as a dataset.

python examples/pretrain_small_vit.py [DATASET [CLASSES]] [KEY=VALUE ...]

DATASET is a name (`digits`, the default) or a block such as '{name: npz, path: cifar100.npz}'. CLASSES are numbers, as
in 5-9 (the default) or 0,3,10-19. Both files are in `pretrained` below the folder of the datasets ($RAYSIM_DATA or
~/.cache/raysim). If they exist, nothing is trained. KEY=VALUE are the parameters of `pretrain`.

The same seed, number of threads and kind of CPU give the same bits.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import Tensor, nn
from torch.nn import functional

from raysim.config.lookup import resolve
from raysim.data.dataset import Dataset, Split
from raysim.data.loading import load_dataset, resolve_root
from raysim.models.vit import vit
from raysim.system.errors import ConfigError


def pretrain(
    dataset: str | dict[str, Any] = "digits",
    classes: str = "5-9",
    *,
    width: int = 64,
    depth: int = 4,
    patch: int | None = None,
    steps: int = 1000,
    batch: int = 32,
    lr: float = 1e-3,
    seed: int = 0,
    threads: int = 1,
    root: str | None = None,
) -> tuple[Path, Path]:
    """Write the weights and the other classes. Return both files.

    Args:
        dataset: the name of a dataset of images, or its block.
        classes: the classes to train on. The others are numbered from 0 in their order.
        width: the transformer's width.
        depth: its blocks.
        patch: the height and width of a patch; by default 2 for images below 16 x 16, otherwise 4.
        steps: the steps of AdamW, with a rate that falls to 0 as a cosine.
        batch: the images of a step, all shifted by up to a sixteenth of their size at random.
        lr: the first learning rate.
        seed: what the initial weights, the batches and the shifts are drawn from.
        threads: the threads of torch.
        root: the folder of the datasets.
    """
    keys = {"name": dataset} if isinstance(dataset, str) else dict(dataset)
    data = load_dataset(resolve("dataset", keys.pop("name")), root, True, keys)
    height = data.shape[1]
    patch = patch or (2 if height < 16 else 4)
    held_out = numbers_in(classes)
    name = dataset if isinstance(dataset, str) else "_".join(Path(str(value)).stem for value in dataset.values())
    folder = resolve_root(root) / "pretrained"
    weights = folder / f"vit_{name}_{classes}_w{width}_d{depth}_p{patch}_{steps}x{batch}_lr{lr:g}_seed{seed}.pt"
    others = folder / f"{name}_without_{classes}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    if not others.exists():
        _save_rest(data, held_out, others)
    if not weights.exists():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = vit(data.shape, len(held_out), width=width, depth=depth, patch=patch, input_size=None)
            for layer in network.modules():  # the model's initial weights, of timm, are for widths of hundreds
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)
            _train(network, *_tensors(data.train, held_out), steps, batch, lr, threads)
        x, y = _tensors(data.test, held_out)
        print(f"accuracy on the {len(y)} test images of {classes}: {_accuracy(network, x, y):.1%}")
        torch.save(network.state_dict(), weights)
    return weights, others


def numbers_in(text: str) -> list[int]:
    """Return the numbers in a text such as 0,3,10-19, in order."""
    ranges = [part.partition("-") for part in text.split(",")]
    return sorted({number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)})


def _tensors(split: Split, classes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the images [N, C, H, W] of these classes, from 0 to 1, and their classes numbered from 0."""
    rows = np.isin(split.y, classes)
    scale = 255 if split.x.dtype == np.uint8 else 1
    return torch.from_numpy(split.x[rows]).float() / scale, torch.from_numpy(np.searchsorted(classes, split.y[rows]))


def _train(network: nn.Module, x: Tensor, y: Tensor, steps: int, batch: int, lr: float, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    optimizer = torch.optim.AdamW(network.parameters(), lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    margin = x.shape[2] // 16
    padded = functional.pad(x, [margin] * 4)
    for _ in range(steps):
        chosen = torch.randint(len(x), (batch,))
        top, left = torch.randint(2 * margin + 1, (2,)).tolist()  # one shift for the batch
        images = padded[chosen, :, top : top + x.shape[2], left : left + x.shape[3]]
        optimizer.zero_grad()
        functional.cross_entropy(network(images), y[chosen]).backward()
        optimizer.step()
        schedule.step()
    torch.set_num_threads(before)


@torch.no_grad()
def _accuracy(network: nn.Module, x: Tensor, y: Tensor) -> float:
    predictions = torch.cat([network(part).argmax(1) for part in x.split(256)])
    return (predictions == y).float().mean().item()


def _save_rest(data: Dataset, held_out: Sequence[int], path: Path) -> None:
    """Write the classes that are not held out, as the dataset `npz` reads them: images with channels last."""
    kept = [number for number in range(data.classes) if number not in held_out]
    arrays = {}
    for part, split in (("train", data.train), ("test", data.test)):
        rows = np.isin(split.y, kept)
        arrays[f"x_{part}"], arrays[f"y_{part}"] = (
            np.moveaxis(split.x[rows], 1, -1),
            np.searchsorted(kept, split.y[rows]),
        )
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    pairs = [argument for argument in sys.argv[1:] if "=" in argument]
    names = [argument for argument in sys.argv[1:] if "=" not in argument]
    if len(names) > 2 or "--help" in names:
        sys.exit(__doc__)
    given = {key: yaml.safe_load(value) for key, _, value in (pair.partition("=") for pair in pairs)}
    try:
        weights, others = pretrain(*[yaml.safe_load(names[0])] if names else [], *names[1:], **given)
    except ConfigError as error:
        sys.exit(str(error))
    print(f"model.weights: {weights}\ndataset: {{name: npz, path: {others}}}")
