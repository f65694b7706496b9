"""torchvision's published weights by name: in torch's own folder for them, or downloaded into it."""

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from urllib.parse import urlparse

from torch import hub

from raysim.config.error_text import either, shorten, show
from raysim.system.errors import ConfigError
from raysim.system.importing import import_torchvision
from raysim.system.pinned import digest_once

NAME = re.compile(r"[A-Z][A-Z0-9_]*")
"""A name of weights, such as DEFAULT or IMAGENET1K_V1. A file of such a name is ./NAME."""
DIGEST = re.compile(r"-([0-9a-f]{8,})\.")  # of the content, in torchvision's file names: the start of its SHA-256


def find_torchvision_weights(architecture: str, name: str) -> Path:
    """Return the file of an architecture's weights. torchvision downloads it once, and checks its digest.

    Args:
        architecture: torchvision's name.
        name: DEFAULT, or a name such as IMAGENET1K_V1.

    Raises:
        ConfigError: there are no such weights, they could not be downloaded, or the file has other content.
    """
    models = import_torchvision("models", "model.weights")
    try:
        published = models.get_model_weights(architecture)
    except ValueError as error:  # the architecture is unknown
        raise ConfigError(f"model.architecture: {error}") from error
    if name not in published.__members__:
        allowed = f"a file, or weights of {architecture}: {either(['DEFAULT', *(one.name for one in published)])}"
        raise ConfigError(f"model.weights: found {show(name)}, allowed: {allowed}")
    weights = published[name]
    file = Path(hub.get_dir()) / "checkpoints" / Path(urlparse(weights.url).path).name
    if not file.exists():
        try:
            with redirect_stdout(StringIO()):  # torch prints the address
                weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
        except Exception as error:  # of the network, of the disk, or of a digest
            todo = f"download {weights.url} to {file}"
            reason = shorten(f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
            raise ConfigError(f"model.weights: {name} could not be downloaded ({reason}); {todo}") from error
    _check_digest(file, weights.url)
    return file


def _check_digest(file: Path, url: str) -> None:
    """Compare a file's content with the digest in its name. Raises ConfigError if it has other content."""
    stated = DIGEST.search(file.name)
    try:
        digest = digest_once(file)
    except OSError as error:
        raise ConfigError(f"model.weights: {file} cannot be read: {error.strerror or error}") from error
    if stated is not None and not digest.startswith(stated[1]):
        problem = f"found SHA-256 {digest[: len(stated[1])]} of {file}, allowed: {stated[1]}"
        raise ConfigError(f"model.weights: {problem}; remove the file, or download {url} again")
