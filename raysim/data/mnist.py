"""MNIST and the datasets in its file format, idx. torchvision only downloads them.

Source: the format's description at http://yann.lecun.com/exdb/mnist/ (two zero bytes, a type code, the number of
dimensions, each dimension as a big-endian uint32, the values).
"""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from annotated_types import doc

from raysim.data.dataset import Dataset, Declared, Split, channels_first
from raysim.data.vision import TorchvisionSet, missing_files_error, open_quietly
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError

IMAGE = (1, 28, 28)
MNIST = Declared(IMAGE, train=60_000, test=10_000, classes=10)  # also Fashion-MNIST and KMNIST
EMNIST = {
    "byclass": Declared(IMAGE, train=697_932, test=116_323, classes=62),
    "bymerge": Declared(IMAGE, train=697_932, test=116_323, classes=47),
    "balanced": Declared(IMAGE, train=112_800, test=18_800, classes=47),
    "letters": Declared(IMAGE, train=124_800, test=20_800, classes=26),
    "digits": Declared(IMAGE, train=240_000, test=40_000, classes=10),
    "mnist": MNIST,
}
UINT8 = 0x08  # the code of the only supported type


def mnist(root: Path, download: bool) -> Dataset:
    """MNIST handwritten digits 28 x 28, 10 classes, 60000 + 10000 images (LeCun et al. 1998)."""
    files = TorchvisionSet("mnist", "MNIST", MNIST, "https://ossci-datasets.s3.amazonaws.com/mnist/")
    return read_idx_set(files, root, download)


def fashion_mnist(root: Path, download: bool) -> Dataset:
    """Fashion-MNIST articles of clothing 28 x 28, 10 classes, 60000 + 10000 images (Xiao et al. 2017)."""
    site = "https://github.com/zalandoresearch/fashion-mnist"
    return read_idx_set(TorchvisionSet("fashion_mnist", "FashionMNIST", MNIST, site), root, download)


def kmnist(root: Path, download: bool) -> Dataset:
    """Kuzushiji-MNIST cursive Japanese characters 28 x 28, 10 classes, 60000 + 10000 images (Clanuwat et al. 2018)."""
    site = "http://codh.rois.ac.jp/kmnist/"
    return read_idx_set(TorchvisionSet("kmnist", "KMNIST", MNIST, site), root, download)


def emnist(
    root: Path,
    download: bool,
    *,
    split: Annotated[
        Literal["byclass", "bymerge", "balanced", "letters", "digits", "mnist"], doc("EMNIST's own split")
    ] = "balanced",
) -> Dataset:
    """EMNIST letters and digits 28 x 28, 10 to 62 classes by `split`, 70000 to 814255 images (Cohen et al. 2017).

    Images are mirrored along the diagonal, as in the files and in torchvision. The labels of `letters` are 1..26 in the
    files and 0..25 here, so that no class is empty.
    """
    site = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
    files = TorchvisionSet("emnist", "EMNIST", EMNIST[split], site, train={"split": split, "train": True})
    stems = (f"emnist-{split}-train", f"emnist-{split}-test")
    return read_idx_set(files, root, download, stems=stems, first_label=1 if split == "letters" else 0)


def read_idx_set(
    files: TorchvisionSet,
    root: Path,
    download: bool,
    *,
    stems: tuple[str, str] = ("train", "t10k"),
    first_label: int = 0,
) -> Dataset:
    """Read `<stem>-images-idx3-ubyte` and `<stem>-labels-idx1-ubyte` (or .gz) of both splits below `root / where`.

    first_label: the label of class 0 in the files.

    Raises:
        ConfigError: files are missing and were not downloaded, or are damaged.
    """
    paths = _find(root / files.where, stems)
    if not paths and download:
        open_quietly(files, root, True, files.train)
        paths = _find(root / files.where, stems)
    if not paths:
        raise missing_files_error(files, root, None)
    train, test = (_read_split(images, labels, first_label) for images, labels in paths)
    return Dataset(train, test, files.declared.classes)


def _find(folder: Path, stems: tuple[str, str]) -> list[tuple[Path, Path]]:
    """Return the files (images, labels) of both splits, or an empty list if one is missing."""
    names = [f"{stem}-{kind}-ubyte" for stem in stems for kind in ("images-idx3", "labels-idx1")]
    paths = [path for name in names if (path := find_idx(folder, name))]
    return [*zip(paths[::2], paths[1::2], strict=True)] if len(paths) == len(names) else []


def _read_split(images: Path, labels: Path, first_label: int) -> Split:
    x, y = read_idx(images), read_idx(labels)
    if x.ndim != 3 or y.ndim != 1:
        raise ConfigError(f"{images}: {x.ndim} dimensions, and {y.ndim} in {labels.name}; they must have 3 and 1")
    return Split(channels_first(x), y.astype(np.int64) - first_label)


def find_idx(folder: Path, name: str) -> Path | None:
    """Return the file `name` or else `name.gz` in `folder`, or None if neither exists."""
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """Return the array (uint8, read-only) in the idx file at `path`; a file that ends in .gz is unzipped.

    Raises:
        ConfigError: the file cannot be read, is not an idx file of uint8, or its length contradicts its header.
    """
    advice = "delete it and download it again"
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            magic = file.read(4)
            if len(magic) < 4 or magic[:3] != bytes([0, 0, UINT8]):
                raise ConfigError(f"{path}: not an idx file of uint8 values (it starts with {magic.hex()}); {advice}")
            sizes = file.read(4 * magic[3])
            if len(sizes) < 4 * magic[3]:
                raise ConfigError(f"{path}: the file ends inside its header; {advice}")
            shape = struct.unpack(f">{magic[3]}I", sizes)
            count = math.prod(shape)
            require_memory(count, str(path), f"{count} values")
            values = file.read(count + 1)  # bounded: a compressed file may unpack to any size
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); {advice}") from error
    if len(values) != count:
        length = len(values) if len(values) < count else f"more than {count}"
        raise ConfigError(f"{path}: holds {length} values where its header says {count}; {advice}")
    return np.frombuffer(values, np.uint8).reshape(shape)
