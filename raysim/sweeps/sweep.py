"""A sweep from its file to its directory: check all runs, carry out those not done, record each, return outcomes."""

import gc
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from raysim.callbacks.callback_list import make_callbacks
from raysim.config import Config
from raysim.config.bundled import warn_hidden
from raysim.config.comparison import result_settings
from raysim.config.keywords import SweepKeys, add_keywords
from raysim.engine.compatibility import check_methods
from raysim.engine.hook_names import describe_unused
from raysim.engine.simulation import load_parts, simulate_here
from raysim.engine.vectorised.support import describe_one_at_a_time
from raysim.estimate import placement
from raysim.estimate.concurrency import CPUS_OF_A_RUN, gpus_of_a_run, runs_at_once
from raysim.estimate.memory import MemoryNeed, estimate_memory, processes_alone
from raysim.federation.doubts import describe_doubts
from raysim.federation.federation import Federation
from raysim.launch.execution import Execution
from raysim.launch.recovery import Attempt
from raysim.models.flat import FlatModel
from raysim.records.checkpoints import SavedCheckpoint
from raysim.records.result import Result
from raysim.sweeps.cells import Cell
from raysim.sweeps.directory import DIVERGED, RunEnd, RunOutcome, SweepPlan, plan_sweep, register_runs
from raysim.sweeps.sweep_display import CellDisplay, PythonDisplay, SweepDisplay, open_sweep_display
from raysim.system.caller import warn_caller
from raysim.system.capacity import Capacity, this_machine
from raysim.system.errors import ConfigError, Diverged, Lost, NotWritten, RunError, convert_to_run_error
from raysim.system.files import lock_directory
from raysim.system.footprint import Footprint
from raysim.system.interrupts import delay_interrupts, interruptible
from raysim.system.output import divert_errors
from raysim.system.progress import tell_progress
from raysim.system.seeding import torch_untouched

if TYPE_CHECKING:
    from raysim.actors.session import Session

CHANGE_NO_NEED = (("name",), ("seed",), ("training", "optimizer", "lr"))  # these keys change no run's memory
LOST: Sequence[RunEnd] = ("failed", "diverged")  # ends of a trial with which its candidate is out


def sweep(
    config: str | Path | Mapping[str, object],
    overrides: Sequence[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    local: bool = False,
    *,
    jobs: int | None = None,
    progress: bool = False,
    display: SweepDisplay | None = None,
    **keys: Unpack[SweepKeys],
) -> list[Result]:
    """Run a grid of runs, and return their results in the order of the grid.

    >>> grid = {"methods": ["fedprox", "er"], "seed": [0]}
    >>> sweep = {"name": "two", "base": "quickstart", "grid": grid}
    >>> results = raysim.sweep(sweep, ["training.rounds_per_task=2"], local=True)
    >>> [(result.methods, result.seed) for result in results]
    [(['fedprox'], 0), (['er'], 0)]

    Runs that are already done are not run again. Every run is carried out in one process, several at a time on Ray; its
    bits are those of `raysim.run`. After an interrupt, runs that were not started are missing from the list. If rows
    are tuned, the results of their trials come first. Of these, one that diverged has the status failed.

    Args:
        config: a sweep's YAML file, or a mapping like it.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values; they hold for all runs.
        out: the sweep's directory; by default runs/NAME.
        local: run one after the other in this process, without Ray.
        jobs: the most runs at a time; by default as many as there are CPUs.
        progress: show a table on a terminal, and lines elsewhere, as the command line does.
        display: a custom display of the sweep's events.
        keys: config keys that hold for all runs, or keys of the sweep such as grid; further overrides.

    Raises:
        ConfigError: the file, a run's config or the resources are wrong, or the directory holds something else; nothing
            was started.
        RunError: runs failed, other than by a trial's divergence; all others were carried out.
    """
    warn_hidden(config)
    plan = plan_sweep(config, add_keywords("sweep", overrides, keys), out)
    if display is None and not progress:
        display = PythonDisplay()
    with open_sweep_display(plan, quiet=False) if display is None else nullcontext(display) as shown:
        outcomes = carry_out(plan, local, jobs, shown)
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        first = f"{failed[0].directory}: {failed[0].problem}"
        raise RunError(f"{len(failed)} of {len(outcomes)} runs failed; the first was {first}")
    return [outcome.result for outcome in outcomes if outcome.result is not None]


def carry_out(plan: SweepPlan, local: bool, jobs: int | None, display: SweepDisplay) -> list[RunOutcome]:
    """Carry out the runs that are not done, and return the outcomes of all, in the order of the grid.

    Trials come first, then those of finalists, then the runs that they decide.

    Raises:
        ConfigError: `jobs` is wrong, the resources are not available, or nothing can be written; nothing was started.
    """
    if local and jobs is not None:
        raise ConfigError(f"--jobs: found {jobs} with --local, which is one run at a time; allowed: one of the two")
    if jobs is not None and jobs < 1:
        raise ConfigError(f"--jobs: found {jobs}, allowed: a whole number >= 1")
    runs = _Runs(plan.out, display)
    with (
        torch_untouched(),
        _place(plan, local, jobs, display, runs.lose) as place,
        lock_directory(plan.out, "sweep"),
    ):
        plan = plan.renew(())  # another sweep may have ended in the meantime
        _register(plan)
        log = nullcontext() if local or display.log is None else divert_errors(plan.out / display.log)
        with log:
            runs.carry_out(plan.to_do, place)
            while any(progress == "undecided" for _, progress in plan.runs):
                plan = plan.renew([folder for folder, one in runs.outcomes.items() if one.status in LOST])
                _register(plan)
                further = [cell for cell in plan.to_do if cell.folder not in runs.outcomes]
                if not further or runs.stopping:
                    break
                runs.carry_out(further, place)
    outcomes = {**plan.outcomes(), **runs.outcomes}
    for cell, progress in plan.runs:
        ends = {outcomes[folder].status for folder in cell.waits_for}
        if progress == "undecided" and not ends & {"interrupted", "not started"}:
            words = "all its candidates failed, diverged or were stopped early; give the row other values"
            outcomes[cell.folder] = RunOutcome(cell, plan.out / cell.folder, "failed", problem=words)
    return list(outcomes.values())


def _register(plan: SweepPlan) -> None:
    """Write the plan's runs into sweep.yaml. The entry of an outdated run remains that of its own candidate."""
    register_runs(plan.out, plan.name, [cell for cell, progress in plan.runs if progress != "outdated"])


@dataclass(frozen=True)
class _Place:
    """Where the runs of a sweep are carried out.

    Attributes:
        at_once: the most runs in progress at a time.
        start: starts a run, on its data, from a checkpoint (None: from its beginning); the footprint receives its peak
            memory.
        wait: waits for the next event of some runs, and returns the place of the first that has one.
        measured: whether the runs' memory is this process's.
    """

    at_once: int
    start: Callable[[Config, Federation, SavedCheckpoint | None, Footprint], Attempt]
    wait: Callable[[Sequence[Any]], int]
    measured: bool = False


class _Runs:
    """The runs of a sweep: begun as there is room and carried out, each in its directory; a failure ends no other run.

    Their data are read in this process, so that no other node needs the files.
    """

    def __init__(self, out: Path, display: SweepDisplay) -> None:
        self.outcomes: dict[str, RunOutcome] = {}
        self.stopping = False
        self._out = out
        self._display = display
        self._warned: set[str] = set()
        self._needs: dict[str, MemoryNeed] = {}  # by the settings that change it
        self._running: dict[Execution, tuple[Cell, Generator[None, None, None]]] = {}

    def carry_out(self, cells: Sequence[Cell], place: _Place) -> None:
        """Carry out the runs; if that breaks off, end those in progress."""
        waiting = deque(cells)
        try:
            with interruptible(self.stop, self._display.say):
                while True:
                    while waiting and len(self._running) < place.at_once and not self.stopping:
                        self._begin(waiting.popleft(), place)
                    if not self._running:
                        return
                    self._advance(self._wait(place))
        except BaseException as error:
            with delay_interrupts():
                for run, (cell, steps) in [*self._running.items()]:
                    with suppress(type(error), RunError):
                        steps.throw(error)
                    status: RunEnd = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
                    self._end(cell, status, run.result, str(error))
            raise
        finally:
            gc.unfreeze()

    def stop(self) -> None:
        """Begin no more runs, and let those in progress end after their present round. Called from another thread."""
        self.stopping = True
        for run in list(self._running):
            run.recovery.stop()

    def lose(self) -> None:
        """Give up what is in progress on a cluster that has ended; the runs then resume from their checkpoints."""
        for run in self._running:
            run.recovery.lose(
                Lost("the cluster", "one of Ray's own processes ended (killed, crashed, or out of memory)")
            )

    def _wait(self, place: _Place) -> Execution:
        """Return the first run that has an event."""
        running = list(self._running)
        return running[place.wait([run.recovery.attempt for run in running])]

    def _begin(self, cell: Cell, place: _Place) -> None:
        began = time.perf_counter()
        gc.collect()  # the objects of earlier runs refer to each other and to gigabytes, which Python does not count
        if not self._running:
            gc.freeze()  # what is left is modules and results; to look at them again takes longer than a short run
        try:
            tell_progress(f"reading the data of {cell.folder}")
            with convert_to_run_error():
                federation, model = load_parts(cell.config)
                doubts = [*describe_doubts(federation)]
                if place.measured or cell.config.resources.address is None:
                    doubts.append(self._check_memory(cell.config, federation, model))
            callbacks = make_callbacks(cell.config, federation.protocols)
        except (ConfigError, RunError) as error:
            self._end(cell, "failed", None, str(error))
            return
        if self.stopping:
            return
        self._display.begin(cell)
        footprint = Footprint()

        def start(saved: SavedCheckpoint | None, apart: bool) -> Attempt:
            return place.start(cell.config, federation, saved, footprint)

        methods = check_methods(cell.config)
        for line in (*describe_unused(methods), *describe_one_at_a_time(cell.config, methods), *filter(None, doubts)):
            self._warn(cell, line)
        shown = CellDisplay(self._display, cell)
        run = Execution(cell.config, federation, model, callbacks, self._out / cell.folder, shown, start)
        self._running[run] = cell, run.steps(began, footprint, _around(footprint if place.measured else None))
        if self.stopping:
            run.recovery.stop()
        self._advance(run)

    def _check_memory(self, config: Config, federation: Federation, model: FlatModel) -> str:
        """Return a warning about a run that this machine cannot hold, or ""; the seeds of a row share its estimate."""
        settings = repr(result_settings(config, CHANGE_NO_NEED))
        if settings not in self._needs:
            self._needs[settings] = estimate_memory(config, federation, model)
        return placement.check_alone(config, this_machine(), self._needs[settings])

    def _warn(self, cell: Cell, line: str) -> None:
        """Show a warning about a run, once for all runs."""
        if line in self._warned:
            return
        self._warned.add(line)
        if isinstance(self._display, PythonDisplay):
            warn_caller(f"{cell.folder}: {line}")
        CellDisplay(self._display, cell).say(line)

    def _advance(self, run: Execution) -> None:
        """Carry a run out to its next event, its failure or its end; the other runs then take precedence."""
        cell, steps = self._running[run]
        status: RunEnd
        try:
            next(steps)
        except (ConfigError, RunError) as error:
            deleted = isinstance(error.__cause__, FileNotFoundError) and self._out.is_dir()  # this run alone
            if isinstance(error, NotWritten) and not deleted:  # the other runs cannot be written either
                raise
            status, problem = "failed", str(error)
            if cell.trial and isinstance(error, Diverged):
                status = "diverged"
                with suppress(OSError):  # without this file, the next sweep repeats the trial
                    (self._out / cell.folder / DIVERGED).touch()
        except StopIteration:
            assert run.result is not None
            status, problem = cast(RunEnd, run.result.status), ""
        else:
            self._running[run] = self._running.pop(run)
            return
        del self._running[run]
        self._end(cell, status, run.result, problem)

    def _end(self, cell: Cell, status: RunEnd, result: Result | None, problem: str) -> None:
        outcome = RunOutcome(cell, self._out / cell.folder, status, result, problem)
        self.outcomes[cell.folder] = outcome
        self._display.end(outcome)


@contextmanager
def _around(footprint: Footprint | None) -> Iterator[None]:
    """Convert errors of a run's custom code into RunErrors, and measure the run's memory if it is in this process."""
    with convert_to_run_error(), footprint or nullcontext():
        yield


@contextmanager
def _place(
    plan: SweepPlan, local: bool, jobs: int | None, display: SweepDisplay, on_loss: Callable[[], None]
) -> Iterator[_Place]:
    """Yield the place of the runs: this process, or a cluster. Before a cluster is replaced, `on_loss` is called."""
    to_do = plan.to_do
    addresses = {cell.config.resources.address for cell in to_do}
    if len(addresses) > 1:
        raise ConfigError("resources.address: found one for some runs and another for others, allowed: one for all")
    address = next(iter(addresses), None)
    machine = this_machine()
    if local or address is None:
        _check(to_do, machine, jobs)
    if local or not to_do:
        yield _Place(1, _start_here, lambda attempts: 0, measured=True)
        return
    from raysim.actors import compat

    compat.import_ray(loopback=address is None)
    from raysim.actors import cluster, preflight, runs

    configs = [cell.config for cell in to_do]

    def begin(session: "Session | None") -> AbstractContextManager[Capacity]:
        tell_progress("starting Ray" if address is None else f"joining the cluster at {address}")
        return cluster.cluster_of(configs, machine, display.say, session)

    nodes = preflight.Preflight(configs[0], processes_alone(configs[0]))

    def ask() -> None:
        for line in nodes.ask() if address is not None else ():
            display.say(f"no run will be on the node {line}")

    with runs.lasting_cluster(begin, on_loss=on_loss) as (there, reach):
        ask()

        def start(
            config: Config, federation: Federation, saved: SavedCheckpoint | None, footprint: Footprint
        ) -> Attempt:
            reach()
            ask()
            return runs.RunActor(config, federation, saved, footprint.reach, [*nodes.unfit])

        with nodes.naming():
            at_once = _check(to_do, there if address is None else nodes.capacity(), jobs)
        yield _Place(at_once, start, runs.wait_for_any)


def _start_here(config: Config, federation: Federation, saved: SavedCheckpoint | None, footprint: Footprint) -> Attempt:
    server, clients = (None, None) if saved is None else (saved.server, saved.clients)
    return simulate_here(config, federation, server, clients)


def _check(to_do: Sequence[Cell], capacity: Capacity, jobs: int | None) -> int:
    """Return how many runs there is room for at a time. Raises ConfigError if there is no room for one of them."""
    for cell in to_do:
        placement.check_gpus(cell.config, capacity)
        placement.check_custom(cell.config, capacity)
    rooms = []
    for wanted in (cell.config.resources for cell in to_do):
        cpus = max(CPUS_OF_A_RUN, wanted.server_cpus)
        rooms.append(runs_at_once(capacity, gpus_of_a_run(wanted), jobs, cpus, wanted.custom))
    return min(rooms, default=1)
