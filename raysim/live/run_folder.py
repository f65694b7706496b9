"""The runs of a folder: those that a sweep lists, or all at any depth below it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic

from raysim.live.growing_file import describe_files
from raysim.live.run_files import CLIENTS, CONFIG, ROUNDS, SWEEP_FILE, read_sweep
from raysim.system.errors import ConfigError

ALLOWED = "allowed: the directory of a run or of a sweep, or one with runs below it"
DEEPEST = 8  # folders below the given one
MOST_FOLDERS = 20_000  # looked at in one search: the page must stay light on a large disk
SHARE = 50  # a search is followed by a pause of this many times its duration


class RunFolder:
    """A folder with runs, which may become more.

    Args:
        path: a sweep's directory, or any folder with runs below it.

    Attributes:
        sweep: whether the folder is a sweep's.

    Raises:
        ConfigError: there is no run in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sweep = (path / SWEEP_FILE).is_file()
        self._described: list[tuple[int, int, int] | None] = []
        self._next_search = 0.0
        if self.sweep:
            read_sweep(path)
        elif not any(_walk(path)):
            raise ConfigError(f"{path}: found no {CONFIG} and no {SWEEP_FILE}, and no run below it; {ALLOWED}")

    def list_runs(self, at_least: float) -> Sequence[str]:
        """Return the runs' folders, relative to this one; none if nothing changed since the last call.

        Args:
            at_least: seconds between two searches of a folder that is no sweep's.
        """
        if self.sweep:
            return self._read_changed_sweep()
        began = monotonic()
        if began < self._next_search:
            return ()
        found = [str(run.relative_to(self.path)) for run in _walk(self.path)]
        ended = monotonic()
        self._next_search = ended + max(at_least, SHARE * (ended - began))
        return found

    def _read_changed_sweep(self) -> Sequence[str]:
        if (described := describe_files([self.path / SWEEP_FILE])) == self._described:
            return ()
        try:
            folders = read_sweep(self.path)
        except ConfigError:
            return ()  # it was deleted; its runs say so
        self._described = described
        inside = self.path.resolve()
        return [folder for folder in folders if (self.path / folder).resolve().is_relative_to(inside)]


def check_run(path: Path) -> None:
    """Raise ConfigError if there is no directory."""
    if not path.is_dir():
        found = "this is a file" if path.exists() else "there is no such directory"
        raise ConfigError(f"{path}: {found}, {ALLOWED}")


def _walk(path: Path) -> Iterator[Path]:
    """Yield the runs below a folder, by name, without following a link."""
    looked_at = 0
    left = [(path, 0)]
    while left and looked_at < MOST_FOLDERS:
        folder, depth = left.pop()
        looked_at += 1
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue  # it was deleted, or may not be read
        files = {entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)}
        if CONFIG in files and files & {CLIENTS, ROUNDS}:
            yield folder
        elif depth < DEEPEST:
            inner = [entry for entry in entries if entry.name not in files and not entry.name.startswith(".")]
            left += [(folder / entry.name, depth + 1) for entry in reversed(inner)]
