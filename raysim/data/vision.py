"""Datasets that torchvision reads and downloads, with its failures as one-line errors.

torchvision is imported only when one of them is loaded. A torchvision that does not fit the installed torch therefore
breaks only these datasets.
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

from raysim.data import DOWNLOADS
from raysim.data.dataset import Array, Dataset, Declared, MissingData, Split, channels_first
from raysim.data.downloading import staged_download
from raysim.system.errors import ConfigError
from raysim.system.importing import import_torchvision

TIMEOUT = 20.0  # seconds without a byte until a download fails
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
    """The location of a dataset in torchvision and on disk."""

    name: str
    """The name in YAML."""
    kind: str
    """The class in torchvision.datasets."""
    declared: Declared
    """The published contents of the files."""
    site: str
    """The web page with the files."""
    train: dict[str, Any] = field(default_factory=lambda: {"train": True})
    """The class's arguments for the training split."""
    test: dict[str, Any] = field(default_factory=lambda: {"train": False})
    """The class's arguments for the test split."""
    channels_first: bool = False
    """Whether the arrays are [N, C, H, W] already."""

    @property
    def where(self) -> str:
        """The files, below the root."""
        return DOWNLOADS[self.name][0]


def usps(root: Path, download: bool) -> Dataset:
    """USPS handwritten digits 16 x 16, 10 classes, 7291 + 2007 images, by torchvision (Hull 1994)."""
    site = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multiclass.html#usps"
    return read_torchvision_set(TorchvisionSet("usps", "USPS", USPS, site), root, download)


def svhn(root: Path, download: bool) -> Dataset:
    """Street View House Numbers 32 x 32 RGB, 10 classes, 73257 + 26032 images, by torchvision (Netzer et al. 2011)."""
    site = "http://ufldl.stanford.edu/housenumbers/"
    options: dict[str, Any] = {"train": {"split": "train"}, "test": {"split": "test"}}
    files = TorchvisionSet("svhn", "SVHN", SVHN, site, channels_first=True, **options)
    return read_torchvision_set(files, root, download)


def cifar10(root: Path, download: bool) -> Dataset:
    """CIFAR-10 natural images 32 x 32 RGB, 10 classes, 50000 + 10000 images, by torchvision (Krizhevsky 2009)."""
    site = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
    return read_torchvision_set(TorchvisionSet("cifar10", "CIFAR10", CIFAR10, site), root, download)


def cifar100(root: Path, download: bool) -> Dataset:
    """CIFAR-100 natural images 32 x 32 RGB, 100 classes, 50000 + 10000 images, by torchvision (Krizhevsky 2009)."""
    site = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    return read_torchvision_set(TorchvisionSet("cifar100", "CIFAR100", CIFAR100, site), root, download)


def read_torchvision_set(files: TorchvisionSet, root: Path, download: bool) -> Dataset:
    """Read both splits of a dataset below `root`. If `download` is true, download missing files.

    Raises:
        ConfigError: see `open_quietly`.
    """
    train, test = (_open(files, root, download, options) for options in (files.train, files.test))
    names = tuple(train.classes) if hasattr(train, "classes") else None
    return Dataset(_to_split(files, train), _to_split(files, test), files.declared.classes, names)


def _open(files: TorchvisionSet, root: Path, download: bool, options: dict[str, Any]) -> Any:
    try:
        return open_quietly(files, root, False, options)
    except ConfigError:
        if not download:
            raise
        return open_quietly(files, root, True, options)


def _to_split(files: TorchvisionSet, dataset: Any) -> Split:
    images: Array = np.asarray(dataset.data)
    labels = dataset.targets if hasattr(dataset, "targets") else dataset.labels
    x = np.ascontiguousarray(images) if files.channels_first else channels_first(images)
    return Split(x, np.asarray(labels, dtype=np.int64))


def open_quietly(files: TorchvisionSet, root: Path, download: bool, options: dict[str, Any]) -> Any:
    """Return torchvision's object for one split, constructed with `options`. Its output is suppressed.

    Raises:
        ConfigError: torchvision cannot be imported, the files are missing or damaged, or the download failed.
    """
    datasets = import_torchvision("datasets", f"dataset {files.name}")
    with _quiet():
        try:
            here = (
                staged_download(files.name, root, *DOWNLOADS[files.name]) if download else contextlib.nullcontext(root)
            )
            with here as folder:
                return getattr(datasets, files.kind)(folder, download=download, **options)
        except ImportError as error:
            raise ConfigError(f"dataset {files.name}: needs a package that cannot be imported ({error})") from error
        except FAILURES as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = (lines[-1] if lines else type(error).__name__)[:200]
            raise missing_files_error(files, root, reason if download else None) from error


def missing_files_error(files: TorchvisionSet, root: Path, failure: str | None) -> MissingData:
    """Return the error for missing files: where they were searched for and how to get them.

    `failure` is the reason why a download failed, or None if it was not allowed.
    """
    failed = f" and downloading failed ({failure})" if failure else ""
    or_allow = "" if failure else "set dataset.download to true, or "
    return MissingData(
        f"dataset {files.name}: no complete, sound files in {root} (looked for {files.where}){failed}; {or_allow}"
        f"put them there from {files.site}, or point dataset.root or RAYSIM_DATA to where they are",
        files.declared,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress output and warnings, and let downloads fail after TIMEOUT seconds without a byte."""
    timeout_before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(action="ignore"),  # CIFAR's pickles hold dtypes in an outdated form
        ):
            yield
    finally:
        socket.setdefaulttimeout(timeout_before)
