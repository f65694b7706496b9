"""Files of weights on the Hugging Face hub, by name."""

import re
from pathlib import Path
from typing import Any

from raysim.config.error_text import shorten
from raysim.system.errors import ConfigError
from raysim.system.home import expand
from raysim.system.importing import import_extra

HUB = "hf://"
NAME = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<file>[\w./-]+))?(?:@(?P<revision>[\w./-]+))?")
FILE = "model.safetensors"


def find_weights(weights: str) -> Path:
    """Return the file that `model.weights` names: a path, or hf://OWNER/NAME[/FILE][@REVISION] of the hub.

    A file of the hub is downloaded once, to the hub's own cache. Later calls do not use the network.

    Raises:
        ConfigError: the hub's package is not installed, or the file is neither in the cache nor on the hub.
    """
    if "://" in weights and not weights.startswith(HUB):
        todo = "download it and give its path"
        raise ConfigError(f"model.weights: found the address {weights}; {todo}, or use hf://OWNER/NAME[/FILE]")
    if not weights.startswith(HUB):
        return expand("model.weights", weights)
    if (parts := NAME.fullmatch(weights)) is None:
        raise ConfigError(f"model.weights: found {weights!r}, allowed: hf://OWNER/NAME[/FILE][@REVISION]")
    hub, errors = (import_extra(f"huggingface_hub{module}", "hugging_face") for module in ("", ".errors"))
    wanted: dict[str, Any] = {
        "repo_id": parts["repo"],
        "filename": parts["file"] or FILE,
        "revision": parts["revision"],
    }
    try:
        try:
            return Path(hub.hf_hub_download(**wanted, local_files_only=True))
        except errors.LocalEntryNotFoundError:
            return Path(hub.hf_hub_download(**wanted))
    except Exception as error:  # of the network, of the hub, or of the cache's folder
        first = next(iter(str(error).splitlines()), "")
        reason = shorten(f"{type(error).__name__}: {first}")
        todo = "check the name and the network, or download the file and give its path"
        raise ConfigError(f"model.weights: {weights} could not be downloaded ({reason}); {todo}") from error
