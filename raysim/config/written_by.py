"""Whether another version of raysim wrote a config, which an error then names."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from raysim.system.errors import ConfigError
from raysim.system.version import VERSION


@contextmanager
def naming_the_version(file: str | None) -> Iterator[None]:
    """Name in a ConfigError about a run's config.yaml the version that wrote the run, if that is another one."""
    try:
        yield
    except ConfigError as error:
        of_file = file is not None and Path(file).name == "config.yaml" and error.place.startswith(file)
        written = _find_version(Path(file).parent) if file and of_file else None
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
