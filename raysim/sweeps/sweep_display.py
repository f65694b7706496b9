"""Display of a sweep: a live table of its runs on a terminal, a line per ended run elsewhere, or nothing."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raysim.config.component_blocks import Model
from raysim.config.error_text import show
from raysim.config.lookup import names_for_actors
from raysim.engine.events import Event, RoundDone, Started
from raysim.launch.display import Display, RunDisplay, accuracy_so_far
from raysim.models.weight_sources import find_model_weights
from raysim.sweeps.cells import Cell
from raysim.sweeps.directory import RunOutcome, SweepPlan
from raysim.system.console import make_console
from raysim.system.custom_code import digest_custom_code
from raysim.system.errors import ConfigError
from raysim.system.pinned import digest_once
from raysim.system.progress import Silence, format_clock, keep_showing, progress_told

AROUND_THE_ROWS = 6  # lines of the terminal that are no rows
WIDE = 100  # columns of a terminal in which a run's task has room
UNFINISHED = ("running", "waiting")
# in order of precedence if there is no room for all
STATES = ("failed", "interrupted", "diverged", "running", "done", "waiting")


class SweepDisplay(Display):
    """Display of a sweep's events; this class shows none of them."""

    def begin(self, cell: Cell) -> None:
        """Show that a run starts."""

    def take(self, cell: Cell, event: Event) -> None:
        """Show an event of a run."""

    def end(self, outcome: RunOutcome) -> None:
        """Show how a run ended."""


class PythonDisplay(SweepDisplay):
    """Display of a call from Python: its warnings are Python's, and nothing else is shown."""


class CellDisplay(RunDisplay):
    """Display of one run of a sweep: in the sweep's display, and lines with the run's folder."""

    def __init__(self, sweep: SweepDisplay, cell: Cell) -> None:
        self._sweep, self._cell = sweep, cell

    def take(self, event: Event) -> None:
        """Show one event."""
        super().take(event)
        self._sweep.take(self._cell, event)

    def say(self, text: str) -> None:
        """Show a line."""
        self._sweep.say(f"{self._cell.folder}: {text}")


@dataclass
class _Row:
    state: str
    where: str = ""
    accuracy: str = ""
    rounds: int = 0
    done: float = 0.0  # the part of them
    task: str = ""  # stands before `where`, if there is room


class SweepTable(SweepDisplay):
    """A live table: every run with its state, its task and round, and its accuracy."""

    def __init__(self, console: Console, plan: SweepPlan) -> None:
        self.console: Console = console
        self._rows: dict[str, _Row] = {}
        self._step = ""  # what is done while no run computes
        self._began = time.monotonic()
        for outcome in plan.outcomes().values():
            if outcome.status == "not started":
                self._rows[outcome.cell.folder] = _Row("waiting")
            else:
                self._note_end(outcome)
        self._before = sum(row.done for row in self._rows.values())

    def tell(self, text: str, share: float | None = None) -> None:
        """Note what is done before runs start."""
        self._step = text

    def begin(self, cell: Cell) -> None:
        """Show that a run starts."""
        self._step = ""
        self._rows[cell.folder] = _Row("running", "starting")

    def take(self, cell: Cell, event: Event) -> None:
        """Show the progress of a run."""
        row = self._rows[cell.folder]
        if isinstance(event, Started):
            row.rounds = event.rounds
        elif isinstance(event, RoundDone):
            row.done = event.round / row.rounds
            row.task = f"task {event.tasks[-1]}/{cell.config.scenario.tasks}, "
            row.where = f"round {event.round}/{row.rounds}"
            if event.evaluation:
                row.accuracy = accuracy_so_far(event, cell.config)

    def end(self, outcome: RunOutcome) -> None:
        """Show how a run ended."""
        self._note_end(outcome)

    def _note_end(self, outcome: RunOutcome) -> None:
        seconds = f"{outcome.result.seconds:.0f} s" if outcome.result else ""
        self._rows[outcome.cell.folder] = _Row(outcome.status, seconds, outcome.problem or outcome.accuracy, done=1.0)

    def table(self) -> Table:
        """Return the present table; if the terminal is too small, without the least important rows."""
        rows = list(self._rows.items())
        room = max(1, self.console.height - AROUND_THE_ROWS)
        chosen = sorted(range(len(rows)), key=lambda number: STATES.index(rows[number][1].state))[:room]
        table = Table(box=SIMPLE, padding=(0, 1, 0, 0), caption=self.describe())
        for heading in ("run", "state", "where", "accuracy"):
            table.add_column(heading, no_wrap=heading != "accuracy")  # the last column is cut if space is short
        for folder, row in (rows[number] for number in sorted(chosen)):
            where = row.task * (self.console.width >= WIDE) + row.where
            texts = (folder, row.state, where, row.accuracy)
            table.add_row(*(Text(text, no_wrap=True, overflow="ellipsis") for text in texts))
        return table

    def describe(self) -> str:
        """Return how many runs are in which state, the time so far, and the time left if runs go on as they did."""
        elapsed, rows = time.monotonic() - self._began, self._rows.values()
        done = sum(row.done for row in rows)
        each = elapsed / (done - self._before) if done > self._before else None
        left = "-:--:--" if each is None else format_clock(each * (len(rows) - done))
        states = [row.state for row in rows]
        step = f"{self._step} · " if self._step else ""
        return f"{step}{_counts(states)} · {format_clock(elapsed)} · left {left}"


class SweepLines(SweepTable):
    """A line per run that has ended, for logs and pipes."""

    def __init__(self, console: Console, plan: SweepPlan) -> None:
        super().__init__(console, plan)
        self.silence = Silence(time.monotonic)

    def say(self, text: str) -> None:
        """Write a line."""
        super().say(text)
        self.silence.end()

    def end(self, outcome: RunOutcome) -> None:
        """Write how a run ended, and which one of how many it is."""
        super().end(outcome)
        ended = sum(row.state not in UNFINISHED for row in self._rows.values())
        self.say(f"run {ended} of {len(self._rows)} {describe_outcome(outcome)}")


@contextmanager
def open_sweep_display(plan: SweepPlan, quiet: bool) -> Iterator[SweepDisplay]:
    """Open the display of a sweep that suits the output: a terminal, a file or pipe, or nothing."""
    console = make_console(sys.stdout)
    if quiet:
        yield SweepDisplay()
        return
    if console.is_terminal:
        shown, silence = SweepTable(console, plan), Silence(time.monotonic)
    else:
        shown = SweepLines(console, plan)
        silence = shown.silence
    with keep_showing(console, shown.table, shown.describe, silence, stays=True), progress_told(shown.tell):
        yield shown


def describe_outcome(outcome: RunOutcome) -> str:
    """Return a line that says how a run ended."""
    seconds = f", {outcome.result.seconds:.0f} s" if outcome.result else ""
    said = ": ".join(text for text in (str(outcome.directory), outcome.problem or outcome.accuracy) if text)
    return f"{outcome.status}: {said}{'' if outcome.problem else seconds}"


def list_runs(plan: SweepPlan) -> list[str]:
    """Return a line for each run: its folder, its progress, and what it sets if that is decided."""
    width = max(len(cell.folder) for cell, _ in plan.runs)
    return [
        f"{cell.folder:<{width}}  {progress:<11}  {_show_settings(cell) if cell.decided else ''}".rstrip()
        for cell, progress in plan.runs
    ]


def list_ends(outcomes: Sequence[RunOutcome]) -> list[str]:
    """Return a line for each tuned row with a chosen value at an end of its list. A longer list may help there."""
    found = {cell.folder.rpartition("/seed-")[0] or cell.folder: cell for cell in (one.cell for one in outcomes)}
    return [f"at the end of its list: {row}: {cell.at_end}" for row, cell in found.items() if cell.at_end]


def list_other_inputs(outcomes: Sequence[RunOutcome]) -> list[str]:
    """Return a line for each run that was done before its custom code or its file of weights was changed."""
    lines = []
    for one in outcomes:
        before = {} if one.result is None else one.result.versions
        now = {
            "code": digest_custom_code(names_for_actors(one.cell.config)) if "code" in before else None,
            "weights": _digest_weights(one.cell.config.model) if "weights" in before else None,
        }
        if other := " and ".join(name for name in now if name in before and now[name] != before[name]):
            again = "remove it and repeat the sweep to run it again"
            lines.append(f"done with other {other} than now: {one.directory}; {again}")
    return lines


def _digest_weights(model: Model) -> str | None:
    """Return the digest of the file that `model.weights` names, or None if it is absent now."""
    with suppress(ConfigError, OSError):
        file = find_model_weights(model)
        return None if file is None else digest_once(file)
    return None


def _show_settings(cell: Cell) -> str:
    return "  ".join(f"{key}={show(value)}" for key, value in cell.settings.items())


def summarise_outcomes(outcomes: Sequence[RunOutcome], plan: SweepPlan) -> str:
    """Return a line that sums up a sweep's outcomes."""
    before = sum(progress == "done" for _, progress in plan.runs)
    earlier = f" ({before} before)" if before else ""
    return _counts([outcome.status for outcome in outcomes]).replace(" done", f" done{earlier}")


def _counts(states: Sequence[str]) -> str:
    counts = {state: states.count(state) for state in dict.fromkeys((*STATES, *states))}
    return f"{len(states)} run{'s' * (len(states) != 1)}: " + ", ".join(
        f"{count} {state}" for state, count in counts.items() if count
    )
