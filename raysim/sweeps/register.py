"""sweep.yaml in a sweep's directory: what each run's folder is called on every axis, for reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from raysim.config.document import Document
from raysim.config.error_text import show
from raysim.config.yaml_reading import read_yaml
from raysim.config.yaml_writing import to_yaml
from raysim.sweeps.grid import FILE, Cell
from raysim.system.errors import ConfigError
from raysim.system.files import put

Labels = Mapping[str, str]
"""By axis: the name of the run's value."""


def labels(out: str | Path) -> dict[str, Labels]:
    """Return the names on every axis of each run of a sweep, by its folder.

    Raises:
        ConfigError: the directory has no sweep.yaml, or not one that raysim wrote.
    """
    document = read_yaml(Path(out) / FILE)
    runs = document.values.get("runs")
    if not isinstance(runs, dict):
        raise _not_ours(document, ("runs",), runs)
    for folder, names in runs.items():
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise _not_ours(document, ("runs", folder), names)
    return runs


def register(out: Path, name: str, cells: Sequence[Cell]) -> None:
    """Write the sweep's runs into its sweep.yaml; others that it has stay as long as they have a directory.

    Raises:
        ConfigError: there is a sweep.yaml that raysim did not write, or nothing can be written there.
    """
    here = {cell.folder: dict(cell.labels) for cell in cells}
    before = labels(out) if (out / FILE).exists() else {}
    kept = {folder: names for folder, names in before.items() if folder not in here and (out / folder).is_dir()}
    with _writable(out):
        put(out / FILE, to_yaml({"name": name, "runs": {**here, **kept}}))


@contextmanager
def _writable(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(f"--out {out}: it cannot be written to: {error.strerror or error}") from error


def _not_ours(document: Document, keys: tuple[str, ...], found: object) -> ConfigError:
    words = f"found {show(found)}, allowed: a file that a sweep wrote; give another --out"
    return ConfigError(document.locate(keys, words))
