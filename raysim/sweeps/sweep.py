"""A sweep from its file to its directory: check all runs, carry out those not done, record each, return outcomes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from raysim.engine.batch import IN_THIS_PROCESS, Batch, Executor, Job, JobEvent, JobFailed, ResumeState
from raysim.engine.events import Finished
from raysim.estimate import placement
from raysim.estimate.concurrency import runs_at_once
from raysim.federation.federation import Federation
from raysim.records.recorder import Recorder
from raysim.records.result import Result
from raysim.sweeps.directory import RunEnd, RunOutcome, SweepPlan, plan_sweep, register_runs
from raysim.sweeps.display import SweepDisplay
from raysim.system.capacity import Capacity, this_machine
from raysim.system.errors import ConfigError, RunError
from raysim.system.files import lock_directory
from raysim.system.footprint import Footprint
from raysim.system.interrupts import delay_interrupts, interruptible
from raysim.system.seeding import torch_untouched


def sweep(
    config: str | Path | Mapping[str, object],
    overrides: Sequence[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    local: bool = False,
    *,
    jobs: int | None = None,
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
        display: shows the sweep's events; by default they are not shown.

    Raises:
        ConfigError: the file, a run's config or the resources are wrong, or the directory holds something else; nothing
            was started.
        RunError: runs failed; all others were carried out.
    """
    outcomes = carry_out(plan_sweep(config, overrides, out), local, jobs, display or SweepDisplay())
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if failed:
        first = f"{failed[0].directory}: {failed[0].problem}"
        raise RunError(f"{len(failed)} of {len(outcomes)} runs failed; the first was {first}")
    return [outcome.result for outcome in outcomes if outcome.result is not None]


def carry_out(plan: SweepPlan, local: bool, jobs: int | None, display: SweepDisplay) -> list[RunOutcome]:
    """Carry out the runs that are not done, and return the outcomes of all, in the order of the grid.

    Raises:
        ConfigError: the resources are not available, or nothing can be written; nothing was started.
    """
    if local and jobs is not None:
        raise ConfigError(f"--jobs: found {jobs} beside --local, which is one run at a time; allowed: one of the two")
    to_do = [cell for cell, progress in plan.runs if progress != "done"]
    recorder = _SweepRecorder(plan.out, display)
    with torch_untouched(), _executor(plan, to_do, local, jobs, display) as executor, lock_directory(plan.out, "sweep"):
        register_runs(plan.out, plan.name, [cell for cell, _ in plan.runs])
        batch = Batch(to_do, executor, recorder.begin)
        with interruptible(batch.stop, display.say):
            recorder.record(batch)
    return list({**plan.outcomes(), **recorder.outcomes}.values())


class _SweepRecorder:
    """Recorder of the runs of a sweep that are in progress, each in its directory."""

    def __init__(self, out: Path, display: SweepDisplay) -> None:
        self.outcomes: dict[str, RunOutcome] = {}
        self._out = out
        self._display = display
        self._under_way: dict[str, tuple[Job, Recorder]] = {}

    def begin(self, job: Job, federation: Federation, began: float) -> ResumeState | None:
        """Begin to record a run in its directory, and return the records to resume from, or None to start it.

        Raises:
            RunError: its checkpoint is damaged.
            ConfigError: another process is using its directory.
        """
        self._display.begin(job)
        footprint = Footprint()  # as reported by the process that carries out the run
        recorder = Recorder(job.config, federation, self._out / job.folder, began, footprint)
        self._under_way[job.folder] = (job, recorder)
        return None if recorder.saved is None else (recorder.saved.server, dict(recorder.saved.clients))

    def record(self, batch: Batch[Any]) -> None:
        """Record the events of a batch until its last run has ended; if that breaks off, end the runs in progress."""
        try:
            with closing(batch.events()) as events:
                for each in events:
                    self._take(each)
        except BaseException as error:
            for job, _ in [*self._under_way.values()]:
                with suppress(RunError):  # for example, the disk is still full
                    self._end(job, "interrupted" if isinstance(error, KeyboardInterrupt) else "failed", str(error))
            raise

    def _take(self, message: JobEvent | JobFailed) -> None:
        if isinstance(message, JobFailed):
            self._end(message.job, "failed", str(message.error))
            return
        _, recorder = self._under_way[message.job.folder]
        recorder.footprint.reach(message.peak_memory_bytes)
        recorder.take(message.event)
        self._display.take(message.job, message.event)
        if isinstance(message.event, Finished):
            self._end(message.job, recorder.status)

    def _end(self, job: Job, status: RunEnd, problem: str = "") -> None:
        ended = None
        if job.folder in self._under_way:  # a run whose data could not be read has no directory
            with delay_interrupts(), self._under_way.pop(job.folder)[1] as recorder:
                ended = recorder.end(status)
        outcome = RunOutcome(job, self._out / job.folder, status, ended, problem)
        self.outcomes[job.folder] = outcome
        self._display.end(outcome)


@contextmanager
def _executor(
    plan: SweepPlan, to_do: Sequence[Job], local: bool, jobs: int | None, display: SweepDisplay
) -> Iterator[Executor[Any]]:
    """Yield the executor of the runs: this process, or a cluster."""
    addresses = {job.config.resources.address for job in to_do}
    if len(addresses) > 1:
        raise ConfigError("resources.address: found one for some runs and another for others, allowed: one for all")
    address = next(iter(addresses), None)
    machine = this_machine()
    if local or address is None:
        _check(to_do, machine, jobs)
    if local or not to_do:
        yield IN_THIS_PROCESS
        return
    from raysim.actors import cluster
    from raysim.actors.runs import ray_executor

    configs = [job.config for job in to_do]
    with cluster.cluster_of(configs, machine, display.say, plan.out, "the same command") as there:
        yield ray_executor(_check(to_do, there, jobs))


def _check(to_do: Sequence[Job], capacity: Capacity, jobs: int | None) -> int:
    """Return how many runs there is room for at a time. Raises ConfigError if there is no room for one of them."""
    for job in to_do:
        placement.check_gpus(job.config, capacity)
        placement.check_custom(job.config, capacity)
    share = max((job.config.resources.gpus_per_actor for job in to_do), default=0.0)
    return runs_at_once(capacity, share, jobs)
