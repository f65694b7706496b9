import gzip
import os
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from raysim.data.dataset import Dataset, Split
from raysim.data.mnist import mnist


@pytest.fixture(scope="session")
def real_mnist() -> Dataset:
    """The official files, where this machine has them: $RAYSIM_DATA, or shared/data beside the project."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    root = Path(os.environ.get("RAYSIM_DATA") or beside)
    if not (root / "MNIST" / "raw").is_dir():
        why = "tests download nothing, and small files in the same layout are read in any case"
        pytest.skip(f"{why}; to compare with MNIST as it was published, put its files into {root}/MNIST/raw")
    return mnist(root, False)


@pytest.fixture
def colours() -> Dataset:
    """20 + 10 random RGB images of 12 x 8, 4 classes."""
    generator = np.random.default_rng(5)

    def split(samples: int) -> Split:
        x = generator.integers(0, 256, (samples, 3, 12, 8), dtype=np.uint8)
        return Split(x, np.arange(samples, dtype=np.int64) % 4)

    return Dataset(split(20), split(10), classes=4)


@pytest.fixture
def features() -> Dataset:
    """16 + 8 float samples of 6 features, 2 classes."""
    generator = np.random.default_rng(6)

    def split(samples: int) -> Split:
        x = generator.standard_normal((samples, 6)).astype(np.float32)
        return Split(x, np.arange(samples, dtype=np.int64) % 2)

    return Dataset(split(16), split(8), classes=2)


@pytest.fixture
def write_set() -> Callable[..., None]:
    """A function that writes a small set of idx files into a new folder."""

    def write(folder, stems=("train", "t10k"), *, zipped=False, first_label=0):
        """6 + 4 images of 5 x 7, every value known: pixel = (number of the image * 35 + its place) mod 256."""
        folder.mkdir(parents=True)
        for stem, count in zip(stems, (6, 4), strict=True):
            images = np.arange(count * 35).reshape(count, 5, 7) % 256
            for name, array in (("images-idx3", images), ("labels-idx1", np.arange(count) % 3 + first_label)):
                content = (
                    struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
                )
                if zipped:
                    (folder / f"{stem}-{name}-ubyte.gz").write_bytes(gzip.compress(content))
                else:
                    (folder / f"{stem}-{name}-ubyte").write_bytes(content)

    return write
