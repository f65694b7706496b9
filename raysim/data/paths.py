"""The files and folders of a dataset, and the error where one is missing."""

from pathlib import Path

from raysim.data.dataset import MissingData

RELATIVE = "a relative path starts at dataset.root, by default $RAYSIM_DATA or ~/.cache/raysim"
"""The end of an error message about a missing file."""


def require_file(key: str, file: Path) -> Path:
    """Return a file that exists. Raises MissingData; `key` is the config key that names it."""
    if not file.is_file():
        raise MissingData(f"{key}: there is no file {file}; {RELATIVE}")
    return file


def require_folder(folder: Path) -> Path:
    """Return the folder of dataset.path, which exists. Raises MissingData."""
    if not folder.is_dir():
        raise MissingData(f"dataset.path: there is no folder {folder}; {RELATIVE}")
    return folder
