"""A sweep from its file to its directory: check all runs, carry out those not done, record each, return outcomes."""

import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from raysim.callbacks.callback_list import CallbackList, make_callbacks
from raysim.engine.events import STOPPABLE, Event, Finished
from raysim.engine.whole_run import IN_THIS_PROCESS, Executor, RunInProgress, load_federation
from raysim.estimate import placement
from raysim.estimate.concurrency import runs_at_once
from raysim.records.recorder import Recorder
from raysim.records.result import Result
from raysim.sweeps.cells import Cell
from raysim.sweeps.directory import RunEnd, RunOutcome, SweepPlan, plan_sweep, register_runs
from raysim.sweeps.display import SweepDisplay, open_sweep_display
from raysim.system.capacity import Capacity, this_machine
from raysim.system.errors import ConfigError, Lost, RunError
from raysim.system.files import lock_directory
from raysim.system.footprint import Footprint
from raysim.system.interrupts import delay_interrupts, interruptible
from raysim.system.output import divert_errors
from raysim.system.seeding import torch_untouched


def sweep(
    config: str | Path | Mapping[str, object],
    overrides: Sequence[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    local: bool = False,
    *,
    jobs: int | None = None,
    progress: bool = False,
    display: SweepDisplay | None = None,
) -> list[Result]:
    """Run a grid of runs, and return their results in the order of the grid.

    Runs that are already done are not run again. Every run is carried out in one process, several at a time on Ray; its
    bits are those of `raysim.run`. After an interrupt, runs that were not started are missing from the list.

    Args:
        config: a sweep's YAML file, or a mapping like it.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values; they hold for all runs.
        out: the sweep's directory; by default runs/NAME.
        local: run one after the other in this process, without Ray.
        jobs: the most runs at a time; by default as many as there are CPUs.
        progress: show a table on a terminal, and lines elsewhere, as the command line does.
        display: shows the sweep's events in a way of one's own.

    Raises:
        ConfigError: the file, a run's config or the resources are wrong, or the directory holds something else; nothing
            was started.
        RunError: runs failed; all others were carried out.
    """
    plan = plan_sweep(config, overrides, out)
    with open_sweep_display(plan, quiet=not progress) if display is None else nullcontext(display) as shown:
        outcomes = carry_out(plan, local, jobs, shown)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        first = f"{failed[0].directory}: {failed[0].problem}"
        raise RunError(f"{len(failed)} of {len(outcomes)} runs failed; the first was {first}")
    return [outcome.result for outcome in outcomes if outcome.result is not None]


def carry_out(plan: SweepPlan, local: bool, jobs: int | None, display: SweepDisplay) -> list[RunOutcome]:
    """Carry out the runs that are not done, and return the outcomes of all, in the order of the grid.

    Trials come first; then the runs that they decide.

    Raises:
        ConfigError: the resources are not available, or nothing can be written; nothing was started.
    """
    if local and jobs is not None:
        raise ConfigError(f"--jobs: found {jobs} beside --local, which is one run at a time; allowed: one of the two")
    with torch_untouched(), _executor(plan, local, jobs, display) as executor, lock_directory(plan.out, "sweep"):
        register_runs(plan.out, plan.name, [cell for cell, _ in plan.runs])
        runs = _Runs(plan.out, executor, display)
        log = nullcontext() if local or display.log is None else divert_errors(plan.out / display.log)
        with log:
            runs.carry_out(plan.to_do)
            if any(progress == "undecided" for _, progress in plan.runs):
                plan = plan.renew()
                register_runs(plan.out, plan.name, [cell for cell, _ in plan.runs])
                runs.carry_out([cell for cell in plan.to_do if cell.folder not in runs.outcomes])
    outcomes = {**plan.outcomes(), **runs.outcomes}
    if not runs.stopping:
        for cell in (cell for cell, progress in plan.runs if progress == "undecided"):
            outcomes[cell.folder] = RunOutcome(cell, plan.out / cell.folder, "failed", problem="all its trials failed")
    return list(outcomes.values())


class _Runs:
    """The runs of a sweep: begun as there is room and recorded, each in its directory; a failure ends no other run.

    Their data are read in this process, so that no other node needs the files.
    """

    def __init__(self, out: Path, executor: Executor, display: SweepDisplay) -> None:
        self.outcomes: dict[str, RunOutcome] = {}
        self._out = out
        self._executor = executor
        self._display = display
        self._recorders: dict[Cell, Recorder] = {}
        self._audiences: dict[Cell, CallbackList] = {}
        self._running: dict[RunInProgress, Cell] = {}
        self.stopping = False

    def carry_out(self, cells: Sequence[Cell]) -> None:
        """Carry out and record the runs; if that breaks off, end those in progress."""
        waiting = deque(cells)
        try:
            with interruptible(self.stop, self._display.say):
                while True:
                    while waiting and len(self._running) < self._executor.at_once and not self.stopping:
                        self._begin(waiting.popleft())
                    if not self._running:
                        return
                    self._go_on(self._executor.wait(list(self._running)))
        except BaseException as error:
            if isinstance(error, Lost):  # not of a run: of the cluster
                error.add_note("the same command goes on")
            with delay_interrupts():
                for run in self._running:
                    run.end()
                for cell in [*self._recorders]:
                    with suppress(RunError):  # for example, the disk is still full
                        self._end(cell, "interrupted" if isinstance(error, KeyboardInterrupt) else "failed", str(error))
            raise

    def stop(self) -> None:
        """Begin no more runs, and let those in progress end after their present round. Called from another thread."""
        self.stopping = True
        for run in list(self._running):
            run.stop()

    def _begin(self, cell: Cell) -> None:
        began = time.perf_counter()
        try:
            federation = load_federation(cell.config)
            callbacks = make_callbacks(cell.config, federation.protocols)
            if self.stopping:
                return
            self._display.begin(cell)
            footprint = Footprint()  # as reported by the process that carries out the run
            recorder = Recorder(cell.config, federation, self._out / cell.folder, began, footprint)
        except (ConfigError, RunError) as error:
            self._end(cell, "failed", str(error))
            return
        self._recorders[cell] = recorder
        self._audiences[cell] = CallbackList(callbacks, recorder, federation.availability.rows)
        resume_from = None if recorder.saved is None else (recorder.saved.server, dict(recorder.saved.clients))
        run = self._executor.start(cell.config, federation, resume_from)
        self._running[run] = cell
        if self.stopping:
            run.stop()

    def _go_on(self, run: RunInProgress) -> None:
        """Record a run's next event, its failure or its end; the other runs then take precedence."""
        cell = self._running[run]
        try:
            event, peak_memory_bytes = next(run)
        except (StopIteration, ConfigError, RunError) as end:
            run.end()
            del self._running[run]
            if not isinstance(end, StopIteration):
                self._end(cell, "failed", str(end))
            return
        self._running[run] = self._running.pop(run)
        recorder = self._recorders[cell]
        recorder.footprint.reach(peak_memory_bytes)
        recorder.take(event)
        self._display.take(cell, event)
        if not self._heard(run, cell, event):
            return
        if isinstance(event, Finished):
            self._end(cell, recorder.status)

    def _heard(self, run: RunInProgress, cell: Cell, event: Event) -> bool:
        """Tell a run's callbacks of an event, and let it go on; return whether none failed, which ends the run."""
        try:
            ends = self._audiences[cell].take(event)
        except RunError as error:
            run.end()
            del self._running[run]
            self._end(cell, "failed", str(error))
            return False
        if ends is not None:
            run.stop()
            self._display.say(f"{cell.folder}: {ends}")
        if cell.config.callbacks and isinstance(event, STOPPABLE):
            run.heard()
        return True

    def _end(self, cell: Cell, status: RunEnd, problem: str = "") -> None:
        ended = None
        if cell in self._recorders:  # a run whose data could not be read has no directory
            with self._recorders.pop(cell) as recorder:
                with delay_interrupts():
                    ended = recorder.end(status)
                try:
                    self._audiences.pop(cell).end(ended)
                except RunError as error:
                    status, problem = "failed", problem or str(error)
        outcome = RunOutcome(cell, self._out / cell.folder, status, ended, problem)
        self.outcomes[cell.folder] = outcome
        self._display.end(outcome)


@contextmanager
def _executor(plan: SweepPlan, local: bool, jobs: int | None, display: SweepDisplay) -> Iterator[Executor]:
    """Yield the executor of the runs: this process, or a cluster."""
    to_do = plan.to_do
    addresses = {cell.config.resources.address for cell in to_do}
    if len(addresses) > 1:
        raise ConfigError("resources.address: found one for some runs and another for others, allowed: one for all")
    address = next(iter(addresses), None)
    machine = this_machine()
    if local or address is None:
        _check(to_do, machine, jobs)
    if local or not to_do:
        yield IN_THIS_PROCESS
        return
    from raysim.actors import compat

    compat.import_ray(loopback=address is None)
    from raysim.actors import cluster
    from raysim.actors.runs import ray_executor

    configs = [cell.config for cell in to_do]
    with cluster.cluster_of(configs, machine, display.say) as there:
        yield ray_executor(_check(to_do, there, jobs))


def _check(to_do: Sequence[Cell], capacity: Capacity, jobs: int | None) -> int:
    """Return how many runs there is room for at a time. Raises ConfigError if there is no room for one of them."""
    for cell in to_do:
        placement.check_gpus(cell.config, capacity)
        placement.check_custom(cell.config, capacity)
    share = max((cell.config.resources.gpus_per_actor for cell in to_do), default=0.0)
    return runs_at_once(capacity, share, jobs)
