"""Files of weights and folders of models: paths, names on the Hugging Face hub, and names of packaged weights."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raysim.system.errors import ConfigError
from raysim.system.home import expand
from raysim.system.importing import import_extra
from raysim.system.packaged import PACKAGED, find_packaged

HUB = "hf://"
NAME = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[\w./-]+))?(?:@(?P<revision>[\w./-]+))?")
FILE = "model.safetensors"
ADAPTERS, ADAPTERS_CONFIG = "adapter_model.safetensors", "adapter_config.json"  # names of the package peft
LONGEST_REASON = 100  # letters
FOLDER_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


def find_weights(weights: str) -> Path:
    """Return the file that `model.weights` names: a path, hf://OWNER/NAME[/FILE][@REVISION], or a packaged name.

    For the path of a folder that the package peft wrote, it is the folder's file of adapters.
    A file of the hub is downloaded once, to the hub's own cache. Later calls do not use the network.

    Raises:
        ConfigError: the hub's package is not installed, or the file is neither in the cache nor on the hub.
    """
    if weights in PACKAGED:
        file = find_packaged("model.weights", weights)
        if file.is_dir():
            raise ConfigError(f"model.weights: found {weights}, which is a folder, allowed: it as model.path")
        return file
    if "://" in weights and not weights.startswith(HUB):
        todo = "download it and give its path"
        raise ConfigError(f"model.weights: found the address {weights}; {todo}, or use hf://OWNER/NAME[/FILE]")
    if not weights.startswith(HUB):
        path = expand("model.weights", weights)
        return path / ADAPTERS if (path / ADAPTERS_CONFIG).is_file() else path
    if (parts := NAME.fullmatch(weights)) is None:
        raise ConfigError(f"model.weights: found {weights!r}, allowed: hf://OWNER/NAME[/FILE][@REVISION]")
    wanted = {"repo_id": parts["repo"], "filename": parts["file"] or FILE, "revision": parts["revision"]}
    return _download("model.weights", weights, "hf_hub_download", wanted)


def holds_adapters(path: Path) -> bool:
    """Return whether this is the file of adapters in a folder that the package peft wrote."""
    return path.name == ADAPTERS and (path.parent / ADAPTERS_CONFIG).is_file()


def find_folder(key: str, path: str, needed: Sequence[str] = ()) -> Path:
    """Return the folder of a model or a tokenizer: a path, hf://OWNER/NAME[@REVISION] of the hub, or a packaged name.

    A folder of the hub is downloaded once, to the hub's own cache. Later calls do not use the network. No hub is asked
    for a path. Other programs may have put only some files into the cache, such as those of the tokenizer.

    Args:
        key: the config's key, for messages.
        path: its value.
        needed: patterns of names. Without a file for each of them, what the cache has is not the whole folder.

    Raises:
        ConfigError: there is no such folder, or it is neither in the cache nor on the hub.
    """
    if path in PACKAGED:
        return find_packaged(key, path)
    if path.startswith(HUB):
        parts = NAME.fullmatch(path)
        if parts is None or parts["file"]:
            raise ConfigError(f"{key}: found {path!r}, allowed: hf://OWNER/NAME[@REVISION]")
        wanted = {"repo_id": parts["repo"], "revision": parts["revision"], "allow_patterns": FOLDER_FILES}
        return _download(key, path, "snapshot_download", wanted, needed)
    folder = expand(key, path)
    if not folder.is_dir():
        allowed = f"a folder, hf://OWNER/NAME[@REVISION], or {' or '.join(PACKAGED)}"
        raise ConfigError(f"{key}: found {path!r}, which is no folder, allowed: {allowed}")
    return folder


def is_folder(key: str, path: str) -> bool:
    """Return whether a path is what `find_folder` takes, and not a file's."""
    return path in PACKAGED or path.startswith(HUB) or expand(key, path).is_dir()


def _download(key: str, name: str, function: str, wanted: dict[str, Any], needed: Sequence[str] = ()) -> Path:
    """Return what a function of the hub's package finds in its cache with all that is needed, or else on the hub."""
    hub, errors = (import_extra(f"huggingface_hub{module}", "hugging_face") for module in ("", ".errors"))
    find = getattr(hub, function)
    try:
        try:
            found = Path(find(**wanted, local_files_only=True))
        except errors.LocalEntryNotFoundError:
            return Path(find(**wanted))
        return found if all(any(found.glob(pattern)) for pattern in needed) else Path(find(**wanted))
    except Exception as error:  # of the network, of the hub, or of the cache's folder
        first = next(iter(str(error).splitlines()), "")
        reason = f"{type(error).__name__}: {first}"[:LONGEST_REASON]
        todo = "check the name and the network, or download the files and give their path"
        raise ConfigError(f"{key}: {name} could not be downloaded ({reason}); {todo}") from error
