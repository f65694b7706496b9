"""One run as its directory shows it: what is known of it, its state, and its rounds so far, in bounded size."""

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from raysim.launch.stop_file import STOP
from raysim.live.feed import Feed
from raysim.live.growing_file import GrowingFile, describe_files
from raysim.live.lock_watch import LockWatch
from raysim.live.round_line import parse_round
from raysim.live.run_course import Evaluations, Requests, Rounds
from raysim.live.run_files import CLIENTS, CONFIG, ROUNDS, RunFacts, read_facts, read_summary, shorten_summary
from raysim.live.settings import Settings
from raysim.live.trips import Trips
from raysim.system.errors import ConfigError, single_line

State = Literal["waiting", "running", "done", "interrupted", "failed", "killed", "deleted", "unreadable"]

ENDED = ("done", "interrupted", "failed")
IN_HEAD = ("name", "seed", "methods", "schedule", "tasks", "clients", "in_step", "metric", "dispatches", "memory")
IN_TABLE = ("label", "name", "seed", "methods", "rounds", "tasks", "metric")


class FollowedRun:
    """A run that is read while it is written. It may not exist yet, be resumed, or be deleted.

    Args:
        directory: the run's.
        label: its name on the page, such as its folder in a sweep.
        root: the folder that no link may lead out of: the sweep's, or by default the run's.

    Attributes:
        feeds: by name, what the page draws: rounds, evaluations, rows, trips, columns, requests,
            and head, which has one item.
        state: how the run is.
        more: whether there is more to read now.
    """

    def __init__(self, directory: Path, label: str, root: Path | None = None) -> None:
        self.directory = directory
        self._root = root or directory
        self.label = label
        self.state: State = "waiting"
        self.more = False
        self.feeds: dict[str, Feed] = {}
        self._facts: RunFacts | None = None
        self._evaluations: Evaluations | None = None
        self._trips: Trips | None = None
        self._rounds, self._requests = Rounds(), Requests()
        self._head = Feed()
        self._file = GrowingFile(directory / ROUNDS, self._root)
        self._lock = LockWatch(directory)
        self._existed = False
        self._trouble = ""  # what was wrong with the files
        self._first_files = [directory / CONFIG, directory / CLIENTS]
        self._begun_with = describe_files([])  # how the first files were
        self._read_files = [*self._first_files, directory / ROUNDS]
        self._files = describe_files(self._read_files)
        self._summary: Mapping[str, Any] | None = None
        self._summary_file = describe_files([])
        self._forget()
        self._head.put(0, self._describe())

    def refresh(self) -> None:
        """Read what is new, a few megabytes at a time."""
        there = os.path.isdir(self.directory)  # Path.is_dir raises an error without permission
        self._existed |= there
        self.more &= there  # of a file that was deleted in the middle of its reading, there is no more
        if there and not (self._trouble and self._files == describe_files(self._read_files)):
            self._files = describe_files(self._read_files)
            try:
                self._read()
                self._trouble = ""
            except (OSError, ValueError, ConfigError) as error:
                self._forget()
                self._trouble = single_line(getattr(error, "strerror", None) or str(error))
        if there and (described := describe_files([self.directory / "summary.json"])) != self._summary_file:
            self._summary_file, self._summary = described, read_summary(self.directory, self._root)
        self.state = self._find_state(there)
        if self._summary is not None and self._summary.get("stopped_by") and not self.more and self._evaluations:
            self._evaluations.stopped(self._rounds.last)
        self._head.put(0, self._describe())

    @property
    def settings(self) -> Settings:
        """All values of its config by key; none before it began."""
        return self._facts.settings if self._facts else {}

    def describe(self) -> Mapping[str, Any]:
        """Return what a table of runs says of it and rarely changes."""
        head = self._head.items[0]
        return {key: head.get(key) for key in IN_TABLE}

    def stand(self) -> list[Any]:
        """Return how it stands: `[state, round, {protocol: [mean so far, forgetting]}, seconds]`."""
        rounds = self._rounds.feed.items
        means = self._evaluations.means if self._evaluations else {}
        return [self.state, self._rounds.last, means, rounds[-1][6] if rounds else 0]

    def _read(self) -> None:
        self.more = False
        if not self._rounds.last:  # clients.json is written after config.yaml, and before the first round
            if not (self.directory / CONFIG).exists():
                return
            if (described := describe_files(self._first_files)) != self._begun_with:
                self._begin(read_facts(self.directory, self._root))
                self._begun_with = described
        growth = self._file.read()
        if growth.restarted:
            self._forget()
            self.more = True
            return
        assert self._evaluations is not None
        assert self._trips is not None
        for line in growth.lines:
            found = parse_round(line, self._rounds.last + 1)
            self._rounds.add(found)
            self._requests.add(found)
            self._evaluations.add(found)
            self._trips.add(found)
        self._trips.show()
        self.more = growth.more
        if not self.more:
            self._lock.note_reading(bool(growth.lines))

    def _begin(self, facts: RunFacts) -> None:
        better = bool(facts.metric["higher_is_better"])
        self._facts = facts
        self._evaluations = Evaluations(facts.tasks, facts.in_step, better, facts.ends)
        self._trips = Trips(facts.shown_clients if facts.dispatches else (), facts.at_tasks)
        self._name_feeds()

    def _forget(self) -> None:
        """Forget all rounds; the next reading begins anew."""
        self._file.forget()
        self._facts = self._evaluations = self._trips = None
        self._begun_with = describe_files([])
        self._rounds, self._requests = Rounds(), Requests()
        self.more = False
        self._name_feeds()

    def _name_feeds(self) -> None:
        self.feeds = {"head": self._head, "rounds": self._rounds.feed, "requests": self._requests.feed}
        if self._evaluations and self._trips:
            self.feeds |= {"evaluations": self._evaluations.feed, "rows": self._evaluations.rows}
            self.feeds |= {"trips": self._trips.trips, "columns": self._trips.columns}

    def _find_state(self, there: bool) -> State:
        if not there:
            return "deleted" if self._existed else "waiting"
        if self._trouble:
            return "unreadable"
        if self._summary is not None:
            return self._summary["status"] if self._summary["status"] in ENDED else "unreadable"
        if self._facts is None:
            return "waiting"
        rounds = self._rounds.feed.items
        per_round = rounds[-1][6] / rounds[-1][0] if rounds else 0.0
        return "running" if self._lock.at_work(per_round) else "killed"

    def _describe(self) -> Mapping[str, Any]:
        """Return what the page shows in words and numbers, and how it draws the rest."""
        known: dict[str, Any] = {"label": self.label, "state": self.state, "trouble": self._trouble}
        known |= {
            "stopping": os.path.lexists(self.directory / STOP),
            "directory": single_line(quote(str(self.directory))),
        }
        known |= {"read": round(self._file.offset / max(1, self._file.size), 2) if self.more else 1}
        known |= {"round": self._rounds.last, "width": self._rounds.width, "summary": shorten_summary(self._summary)}
        if (facts := self._facts) and self._evaluations and self._trips:
            known |= {key: getattr(facts, key) for key in IN_HEAD}
            known |= {
                "rounds": facts.ends[-1] if facts.ends else None,
                "rows_known": facts.ends is not None,
                "evaluations_every": self._evaluations.every,
                "shown_tasks": self._evaluations.shown,
                "shown_clients": len(facts.shown_clients),
                "clients_per_lane": self._trips.clients_per_lane,
                "first_clients": [*facts.shown_clients[:: self._trips.clients_per_lane]] if facts.dispatches else [],
                "one_by_one": self._trips.one_by_one,
                "column_width": self._trips.column_width,
            }
        return known
