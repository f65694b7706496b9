"""What a person sees of a sweep: a live table of its runs on a terminal, a line per ended run elsewhere, or nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rich.box import SIMPLE
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from raysim.config.error_text import show
from raysim.engine.events import Event, RoundDone, Started
from raysim.launch.display import accuracy_so_far, say
from raysim.sweeps.agenda import Agenda
from raysim.sweeps.grid import Cell
from raysim.sweeps.outcome import Outcome

AROUND_THE_ROWS = 6  # lines of the terminal
STATES = ("failed", "interrupted", "running", "done", "waiting")  # what is shown first where there is no room for all


class Display(Protocol):
    """Shows a sweep."""

    def begin(self, cell: Cell) -> None:
        """Show that a run starts."""

    def take(self, cell: Cell, event: Event) -> None:
        """Show one of its events."""

    def end(self, outcome: Outcome) -> None:
        """Show how it ended."""

    def say(self, text: str) -> None:
        """Show a line."""


class Silence:
    """Shows nothing."""

    def begin(self, cell: Cell) -> None:
        """Show nothing."""

    def take(self, cell: Cell, event: Event) -> None:
        """Show nothing."""

    def end(self, outcome: Outcome) -> None:
        """Show nothing."""

    def say(self, text: str) -> None:
        """Show nothing."""


class Lines(Silence):
    """A line per run that has ended, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def end(self, outcome: Outcome) -> None:
        """Write how a run ended."""
        self.say(ended(outcome))

    def say(self, text: str) -> None:
        """Write a line."""
        say(self._console, text)


@dataclass
class _Row:
    state: str
    where: str = ""
    accuracy: str = ""
    rounds: int = 0


class Overview:
    """A live table: every run with its state, its task and round, and its accuracy."""

    def __init__(self, console: Console, agenda: Agenda) -> None:
        self._console = console
        self._rows: dict[str, _Row] = {}
        for cell, standing in agenda.runs:
            if standing == "done":
                self.end(agenda.outcome(cell, standing))
            else:
                self._rows[cell.folder] = _Row("waiting")

    def begin(self, cell: Cell) -> None:
        """Show that a run starts."""
        self._rows[cell.folder] = _Row("running", "starting")

    def take(self, cell: Cell, event: Event) -> None:
        """Show where a run is."""
        row = self._rows[cell.folder]
        if isinstance(event, Started):
            row.rounds = event.rounds
        elif isinstance(event, RoundDone):
            row.where = f"task {event.tasks[-1]}/{cell.config.scenario.tasks}, round {event.round}/{row.rounds}"
            if event.evaluation:
                row.accuracy = accuracy_so_far(event)

    def end(self, outcome: Outcome) -> None:
        """Show how a run ended."""
        seconds = f"{outcome.result.seconds:.0f} s" if outcome.result else ""
        self._rows[outcome.cell.folder] = _Row(outcome.status, seconds, outcome.problem or outcome.accuracy)

    def say(self, text: str) -> None:
        """Write a line above the table."""
        say(self._console, text)

    def table(self) -> Table:
        """Return the table as it is now; where the terminal is too small, without what matters least."""
        rows = list(self._rows.items())
        room = max(1, self._console.height - AROUND_THE_ROWS)
        chosen = sorted(range(len(rows)), key=lambda number: STATES.index(rows[number][1].state))[:room]
        table = Table(box=SIMPLE, padding=(0, 1, 0, 0), caption=_counts([row.state for _, row in rows]))
        for heading in ("run", "state", "where", "accuracy"):
            table.add_column(heading, no_wrap=heading != "accuracy")  # the last column is cut where room is scarce
        for folder, row in (rows[number] for number in sorted(chosen)):
            texts = (folder, row.state, row.where, row.accuracy)
            table.add_row(*(Text(text, no_wrap=True, overflow="ellipsis") for text in texts))
        return table


@contextmanager
def display(agenda: Agenda, quiet: bool) -> Iterator[Display]:
    """Choose how to show a sweep, by where the output goes."""
    console = Console(file=sys.stdout)
    if quiet:
        yield Silence()
    elif console.is_terminal:
        overview = Overview(console, agenda)
        with Live(console=console, get_renderable=overview.table, refresh_per_second=4):
            yield overview
    else:
        yield Lines(console)


def ended(outcome: Outcome) -> str:
    """Say how a run ended, in one line."""
    seconds = f", {outcome.result.seconds:.0f} s" if outcome.result else ""
    said = ": ".join(text for text in (str(outcome.directory), outcome.problem or outcome.accuracy) if text)
    return f"{outcome.status}: {said}{'' if outcome.problem else seconds}"


def listed(agenda: Agenda) -> list[str]:
    """Return a line for each run: its folder, how far it has come, and what it sets."""
    width = max(len(cell.folder) for cell, _ in agenda.runs)
    return [
        f"{cell.folder:<{width}}  {standing:<11}  {'  '.join(f'{key}={show(v)}' for key, v in cell.settings.items())}"
        for cell, standing in agenda.runs
    ]


def summed_up(outcomes: Sequence[Outcome], agenda: Agenda) -> str:
    """Say in one line what has become of a sweep."""
    before = sum(standing == "done" for _, standing in agenda.runs)
    earlier = f" ({before} before)" if before else ""
    return _counts([outcome.status for outcome in outcomes]).replace(" done", f" done{earlier}")


def _counts(states: Sequence[str]) -> str:
    counts = {state: states.count(state) for state in dict.fromkeys((*STATES, *states))}
    return f"{len(states)} runs: " + ", ".join(f"{count} {state}" for state, count in counts.items() if count)
