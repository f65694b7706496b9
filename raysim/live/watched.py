"""What a page shows: one run, or the runs of a sweep."""

import math
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysim.launch.stop_file import request_stop
from raysim.live.feed import Feed, Seen
from raysim.live.following import FollowedRun
from raysim.live.growing_file import describe_files
from raysim.live.run_files import SWEEP_FILE, read_sweep
from raysim.system.errors import ConfigError

SECONDS = 0.5  # between two readings
SHARE = 10  # a reading that takes long is followed by a pause of this many times its duration
MOST_CARDS = 100
ALLOWED = "allowed: the directory of a run or of a sweep"
ORDER = ("running", "unreadable", "failed", "interrupted", "killed", "done", "deleted", "waiting")


class Watched:
    """A run, or a sweep's runs, read for any number of pages. Its methods may be called from any thread.

    Args:
        path: the directory of a run or of a sweep.
        expected: whether a run is about to begin there.

    Raises:
        ConfigError: it is neither.
    """

    def __init__(self, path: Path, expected: bool = False) -> None:
        self.path = path
        self.sweep = (path / SWEEP_FILE).is_file()
        self.runs: list[FollowedRun] = []
        self._cards = Feed()
        self._lock = threading.Lock()
        self._read: dict[int, float] = {}  # when each run was read
        self._took = 0.0  # seconds of the longest of the last readings
        self._sweep_file: list[Any] = []
        if self.sweep:
            read_sweep(path)
        elif not expected:
            _check_run(path)
        if not self.sweep:
            self.runs.append(FollowedRun(path, path.name))

    def message(self, run: int | None, seen: dict[str, Seen], at_once: bool = False) -> tuple[dict[str, Any], bool]:
        """Return what a page lacks of the cards and of a run, and whether there is more to read.

        Args:
            run: the number of the run.
            seen: what the page has, which is updated.
            at_once: whether everything is read again, however short ago it was read.
        """
        with self._lock:
            if at_once:
                self._read.clear()
            more = self._refresh(run)
            chosen = self.runs[run] if run is not None and run < len(self.runs) else None
            feeds: Mapping[str, Feed] = {"cards": self._cards, **(chosen.feeds if chosen else {})}
            found = {}
            for name, feed in feeds.items():
                lacking, seen[name] = feed.since(seen.get(name, Seen()))
                if lacking is not None:
                    found[name] = lacking
            return found, more

    def request_stop(self, run: int) -> str | None:
        """Ask a run to end after its round; return why that is not possible, or None."""
        with self._lock:
            if not 0 <= run < len(self.runs):
                return "there is no such run"
            chosen = self.runs[run]
            chosen.refresh()
            if chosen.state != "running":
                return f"the run is not running: {chosen.state}"
            try:
                request_stop(chosen.directory)
            except OSError as error:
                return f"{chosen.directory}: the file stop cannot be written: {error.strerror}"
            return None

    def _refresh(self, run: int | None) -> bool:
        """Read what is due, the chosen run first, and return whether there is more."""
        if self.sweep:
            self._find_runs()
        began = time.monotonic()
        pause = max(SECONDS, SHARE * self._took)
        due = [
            number
            for number, one in enumerate(self.runs)
            if one.more or began - self._read.get(number, -math.inf) >= 0.9 * pause
        ]
        for number in sorted(due, key=lambda number: (number != run, self._read.get(number, -math.inf))):
            self.runs[number].refresh()
            self._read[number] = now = time.monotonic()
            if now - began > SECONDS:
                break
        self._took = max(time.monotonic() - began, 0.5 * self._took) if due else self._took
        if self.sweep:
            self._show_cards()
        return len(self._read) < len(self.runs) or any(one.more for one in self.runs)

    def _find_runs(self) -> None:
        """Add the runs that the sweep has listed since the last reading."""
        if (described := describe_files([self.path / SWEEP_FILE])) == self._sweep_file:
            return
        try:
            folders = read_sweep(self.path)
        except ConfigError:
            return  # it was deleted; its runs say so
        self._sweep_file = described
        known = {run.label for run in self.runs}
        for folder in folders:
            below = self.path / folder
            if folder not in known and below.resolve().is_relative_to(self.path.resolve()):
                self.runs.append(FollowedRun(below, folder, self.path))

    def _show_cards(self) -> None:
        """Show the runs in short, of very many those that run first."""
        chosen = [*range(len(self.runs))]
        if len(self.runs) > MOST_CARDS:
            chosen = sorted(sorted(chosen, key=lambda number: ORDER.index(self.runs[number].state))[:MOST_CARDS])
        cards = [{"run": number, "of": len(self.runs), **self.runs[number].card()} for number in chosen]
        if len(cards) < len(self._cards.items):
            self._cards.replace([])
        for place, card in enumerate(cards):
            self._cards.put(place, card)


def _check_run(path: Path) -> None:
    if not path.is_dir():
        found = "this is a file" if path.exists() else "there is no such directory"
        raise ConfigError(f"{path}: {found}, {ALLOWED}")
    if not (path / "config.yaml").is_file():
        raise ConfigError(f"{path}: found no config.yaml and no {SWEEP_FILE}, {ALLOWED}")
