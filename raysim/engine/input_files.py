"""The files that a run's config names, besides those of its data: weights, models' folders, and what methods read."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from raysim.api.method import Method
from raysim.config import Config
from raysim.config.error_text import shorten
from raysim.models.hugging_face.folder import CONFIG, weight_files
from raysim.models.hugging_face.text_encoder import encoder_files
from raysim.models.weight_sources import find_model_weights
from raysim.system.errors import ConfigError
from raysim.system.home import expand
from raysim.system.hub_files import is_folder
from raysim.system.pinned import PinnedFile, check_files, pin_file

WEIGHTS, FOLDER = "model.weights", "model.path/"


def pin_weights(config: Config) -> list[PinnedFile]:
    """Return the model's file of weights and those of its folder, if any. Raises ConfigError: one cannot be read."""
    return [_pin(key, path) for key, path in _find_files(config).items()]


def _find_files(config: Config) -> dict[str, Path]:
    """Return the model's file of weights and those of its folder by key, if it has them.

    Without pretrained weights its config is the only file of a folder.
    """
    weights, keys = find_model_weights(config.model), config.model.keys()
    named = {} if weights is None else {WEIGHTS: weights}
    files = weight_files(str(keys["path"])) if config.model.name == "hugging_face" else {}
    used = {name: path for name, path in files.items() if keys["pretrained"] or name == CONFIG}
    return named | {f"{FOLDER}{name}": path for name, path in used.items()}


def pin_files_of(methods: Iterable[tuple[str, Method]]) -> list[PinnedFile]:
    """Return the files that methods' hyperparameters name (`Method.files`). Raises ConfigError: one cannot be read.

    Of the folder of a text encoder, these are its config, its weights and its tokenizer.
    """
    named = [(f"methods.{name}.{key}", getattr(method, key)) for name, method in methods for key in method.files]
    files = dict[str, Path]()
    for key, path in named:
        if path is not None and is_folder(key, path):
            files |= {f"{key}/{name}": file for name, file in encoder_files(key, path).items()}
        elif path is not None:
            files[key] = expand(key, path)
    return [_pin(key, path, used_by_clients=False) for key, path in files.items()]


def find_on_this_node(config: Config, files: Iterable[PinnedFile]) -> list[PinnedFile]:
    """Return the driver's files as this node has them. A hub's file has its own place on each node.

    Raises:
        RunError: a file is absent here, or has other content.
    """
    here = _find_files(config)
    return check_files(replace(file, path=here.get(file.key, file.path)) for file in files)


def _pin(key: str, path: Path, used_by_clients: bool = True) -> PinnedFile:
    try:
        return pin_file(key, path, used_by_clients)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise ConfigError(f"{key}: there is no file {shorten(str(path))}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{key}: {shorten(str(path))} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error
