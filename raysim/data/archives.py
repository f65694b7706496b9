"""Official archives of datasets: compared with their checksums, and unpacked whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from raysim.config.error_text import show
from raysim.system.errors import ConfigError, first_line
from raysim.system.files import open_regular
from raysim.system.progress import tell_progress

DAMAGE = (OSError, EOFError, ValueError, RuntimeError, tarfile.TarError, zipfile.BadZipFile)
OFTEN = 1000  # files between two reports of progress


@dataclass(frozen=True)
class Archive:
    """An archive as it is distributed."""

    file: str
    """Its name."""
    holds: str
    """The folder in it that is used."""
    md5: str | None
    """The digest of its content; None if none is published."""
    place: str = ""
    """The folder, below that of the datasets, that gets the used folder; empty is that of the datasets itself."""

    @property
    def named(self) -> str:
        """Its name and its digest, for messages."""
        return f"{self.file} (md5 {self.md5})" if self.md5 else self.file

    def target(self, root: Path) -> Path:
        """Return the folder that unpacking makes."""
        return root / self.place / self.holds

    def find(self, root: Path) -> Path | None:
        """Return the archive's file: in the folder of the datasets, or where it is unpacked."""
        places = (root / self.file, root / self.place / self.file)
        return next((place for place in places if place.is_file()), None)


def unpack(archive: Archive, file: Path, root: Path) -> None:
    """Unpack the used folder of an archive. It gets its place once it is whole.

    Raises:
        ConfigError: the archive has other content than the official one, is damaged, has paths outside its folder, or
            there is no room for its files.
    """
    require_md5("dataset.path", file, archive.md5)
    target = archive.target(root)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target.parent))
    except OSError as error:
        raise ConfigError(f"dataset.path: {target} cannot be made ({error.strerror or error})") from error
    try:
        count = 0
        for name, content in _files(file):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
                problem = f"{file} has the path {show(name)}, which is outside its folder"
                raise ConfigError(f"dataset.path: {problem}, allowed: paths inside; get the official archive")
            if not path.is_relative_to(archive.holds) or path == PurePosixPath(archive.holds):
                continue
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            with content, place.open("wb") as written:
                shutil.copyfileobj(content, written, 2**20)
            count += 1
            if count % OFTEN == 0:
                tell_progress(f"unpacking {archive.file}: {count:,} files")
        if not count:
            raise ConfigError(f"dataset.path: {file} has no folder {archive.holds}, as the official archive has")
        try:
            os.rename(folder / archive.holds, target)
        except OSError:
            if not target.is_dir():  # else another process has unpacked it, whole
                raise
    except (*DAMAGE, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        problem = f"{file} cannot be unpacked ({reason})"
        raise ConfigError(f"dataset.path: {problem}; make room, or get the archive again") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def require_md5(key: str, file: Path, md5: str | None) -> None:
    """Refuse a file with another MD5 digest than the published one; None is any. Raises ConfigError."""
    if md5 is None:
        return
    tell_progress(f"comparing the checksum of {file.name}")
    try:
        with open_regular(file) as content:
            found = hashlib.file_digest(content, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise ConfigError(f"{key}: {file} cannot be read ({error.strerror or error})") from error
    if found != md5:
        problem = f"{file} has the MD5 digest {found}, so it is damaged or another version"
        raise ConfigError(f"{key}: {problem}, allowed: {md5}, the official file")


def _files(file: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the names and the content of an archive's files. Links, which may lead outside, are refused."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            for one in archive.infolist():
                if not one.is_dir():
                    yield one.filename, archive.open(one)
        return
    with tarfile.open(file) as packed:
        for member in packed:
            content = packed.extractfile(member) if member.isreg() else None
            if content is not None:
                yield member.name, content
            elif not member.isdir():
                problem = f"{file} has {show(member.name)}, which is a link or a device"
                raise ConfigError(f"dataset.path: {problem}, allowed: files and folders; get the official archive")
