"""What a page shows: one run, or the runs of a folder."""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from raysim.launch.stop_file import request_stop
from raysim.live.feed import Feed, Seen
from raysim.live.following import FollowedRun
from raysim.live.run_files import CONFIG, SWEEP_FILE
from raysim.live.run_folder import RunFolder, check_run
from raysim.live.settings import MOST_KEYS, Settings, find_differing

SECONDS = 0.5  # between two readings
SHARE = 10  # a reading that takes long is followed by a pause of this many times its duration
SEARCHED_EVERY = 10  # readings, at least, between two searches for new runs
MOST_RUNS = 500
MOST_OVERLAID = 12  # runs in one chart
ORDER = ("running", "unreadable", "failed", "interrupted", "killed", "done", "deleted", "waiting")


class Watched:
    """A run, or the runs of a folder, read for any number of pages. Its methods may be called from any thread.

    Args:
        path: the directory of a run or of a sweep, or a folder with runs below it.
        expected: whether a run is about to begin there.

    Attributes:
        folder: what has the runs; None if it is one run.

    Raises:
        ConfigError: it is none of them.
    """

    def __init__(self, path: Path, expected: bool = False) -> None:
        self.path = path
        self.folder: RunFolder | None = None
        self.runs: list[FollowedRun] = []
        self._folder, self._runs, self._states = Feed(), Feed(), Feed()
        self._lock = threading.Lock()
        self._read: dict[int, float] = {}  # when each run was read
        self._took = 0.0  # seconds of the longest of the last readings
        self._compared: list[int] = []
        self._kept: Sequence[Settings] = ()  # so that no other settings get their ids
        self._differing: list[str] = []
        if not expected:
            check_run(path)
        if (path / SWEEP_FILE).is_file() or not (expected or (path / CONFIG).is_file()):
            self.folder = RunFolder(path)
        else:
            self.runs.append(FollowedRun(path, path.name))

    def message(
        self, run: int | None, seen: dict[str, Seen], at_once: bool = False, overlaid: Sequence[int] = ()
    ) -> tuple[dict[str, Any], bool]:
        """Return what a page lacks of the runs, and whether there is more to read.

        Args:
            run: the number of the run that is shown in full.
            seen: what the page has, which is updated.
            at_once: whether everything is read again, however short ago it was read.
            overlaid: the numbers of the runs that are laid over each other in one chart.
        """
        with self._lock:
            if at_once:
                self._read.clear()
            more = self._refresh(run)
            chosen = self.runs[run] if run is not None and run < len(self.runs) else None
            found = self._lacking({**self._of_folder(), **(chosen.feeds if chosen else {})}, seen)
            lines = {
                f"over/{number}": feed
                for number in overlaid[:MOST_OVERLAID]
                if number < len(self.runs) and (feed := self.runs[number].feeds.get("evaluations"))
            }
            return found | {name: _thin(lacking) for name, lacking in self._lacking(lines, seen).items()}, more

    def _of_folder(self) -> Mapping[str, Feed]:
        return {"folder": self._folder, "runs": self._runs, "states": self._states} if self.folder else {}

    def _lacking(self, feeds: Mapping[str, Feed], seen: dict[str, Seen]) -> dict[str, Any]:
        found = {}
        for name, feed in feeds.items():
            lacking, seen[name] = feed.since(seen.get(name, Seen()))
            if lacking is not None:
                found[name] = lacking
        return found

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
        if self.folder:
            self._find_runs(self.folder)
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
        if self.folder:
            self._show_runs()
        return len(self._read) < len(self.runs) or any(one.more for one in self.runs)

    def _find_runs(self, folder: RunFolder) -> None:
        """Add the runs that came since the last search."""
        known = {run.label for run in self.runs}
        for label in folder.list_runs(SEARCHED_EVERY * SECONDS):
            if label not in known:
                self.runs.append(FollowedRun(self.path / label, label, self.path))

    def _show_runs(self) -> None:
        """Show the runs in a table, of very many those that run first."""
        chosen = [*range(len(self.runs))]
        if len(self.runs) > MOST_RUNS:
            chosen = sorted(sorted(chosen, key=lambda number: ORDER.index(self.runs[number].state))[:MOST_RUNS])
        shown = [self.runs[number] for number in chosen]
        differing = self._compare([run.settings for run in shown if run.settings])
        for feed in (self._runs, self._states):
            if len(chosen) < len(feed.items):
                feed.replace([])
        for place, (number, run) in enumerate(zip(chosen, shown, strict=True)):
            settings = {key: run.settings[key] for key in differing[:MOST_KEYS] if key in run.settings}
            self._runs.put(place, {"run": number, **run.describe(), "settings": settings})
            self._states.put(place, [number, *run.stand()])
        known = {"name": self.path.name, "of": len(self.runs), "keys": differing[:MOST_KEYS]}
        if self.folder:
            known |= {"sweep": self.folder.sweep, "cut_after": self.folder.cut_after}
        self._folder.put(0, known)

    def _compare(self, settings: Sequence[Settings]) -> list[str]:
        """Return the keys in which runs differ, compared anew only if a run began."""
        which = [id(one) for one in settings]
        if which != self._compared:
            self._compared, self._kept, self._differing = which, settings, find_differing(settings)
        return self._differing


def _thin(lacking: dict[str, Any]) -> dict[str, Any]:
    """Return evaluations as one line of a chart with several runs: `[round, {protocol: [mean, forgetting]}]`."""
    items = [
        [place, [item[0], {name: _short(pair) for name, pair in item[3].items()}]] for place, item in lacking["items"]
    ]
    return {**lacking, "items": items}


def _short(pair: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 4) for value in pair]
