"""The runs of a folder: those that a sweep lists, or all at any depth below it."""

import os
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path
from time import monotonic

from raysim.live.growing_file import describe_files
from raysim.live.run_files import CLIENTS, CONFIG, ROUNDS, SWEEP_FILE, read_sweep
from raysim.system.errors import ConfigError

ALLOWED = "allowed: the directory of a run or of a sweep, or one with runs below it"
DEEPEST = 8  # folders below the given one
MOST_FOLDERS = 20_000  # looked at in one search: the page must stay light on a large disk
WIDE = 1000  # folders within one folder; more of them come after all others, since a data set has very many
SHARE = 50  # a search is followed by a pause of this many times its duration


class RunFolder:
    """A folder with runs, which may become more.

    Args:
        path: a sweep's directory, or any folder with runs below it.

    Attributes:
        sweep: whether the folder is a sweep's.
        cut_after: the number of folders after which the last search stopped; None if it looked at all.

    Raises:
        ConfigError: there is no run in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sweep = (path / SWEEP_FILE).is_file()
        self.cut_after: int | None = None
        self._described: list[tuple[int, int, int] | None] = []
        self._next_search = 0.0
        if self.sweep:
            read_sweep(path)
        elif not any(self._walk()):
            found = f"{path}: found no {CONFIG} and no {SWEEP_FILE}, and no run below it"
            if self.cut_after is not None:
                found += f"; looked at the first {self.cut_after:,} folders, give one nearer to the runs"
            raise ConfigError(f"{found}; {ALLOWED}")

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
        found = [str(run.relative_to(self.path)) for run in sorted(self._walk())]
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

    def _walk(self) -> Iterator[Path]:
        """Yield the runs below, those near first, without following a link."""
        looked_at = 0
        left = [(0, 0, 0, self.path)]  # how far back it is in wide folders, depth, place in its folder
        while left and looked_at < MOST_FOLDERS:
            back, depth, _, folder = heappop(left)
            looked_at += 1
            try:
                entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
            except OSError:
                continue  # it was deleted, or may not be read
            files = {entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)}
            if CONFIG in files and files & {CLIENTS, ROUNDS}:
                yield folder
            elif depth < DEEPEST:
                inner = [entry.name for entry in entries if entry.name not in files and not entry.name.startswith(".")]
                for place, name in enumerate(inner):
                    heappush(left, (back + place // WIDE, depth + 1, place, folder / name))
        self.cut_after = looked_at if left else None


def check_run(path: Path) -> None:
    """Raise ConfigError if there is no directory."""
    if not path.is_dir():
        found = "this is a file" if path.exists() else "there is no such directory"
        raise ConfigError(f"{path}: {found}, {ALLOWED}")
