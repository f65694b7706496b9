"""The files that a run's config names, besides those of its data: weights, and what methods read."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from raysim.api.method import Method
from raysim.config import Config
from raysim.config.error_text import shorten
from raysim.system.errors import ConfigError
from raysim.system.home import expand
from raysim.system.hub_files import find_weights
from raysim.system.pinned import PinnedFile, check_files, pin_file

WEIGHTS = "model.weights"


def pin_weights(config: Config) -> list[PinnedFile]:
    """Return the model's file of weights, if there is one. Raises ConfigError if it cannot be read."""
    if config.model.weights is None:
        return []
    return [_pin(WEIGHTS, find_weights(config.model.weights))]


def pin_files_of(methods: Iterable[tuple[str, Method]]) -> list[PinnedFile]:
    """Return the files that methods' hyperparameters name (`Method.files`). Raises ConfigError: one cannot be read."""
    named = [(f"methods.{name}.{key}", getattr(method, key)) for name, method in methods for key in method.files]
    return [_pin(key, expand(key, path), used_by_clients=False) for key, path in named if path is not None]


def find_on_this_node(config: Config, files: Iterable[PinnedFile]) -> list[PinnedFile]:
    """Return the driver's files as this node has them. A hub's file has its own place on each node.

    Raises:
        RunError: a file is absent here, or has other content.
    """
    return check_files(
        replace(file, path=find_weights(config.model.weights))
        if file.key == WEIGHTS and config.model.weights is not None
        else file
        for file in files
    )


def _pin(key: str, path: Path, used_by_clients: bool = True) -> PinnedFile:
    try:
        return pin_file(key, path, used_by_clients)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise ConfigError(f"{key}: there is no file {shorten(str(path))}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}: {shorten(str(path))} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
