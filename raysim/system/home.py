"""Paths that begin with ~, also where the user has no home folder, as in many containers."""

from pathlib import Path

from raysim.system.errors import ConfigError


def expand(key: str, path: str | Path) -> Path:
    """Return a path with its ~ replaced by the home folder.

    Args:
        key: what the user set the path with, for the message.
        path: the path.

    Raises:
        ConfigError: it begins with ~, and there is no such home folder.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        why = "this user has no home folder: HOME is not set, and the system does not list the user"
        raise ConfigError(f"{key}: found {path}, but {why}; allowed: a path without ~") from None


def find_home() -> Path | None:
    """Return the user's home folder, or None if there is none."""
    try:
        return Path.home()
    except RuntimeError:
        return None
