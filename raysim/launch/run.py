"""A run from a config to its directory: resolve, check, start, record, end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from raysim.callbacks.callback import Callback
from raysim.callbacks.callback_list import make_callbacks
from raysim.config import Config
from raysim.config.bundled import warn_hidden
from raysim.config.keywords import ConfigKeys, add_keywords
from raysim.engine.compatibility import check_methods
from raysim.engine.events import StartStep
from raysim.engine.hook_names import describe_unused
from raysim.engine.simulation import load_parts
from raysim.engine.vectorised.support import describe_one_at_a_time
from raysim.estimate import placement
from raysim.estimate.placement import Placement
from raysim.federation.doubts import describe_doubts
from raysim.launch.announcing import describe_start
from raysim.launch.bar import open_run_display
from raysim.launch.display import RunDisplay, show_warning
from raysim.launch.execution import Execution
from raysim.launch.recovery import Recovery
from raysim.launch.resolving import ResolvedRun, resolve_run
from raysim.launch.starting import Prepared, start_here, start_on_ray
from raysim.records.figures import describe_undrawn
from raysim.records.result import Result
from raysim.system import seeding
from raysim.system.capacity import Capacity, describe_ignored, this_machine
from raysim.system.footprint import Footprint
from raysim.system.interrupts import interruptible
from raysim.system.output import divert_errors
from raysim.system.progress import progress_told

if TYPE_CHECKING:
    from raysim.actors.session import Session


def run(
    config: str | Path | Mapping[str, object] | Config | None = None,
    overrides: Sequence[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    local: bool = False,
    *,
    callbacks: Sequence[str | Callback] | Mapping[str, object] = (),
    progress: bool = False,
    resume: bool = False,
    trust: bool = False,
    display: RunDisplay | None = None,
    **keys: Unpack[ConfigKeys],
) -> Result:
    """Run a config and return its result.

    >>> result = raysim.run("quickstart", methods="er", local=True)
    >>> result.methods, round(result.accuracy(), 2)
    (['er'], 0.82)

    Overrides change single keys, and keyword arguments whole blocks:

    >>> keys = {"memory.capacity": 50, "training.rounds_per_task": 2}
    >>> result = raysim.run("quickstart", keys, methods="er", clients={"count": 3}, out="runs/short", local=True)
    >>> result.clients, result.rounds
    (3, 6)

    Args:
        config: a YAML file, a mapping or a config; with `resume` it may be None, for the directory's own config.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values.
        out: the run's directory, absent or empty; by default runs/NAME/seed-SEED/DATE-TIME-LABEL, where the label has
            the methods and the overrides.
        local: run every client in this process, without Ray.
        callbacks: a list of names or objects of callbacks, in addition to those of the config; or a mapping, which is
            the config's block.
        progress: show a bar on a terminal or in a notebook, and lines elsewhere, as the command line does.
        resume: resume from the newest checkpoint in `out`, or start the run if there is none. Only resources, logging,
            checkpoint, callbacks and dataset.download may differ from the directory's config. The result of a finished
            run is returned as it is.
        trust: with `resume`, import custom components that only the directory's config names.
        display: a custom display of the events.
        keys: further overrides: blocks of the config, such as methods="er" or clients={"count": 20}. They are name,
            seed, dataset, scenario, partition, clients, model, objective, training, memory, methods, participation,
            aggregation, schedule, resources, evaluation, checkpoint and logging.

    Raises:
        ConfigError: the config, the data or the resources are wrong; nothing was started.
        RunError: the run failed; its directory has what was recorded until then. With `local`, an error of a method's
            or a component's code is raised as it is, for a debugger.
    """
    began = time.perf_counter()
    warn_hidden(config)
    given: dict[str, object] = {**keys}
    if isinstance(callbacks, Mapping):
        given["callbacks"], callbacks = callbacks, ()
    resolved = resolve_run(config, add_keywords("run", overrides, given), out, callbacks, resume, trust)
    if resolved.ended is not None:
        return resolved.ended
    showing = open_run_display(resolved.config, False) if progress and display is None else nullcontext(display)
    try:
        with showing as shown:
            return carry_out(resolved, shown or RunDisplay(), local, began)
    finally:
        resolved.release()


def carry_out(
    resolved: ResolvedRun, display: RunDisplay, local: bool, began: float, session: "Session | None" = None
) -> Result:
    """Carry out a resolved run that is not done yet. `began` is when it began, by time.perf_counter.

    `session` is that of the Ray to start, if it is open already. The errors are those of `run`.
    """
    with seeding.torch_untouched():
        run = _prepare(resolved, display, local)
        starting = start_here(run, display) if local else start_on_ray(run, display, session)
        with Footprint() as footprint, starting as start:
            if getattr(display, "console", None) is not None:  # a custom display need not have it
                rounds = run.federation.availability.rounds
                notes = [*run.federation.dataset.notes, *run.model.notes]
                for line in describe_start(run.config, rounds, notes, resolved.directory, run.places, local):
                    display.say(line)  # now that nothing of the config or the machine is wrong
            if not local:
                display.take(StartStep("starting the hosts"))
            execution = Execution(
                run.config,
                run.federation,
                run.model,
                run.callbacks,
                resolved.directory,
                display,
                start,
                local,
                resolved.new,
            )
            log = None if local else _log_in(resolved.directory, display)
            return execution.run(began, footprint, _interruptible(execution.recovery, display, log))


def _prepare(resolved: ResolvedRun, display: RunDisplay, local: bool) -> Prepared:
    """Read the data, build the model, and check that all parts and this machine suit the config.

    Raises:
        ConfigError: they do not.
    """
    config = resolved.config
    display.take(StartStep("reading the data"))
    methods = check_methods(config)
    for line in (*describe_unused(methods), *describe_one_at_a_time(config, methods), *describe_undrawn(config)):
        show_warning(display, line)
    for line in describe_ignored():
        show_warning(display, line)
    capacity = this_machine()
    places = _place(config, capacity, local)
    with progress_told(lambda text, share=None: display.take(StartStep(text, share=share))):
        federation, model = load_parts(config)
    for line in describe_doubts(federation):
        show_warning(display, line)
    callbacks = make_callbacks(config, federation.protocols, resolved.callbacks)
    return Prepared(config, federation, model, capacity, places, callbacks)


def _place(config: Config, capacity: Capacity, local: bool) -> Placement | None:
    """Return the places of the hosts on this machine, or None in this process and on a cluster to join."""
    if local:
        placement.check_gpus(config, capacity)
        placement.check_threads(config, capacity)
        return None
    return placement.place(config, capacity) if config.resources.address is None else None


def _log_in(directory: Path, display: RunDisplay) -> Path | None:
    """Return the file for what Ray writes to standard error, if the display names one. A custom one need not."""
    name = getattr(display, "log", None)
    return directory / name if name else None


@contextmanager
def _interruptible(recovery: Recovery, display: RunDisplay, log: Path | None) -> Iterator[None]:
    """Have interrupts end the run, and what Ray writes to standard error go to a log, if there is one."""
    diverted = nullcontext() if log is None else divert_errors(log)
    with diverted, interruptible(recovery.stop, display.say, recovery.doing):
        yield
