"""Checksums next to the files of a cache, so that damaged content, or the content of another file, is not used."""

from pathlib import Path

from raysim.system.files import read_whole, write_whole


def checksum_path(path: Path) -> Path:
    """Return the file with the checksum of another file."""
    return path.with_name(f"{path.name}.sha256")


def write_checksum(path: Path, digest: str) -> None:
    """Write the checksum of a file with this SHA-256 digest, as sha256sum does. Raises OSError."""
    write_whole(checksum_path(path), f"{digest}  {path.name}\n")


def note_unfit(path: Path, key: str, again: str, notes: list[str], doubts: list[str]) -> None:
    """Add why a file of a cache is made again, if it exists: damage as a warning about `key`, else a phrase.

    Older versions of raysim wrote no checksums.
    """
    if path.exists() and checksum_path(path).exists():
        doubts.append(f"{key}: {path} was not as it was written, so its {again} again")
    elif path.exists():
        notes.append(f"{path} had no checksum, so its {again} again")


def is_as_written(path: Path, digest: str) -> bool:
    """Return whether a file with this SHA-256 digest has the checksum next to it, under its own name."""
    try:
        return read_whole(checksum_path(path)) == f"{digest}  {path.name}\n".encode()
    except OSError:
        return False
