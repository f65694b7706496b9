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
        other = describe_other_version(Path(file).parent) if file and of_file else ""
        if not other:
            raise
        found = str(error).removeprefix(f"{error.place}: ")
        raise ConfigError(f"{found}; {other}", error.place) from error


def describe_other_version(directory: Path) -> str:
    """Return which other version wrote a run, and what to do, in one clause; empty if it is this one or not known."""
    written = _find_version(directory)
    if written is None or written == VERSION:
        return ""
    return f"raysim {written:.40} wrote this run, and this is raysim {VERSION}: install that version"


def _find_version(directory: Path) -> str | None:
    """Return the version in summary.json, or that of the newest checkpoint; None if neither can be read."""
    manifests = sorted(directory.glob("checkpoints/*/manifest.json"), reverse=True)
    for file in (directory / "summary.json", *manifests):
        with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
            content = json.loads(file.read_text(encoding="utf-8"))
            return str(content["versions"]["raysim"] if file.name == "summary.json" else content["raysim"])
    return None
