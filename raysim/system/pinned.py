"""Files that must not change while a run uses them: their digests, and whether they are still the same."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from raysim.system.errors import RunError
from raysim.system.files import digest_file

Stamp = tuple[int, int, int, int]
"""A file's device, inode, size in bytes and time of its last change in nanoseconds."""


@dataclass(frozen=True)
class PinnedFile:
    """A file with the content that it had when a run began.

    A copy in memory would take it from the pages that processes of a node share. So the file itself must stay.
    """

    key: str
    """The config's key that names it."""
    path: Path
    sha256: str
    """The digest of its content."""
    stamp: Stamp
    used_by_clients: bool = True
    """Whether hosts read it, and not the server alone."""

    @property
    def name(self) -> str:
        """Its name among the identities of a run: its key without the block, such as weights."""
        return self.key.partition(".")[2]

    def check(self) -> "PinnedFile":
        """Return it with its present stamp. Its content is read only if that has changed.

        Raises:
            RunError: it has other content, or cannot be read.
        """
        advice = "put that file back, then resume the run, or start a new one"
        try:
            if read_stamp(self.path) == self.stamp:
                return self
            now = pin_file(self.key, self.path)
        except OSError as error:
            reason = error.strerror or error
            raise RunError(
                f"{self.key}: {self.path}, which the run uses, cannot be read any more ({reason}); {advice}"
            ) from None
        if now.sha256 != self.sha256:
            found = f"found SHA-256 {now.sha256[:12]}, expected {self.sha256[:12]}"
            raise RunError(f"{self.key}: {self.path} is not the file that the run began with: {found}; {advice}")
        return replace(self, stamp=now.stamp)


def pin_file(key: str, path: Path, used_by_clients: bool = True) -> PinnedFile:
    """Return a file with its present content. Raises OSError if it cannot be read, or changes meanwhile."""
    before = read_stamp(path)
    digest = digest_file(path)
    if read_stamp(path) != before:
        raise OSError(f"{path} changes while it is read")
    return PinnedFile(key, path, digest, before, used_by_clients)


def digest_once(path: Path) -> str:
    """Return the SHA-256 digest of a file. A process reads it again only if it changed. Raises OSError."""
    return _digest_of(path, read_stamp(path))


@cache
def _digest_of(path: Path, stamp: Stamp) -> str:
    return digest_file(path)


def read_stamp(path: Path) -> Stamp:
    """Return what changes with a file's content. The time is the inode's, which no program can set. Raises OSError."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_ctime_ns


def check_files(files: Iterable[PinnedFile]) -> list[PinnedFile]:
    """Return files with their present stamps. Raises RunError: one has other content, or cannot be read."""
    return [file.check() for file in files]
