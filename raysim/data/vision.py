"""Data sets that torchvision reads and downloads, and one-line errors where neither works.

torchvision is imported when one of them is loaded, never before: a torchvision that does not fit the installed torch
breaks these data sets and nothing else.
"""

import contextlib
import http.client
import io
import socket
import tarfile
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from raysim.data.dataset import Array, Dataset, Declared, MissingData, Split, channels_first
from raysim.data.downloading import arriving_whole
from raysim.system.errors import ConfigError
from raysim.system.importing import import_torchvision

TIMEOUT = 20.0  # seconds without a byte before a download is given up
FAILURES = (
    RuntimeError,
    OSError,
    EOFError,
    ValueError,
    http.client.HTTPException,
    tarfile.TarError,
    zipfile.BadZipFile,
)


USPS = Declared((1, 16, 16), train=7291, test=2007, classes=10)
SVHN = Declared((3, 32, 32), train=73257, test=26032, classes=10)
CIFAR10 = Declared((3, 32, 32), train=50000, test=10000, classes=10)
CIFAR100 = replace(CIFAR10, classes=100)


@dataclass(frozen=True)
class TorchvisionSet:
    """Where one data set is in torchvision and on disk.

    Args:
        name: its name in YAML.
        kind: the name of its class in torchvision.datasets.
        declared: what its files hold.
        where: its files, below the root.
        site: the web page that has them.
        train: the class's arguments for the training split.
        test: the class's arguments for the test split.
        channels_first: whether its arrays are [N, C, H, W] already.
    """

    name: str
    kind: str
    declared: Declared
    where: str
    site: str
    train: dict[str, Any] = field(default_factory=lambda: {"train": True})
    test: dict[str, Any] = field(default_factory=lambda: {"train": False})
    channels_first: bool = False


def usps(root: Path, download: bool) -> Dataset:
    """USPS handwritten digits 16 x 16, 10 classes, 7291 + 2007 images, by torchvision (Hull 1994)."""
    site = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps"
    return read_torchvision_set(TorchvisionSet("usps", "USPS", USPS, "usps.bz2, usps.t.bz2", site), root, download)


def svhn(root: Path, download: bool) -> Dataset:
    """Street View House Numbers 32 x 32 RGB, 10 classes, 73257 + 26032 images, by torchvision (Netzer et al. 2011)."""
    files = "train_32x32.mat, test_32x32.mat"
    site = "http://ufldl.stanford.edu/housenumbers/"
    halves: dict[str, Any] = {"train": {"split": "train"}, "test": {"split": "test"}}
    known = TorchvisionSet("svhn", "SVHN", SVHN, files, site, channels_first=True, **halves)
    return read_torchvision_set(known, root, download)


def cifar10(root: Path, download: bool) -> Dataset:
    """CIFAR-10 natural images 32 x 32 RGB, 10 classes, 50000 + 10000 images, by torchvision (Krizhevsky 2009)."""
    site = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    return read_torchvision_set(
        TorchvisionSet("cifar10", "CIFAR10", CIFAR10, "cifar-10-batches-py/", site), root, download
    )


def cifar100(root: Path, download: bool) -> Dataset:
    """CIFAR-100 natural images 32 x 32 RGB, 100 classes, 50000 + 10000 images, by torchvision (Krizhevsky 2009)."""
    site = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    return read_torchvision_set(
        TorchvisionSet("cifar100", "CIFAR100", CIFAR100, "cifar-100-python/", site), root, download
    )


def read_torchvision_set(known: TorchvisionSet, root: Path, download: bool) -> Dataset:
    """Read both splits of a data set below `root`, downloading those that are missing if `download` is true.

    Raises:
        ConfigError: see `open_quietly`.
    """
    train, test = (_open(known, root, download, options) for options in (known.train, known.test))
    names = tuple(train.classes) if hasattr(train, "classes") else None
    return Dataset(_to_split(known, train), _to_split(known, test), known.declared.classes, names)


def _open(known: TorchvisionSet, root: Path, download: bool, options: dict[str, Any]) -> Any:
    try:
        return open_quietly(known, root, False, options)
    except ConfigError:
        if not download:
            raise
        return open_quietly(known, root, True, options)


def _to_split(known: TorchvisionSet, found: Any) -> Split:
    images: Array = np.asarray(found.data)
    labels = found.targets if hasattr(found, "targets") else found.labels
    x = np.ascontiguousarray(images) if known.channels_first else channels_first(images)
    return Split(x, np.asarray(labels, dtype=np.int64))


def open_quietly(known: TorchvisionSet, root: Path, download: bool, options: dict[str, Any]) -> Any:
    """Return torchvision's object for one split, `options` being the arguments of its class; nothing is printed.

    Raises:
        ConfigError: torchvision cannot be imported, the files are missing or damaged, or the download failed.
    """
    datasets = import_torchvision("datasets", f"data set {known.name}")
    with _quiet():
        try:
            with arriving_whole(known.name, root, known.where) if download else contextlib.nullcontext(root) as folder:
                return getattr(datasets, known.kind)(folder, download=download, **options)
        except ImportError as error:
            raise ConfigError(f"data set {known.name}: needs a package that cannot be imported ({error})") from error
        except FAILURES as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = (lines[-1] if lines else type(error).__name__)[:200]
            raise missing_files_error(known, root, reason if download else None) from error


def missing_files_error(known: TorchvisionSet, root: Path, failure: str | None) -> MissingData:
    """Return the error for a data set without its files: where they were looked for and how to get them.

    failure: why downloading failed; None where it was not allowed.
    """
    failed = f" and downloading failed ({failure})" if failure else ""
    or_allow = "" if failure else "set dataset.download to true, or "
    return MissingData(
        f"data set {known.name}: no complete, sound files in {root} (looked for {known.where}){failed}; {or_allow}put "
        f"them there from {known.site}, or point dataset.root or RAYSIM_DATA to where they are",
        known.declared,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress output and warnings, and end downloads that get no byte for TIMEOUT seconds."""
    waiting = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(action="ignore"),  # CIFAR's pickles are older than numpy's idea of a dtype
        ):
            yield
    finally:
        socket.setdefaulttimeout(waiting)
