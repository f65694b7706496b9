"""Find image files in folders."""

from pathlib import Path

from raysim.system.errors import ConfigError

SUFFIXES = {
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".apng", ".bmp", ".dib", ".gif", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
}
"""The ends of names of images, in lower case: those of `pictures.FORMATS`."""


def list_entries(folder: Path) -> list[Path]:
    """Return the files and folders in a folder that are not hidden, sorted by name.

    Raises:
        ConfigError: one is neither, such as a pipe or a link to nothing.
    """
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    for entry in entries:
        if not entry.is_file() and not entry.is_dir():
            found = "a link to nothing" if entry.is_symlink() and not entry.exists() else "a pipe or a device"
            raise ConfigError(f"dataset.path: {entry} is {found}, allowed: files and folders; replace or remove it")
    return entries


def list_images(folder: Path) -> list[Path]:
    """Return the images of one class, sorted by name.

    Raises:
        ConfigError: the folder has no images; also as `list_entries`.
    """
    entries = list_entries(folder)
    images = [entry for entry in entries if entry.suffix.lower() in SUFFIXES and entry.is_file()]
    if not images:
        below = next((entry for entry in entries if entry.is_dir()), None)
        hint = "" if below is None else f"; it holds the folder {below.name}: is {folder} the path that was meant?"
        raise ConfigError(
            f"dataset.path: {folder} holds no images, allowed: at least one in every class's folder{hint}"
        )
    return images
