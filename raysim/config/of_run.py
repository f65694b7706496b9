"""The config of a run directory, which another version of raysim may have written."""

import json
from contextlib import suppress
from pathlib import Path

from raysim.config import load
from raysim.config.schema import Config
from raysim.system.errors import ConfigError
from raysim.system.version import VERSION


def load_of_run(directory: Path) -> Config:
    """Return the config of a run directory. Raises ConfigError, with the version that wrote it if that is another."""
    try:
        return load(directory / "config.yaml")
    except ConfigError as error:
        written = _find_version(directory)
        if written is None or written == VERSION:
            raise
        found = str(error).removeprefix(f"{error.place}: ")
        words = f"{found}; raysim {written:.40} wrote this run, and this is raysim {VERSION}: install that version"
        raise ConfigError(words, error.place) from error


def _find_version(directory: Path) -> str | None:
    """Return the version in summary.json, or that of the newest checkpoint; None if neither can be read."""
    manifests = sorted(directory.glob("checkpoints/*/manifest.json"), reverse=True)
    for file in (directory / "summary.json", *manifests):
        with suppress(OSError, ValueError, LookupError, TypeError):
            content = json.loads(file.read_text(encoding="utf-8"))
            return str(content["versions"]["raysim"] if file.name == "summary.json" else content["raysim"])
    return None
