"""Images per second of `load: disk`, compared with torchvision's ImageFolder and a DataLoader of as many processes.

    python benchmarks/image_reading.py [--images N] [--side N] [--size N] [--processes N] [--repeats N]

Makes JPEG files of smooth noise. Both sides read all images in random order, in batches, and resize them. raysim reads
in as many threads as the DataLoader has processes. Its first epoch decodes. Later ones read the file of decoded images.
The two alternate, so that other load affects both. The DataLoader starts its processes in each epoch, and that counts.
All have one priority. The table has medians of images per second.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image
from rich.console import Console
from rich.table import Table
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from raysim.data import images_on_disk
from raysim.data.custom_files import image_folder
from raysim.data.pixels import Source

BATCH, CLASSES = 32, 10


def make_images(folder: Path, images: int, side: int) -> None:
    draws = np.random.default_rng(0)
    for number in range(images):
        place = folder / f"c{number % CLASSES}"
        place.mkdir(parents=True, exist_ok=True)
        coarse = draws.integers(0, 256, (max(2, side // 8), max(2, side // 8), 3), np.uint8)
        picture = Image.fromarray(coarse).resize((side + number % 31, side), Image.Resampling.BICUBIC)
        picture.save(place / f"{number}.jpg", quality=90)


def of_torchvision(folder: Path, size: int, processes: int) -> Iterator[int]:
    resize = v2.Resize((size, size), antialias=True)
    images = ImageFolder(str(folder), v2.Compose([resize, v2.PILToTensor()]))
    for x, _ in DataLoader(images, BATCH, shuffle=True, num_workers=processes):
        yield len(x.float().div_(255))


def of_raysim(source: Source) -> Iterator[int]:
    rows = torch.randperm(len(source))
    sizes = [len(part) for part in rows.split(BATCH)]
    for x in source.fetch_each(rows, 0, None, sizes):
        yield len(x)


def rate(read: Iterator[int]) -> float:
    began = time.perf_counter()
    images = sum(read)
    return images / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--side", type=int, default=400, help="the height of the files")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    images_on_disk.MOST_THREADS = asked.processes
    os.nice(images_on_disk.NICE)  # the priority of raysim's threads, so that other load slows both alike
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {"torchvision": [], "raysim, first epoch": [], "raysim, later": []}
    with tempfile.TemporaryDirectory() as root:
        make_images(Path(root) / "images", asked.images, asked.side)
        for _ in range(asked.repeats):
            found["torchvision"].append(rate(of_torchvision(Path(root) / "images", asked.size, asked.processes)))
            shutil.rmtree(Path(root) / images_on_disk.FOLDER, ignore_errors=True)
            images_on_disk.forget_open_files()
            keys = {"path": "images", "size": asked.size, "load": "disk", "test_fraction": 1e-9}
            source = Source(image_folder(Path(root), False, **keys).train, [None])
            for epoch in ("raysim, first epoch", "raysim, later"):
                found[epoch].append(rate(of_raysim(source)))
    table = Table(f"{asked.images:,} images of {asked.side} pixels, at {asked.size}", "images per second", "relative")
    for name, rates in found.items():
        table.add_row(name, f"{median(rates):,.0f}", f"{median(rates) / median(found['torchvision']):.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
