"""A sweep from its file to its directory: check all runs, carry out those that are not done, record each, sum up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from raysim.engine.events import Finished
from raysim.estimate import placement
from raysim.records.recorder import Recorder
from raysim.records.result import Result
from raysim.sweeps.agenda import Agenda, prepare
from raysim.sweeps.display import Display, Silence
from raysim.sweeps.grid import Cell
from raysim.sweeps.local import LocalRuns
from raysim.sweeps.outcome import Outcome, Status
from raysim.sweeps.register import register
from raysim.sweeps.room import runs_at_once
from raysim.sweeps.telling import Begun, Failed, Runs, Told
from raysim.sweeps.whole import Kept
from raysim.system.capacity import Capacity, this_machine
from raysim.system.errors import ConfigError, RunError
from raysim.system.footprint import Footprint
from raysim.system.interrupts import delay_interrupts, interruptible
from raysim.system.lock import lock_directory
from raysim.system.seeding import torch_untouched


def sweep(
    config: str | Path | Mapping[str, object],
    overrides: Sequence[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    local: bool = False,
    *,
    jobs: int | None = None,
    display: Display | None = None,
) -> list[Result]:
    """Run a grid of runs, and return what they came to, in the order of the grid.

    Runs that are done already are not run again. Every run is carried out in one process, several at a time on Ray; its
    bits are those of `raysim.run`. After an interrupt, runs that were not started are missing from the list.

    Args:
        config: a sweep's YAML file, or a mapping like it.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values; they hold for all runs.
        out: the sweep's directory; by default runs/NAME.
        local: run one after the other in this process, without Ray.
        jobs: the most runs at a time; by default as many as there are CPUs.
        display: shows what happens; by default nothing does.

    Raises:
        ConfigError: the file, a run's config or the resources are wrong, or the directory holds something else; nothing
            was started.
        RunError: runs failed; all others were carried out.
    """
    agenda = prepare(config, overrides, out)
    outcomes = carry_out(agenda, local, jobs, display or Silence())
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        first = f"{failed[0].directory}: {failed[0].problem}"
        raise RunError(f"{len(failed)} of {len(outcomes)} runs failed; the first was {first}")
    return [outcome.result for outcome in outcomes if outcome.result is not None]


def carry_out(agenda: Agenda, local: bool, jobs: int | None, display: Display) -> list[Outcome]:
    """Carry out the runs that are not done, and return what has become of all, in the order of the grid.

    Raises:
        ConfigError: the resources are not there, or nothing can be written; nothing was started.
    """
    if local and jobs is not None:
        raise ConfigError(f"--jobs: found {jobs} beside --local, which is one run at a time; allowed: one of the two")
    records = _Records(agenda.out, display)
    with torch_untouched(), _runs(agenda.to_do, local, jobs, records.kept) as runs, lock_directory(agenda.out, "sweep"):
        register(agenda.out, agenda.name, [cell for cell, _ in agenda.runs])
        with interruptible(runs.stop, display.say):
            records.keep(runs)
    before = {cell.folder: agenda.outcome(cell, standing) for cell, standing in agenda.runs}
    return [records.outcomes.get(folder, outcome) for folder, outcome in before.items()]


class _Records:
    """Records the runs of a sweep that are under way, each in its directory."""

    def __init__(self, out: Path, display: Display) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self._out = out
        self._display = display
        self._under_way: dict[str, tuple[Cell, Recorder, Footprint]] = {}
        self._hindered: dict[str, ConfigError | RunError] = {}

    def keep(self, runs: Runs) -> None:
        """Record what the runs tell, until the last has ended; where that breaks off, end those under way."""
        try:
            with closing(runs.told()) as told:
                for each in told:
                    self._take(each)
        except BaseException as error:
            for cell, _, _ in [*self._under_way.values()]:
                with suppress(RunError):  # a disk that is still full
                    self._end(cell, "interrupted" if isinstance(error, KeyboardInterrupt) else "failed", str(error))
            raise

    def kept(self, cell: Cell) -> Kept | None:
        """Return what a run that has begun goes on from, or None for its start.

        Raises:
            RunError: its checkpoint is damaged.
            ConfigError: another process is at work in its directory.
        """
        if cell.folder in self._hindered:
            raise self._hindered[cell.folder]
        saved = self._under_way[cell.folder][1].saved
        return None if saved is None else (saved.server, dict(saved.clients))

    def _take(self, told: Told) -> None:
        cell = told.cell
        if isinstance(told, Begun):
            try:
                taken = Footprint()  # as the process that carries the run out tells it
                course = Recorder(cell.config, told.federation, self._out / cell.folder, told.began, taken)
            except (ConfigError, RunError) as error:
                self._hindered[cell.folder] = error
            else:
                self._under_way[cell.folder] = (cell, course, taken)
            self._display.begin(cell)
        elif isinstance(told, Failed):
            self._end(cell, "failed", str(told.error))
        else:
            _, course, taken = self._under_way[cell.folder]
            taken.reach(told.peak_memory_bytes)
            course.take(told.event)
            self._display.take(cell, told.event)
            if isinstance(told.event, Finished):
                self._end(cell, course.status)

    def _end(self, cell: Cell, status: Status, problem: str = "") -> None:
        ended = None
        if cell.folder in self._under_way:  # one that had no data has no directory
            with delay_interrupts(), self._under_way.pop(cell.folder)[1] as course:
                ended = course.end(status)
        outcome = Outcome(cell, self._out / cell.folder, status, ended, problem)
        self.outcomes[cell.folder] = outcome
        self._display.end(outcome)


@contextmanager
def _runs(to_do: Sequence[Cell], local: bool, jobs: int | None, kept: Callable[[Cell], Kept | None]) -> Iterator[Runs]:
    """Give what carries the runs out: this process, or a cluster."""
    addresses = {cell.config.resources.address for cell in to_do}
    if len(addresses) > 1:
        raise ConfigError("resources.address: found one for some runs and another for others, allowed: one for all")
    address = next(iter(addresses), None)
    machine = this_machine()
    if local or address is None:
        _check(to_do, machine, jobs)
    if local or not to_do:
        yield LocalRuns(to_do, kept)
        return
    from raysim.actors import cluster
    from raysim.actors.runs import RayRuns

    with cluster.cluster_of([cell.config for cell in to_do], machine) as there:
        yield RayRuns(to_do, _check(to_do, there, jobs), kept)


def _check(to_do: Sequence[Cell], capacity: Capacity, jobs: int | None) -> int:
    """Return how many runs there is room for at a time. Raises ConfigError where there is none for one of them."""
    for cell in to_do:
        placement.check_gpus(cell.config, capacity)
        placement.check_custom(cell.config, capacity)
    share = max((cell.config.resources.gpus_per_actor for cell in to_do), default=0.0)
    return runs_at_once(capacity, share, jobs)
