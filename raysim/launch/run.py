"""A run from a config to its directory: resolve, check, start, record, end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from raysim.callbacks.callback import Callback
from raysim.callbacks.callback_list import Named, make_callbacks
from raysim.config import Config, load
from raysim.config.comparison import label_run
from raysim.data.downloading import downloads_reported
from raysim.engine.compatibility import check_methods
from raysim.engine.events import StartStep
from raysim.engine.hook_names import describe_unused
from raysim.engine.simulation import load_parts, simulate_here
from raysim.engine.vectorised.support import describe_one_at_a_time
from raysim.estimate import placement
from raysim.estimate.memory import estimate_memory
from raysim.estimate.placement import Placement
from raysim.federation.doubts import describe_doubts
from raysim.federation.federation import Federation
from raysim.launch.announcing import describe_start
from raysim.launch.bar import open_run_display
from raysim.launch.display import RunDisplay, show_warning
from raysim.launch.execution import Execution
from raysim.launch.recovery import Attempt, Recovery, Start
from raysim.launch.resuming import resolve_resumed
from raysim.models.flat import FlatModel
from raysim.records.checkpoints import SavedCheckpoint
from raysim.records.result import Result, load_result
from raysim.records.run_directory import claim_directory
from raysim.system import seeding
from raysim.system.capacity import Capacity, this_machine
from raysim.system.errors import ConfigError
from raysim.system.files import lock_directory
from raysim.system.footprint import Footprint
from raysim.system.interrupts import interruptible
from raysim.system.output import divert_errors

if TYPE_CHECKING:
    from raysim.actors.session import Session


def run(
    config: str | Path | Mapping[str, object] | Config | None = None,
    overrides: Sequence[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    local: bool = False,
    *,
    callbacks: Sequence[str | Callback] = (),
    progress: bool = False,
    resume: bool = False,
    trust: bool = False,
    display: RunDisplay | None = None,
    session: "Session | None" = None,
) -> Result:
    """Run a config and return its result.

    Args:
        config: a YAML file, a mapping or a config; with `resume` it may be None, for the directory's own config.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values.
        out: the run's directory, absent or empty; by default runs/NAME/seed-SEED/DATE-TIME-LABEL, where the label has
            the methods and the overrides.
        local: run every client in this process, without Ray.
        callbacks: names or objects of callbacks, in addition to those of the config.
        progress: show a bar on a terminal or in a notebook, and lines elsewhere, as the command line does.
        resume: resume from the newest checkpoint in `out`, or start the run if there is none. Only resources, logging,
            checkpoint, callbacks and dataset.download may differ from the directory's config. The result of a finished
            run is returned as it is.
        trust: with `resume`, import custom components that only the directory's config names.
        display: a custom display of the events.
        session: the session of the Ray to start, which the command line opens before it imports torch.

    Raises:
        ConfigError: the config, the data or the resources are wrong; nothing was started.
        RunError: the run failed; its directory has what was recorded until then. With `local`, an error of a method's
            or a component's code is raised as it is, for a debugger.
    """
    began = time.perf_counter()
    if resume:
        resolved = resolve_resumed(out, config, overrides, trust)
    elif config is None:
        raise ConfigError("run: found no config, allowed: a YAML file, a mapping or a config")
    else:
        resolved = load(config, overrides)
    if isinstance(callbacks, str | Mapping | Callback):  # a text's letters or a block's names would be taken for names
        raise ConfigError(f"callbacks: found {callbacks!r:.60}, allowed: a list, such as ['early_stopping']")
    if names := {name: None for name in callbacks if isinstance(name, str)}:
        resolved = load(resolved, {"callbacks": {**names, **resolved.callbacks}})
    directory = Path(out) if out is not None else default_directory(resolved, overrides)
    new = not (resume and (directory / "config.yaml").exists())
    if not resume:
        claim_directory(directory)
    elif (directory / "summary.json").exists() and (ended := load_result(directory)).status == "done":
        return ended
    elif directory.exists():
        with lock_directory(directory, "run"):  # as the recorder does, but before anything has started
            pass
    showing = open_run_display(resolved, False) if progress and display is None else nullcontext(display)
    with seeding.torch_untouched(), showing as opened:
        display = opened_display = opened or RunDisplay()
        display.take(StartStep("reading the data"))
        methods = check_methods(resolved)
        for line in (*describe_unused(methods), *describe_one_at_a_time(resolved, methods)):
            show_warning(opened_display, line)
        capacity = this_machine()
        places = None
        if local:
            placement.check_gpus(resolved, capacity)
            placement.check_threads(resolved, capacity)
        elif resolved.resources.address is None:
            places = placement.place(resolved, capacity)
        with downloads_reported(lambda text: opened_display.take(StartStep(text))):
            federation, model = load_parts(resolved)
        for line in describe_doubts(federation):
            show_warning(opened_display, line)
        told = make_callbacks(resolved, federation.protocols, callbacks)
        name = getattr(display, "log", None)  # a custom display need not have it
        log = directory / name if name and not local else None
        prepared = _Prepared(resolved, federation, model, capacity, places, told)
        with (
            Footprint() as footprint,
            _start_here(prepared, display) if local else _start_on_ray(prepared, display, session) as start,
        ):
            if getattr(display, "console", None) is not None:  # a custom display need not have it
                for line in describe_start(resolved, federation.availability.rounds, directory, places, local):
                    display.say(line)  # now that nothing of the config or the machine is wrong
            execution = Execution(resolved, federation, told, directory, display, start, local, new)
            steps = execution.steps(began, footprint, _interruptible(execution.recovery, display, log))
            try:
                for _ in steps:
                    pass
            except BaseException as error:
                steps.throw(error)  # it may have been raised between two steps
            assert execution.result is not None
            return execution.result


@contextmanager
def _interruptible(recovery: Recovery, display: RunDisplay, log: Path | None) -> Iterator[None]:
    """Have interrupts end the run, and what Ray writes to standard error go to a log, if there is one."""
    diverted = nullcontext() if log is None else divert_errors(log)
    with diverted, interruptible(recovery.stop, display.say, recovery.doing):
        yield


@dataclass(frozen=True)
class _Prepared:
    """A run with compatible parts; `places` are those of its hosts, if a cluster is started for it."""

    config: Config
    federation: Federation
    model: FlatModel
    capacity: Capacity
    places: Placement | None
    callbacks: Named


@contextmanager
def _start_here(run: _Prepared, display: RunDisplay) -> Iterator[Start]:
    """Yield the function that starts the run from a checkpoint in this process."""
    need = estimate_memory(run.config, run.federation, run.model)
    if warning := placement.check_alone(run.config, run.capacity, need):
        display.say(warning)

    def start(saved: SavedCheckpoint | None, apart: bool) -> Attempt:
        server, clients = (None, None) if saved is None else (saved.server, saved.clients)
        return simulate_here(run.config, run.federation, server, clients, run.model)

    yield start


@contextmanager
def _start_on_ray(run: _Prepared, display: RunDisplay, early: "Session | None") -> Iterator[Start]:
    """Yield the function that starts the run from a checkpoint on a cluster; one started here is replaced if lost."""
    from raysim.actors import compat

    compat.import_ray(loopback=run.config.resources.address is None)
    from raysim.actors import cluster, coordinator, preflight, runs

    config, need = run.config, estimate_memory(run.config, run.federation, run.model)
    if run.places is not None:
        warning = placement.check_memory(config, run.capacity, run.places, need).warning
        if warning:
            display.say(warning)

    def begin(session: "Session | None" = None) -> AbstractContextManager[Capacity]:
        address = config.resources.address
        display.take(StartStep("starting Ray" if address is None else f"joining the cluster at {address}"))
        return cluster.cluster_of([config], run.capacity, display.say, session)

    with runs.lasting_cluster(begin, early) as (there, reach):
        # nodes of a joined cluster may change, so their places are looked for at each start, and here before the run
        # has a directory
        places = run.places if there is run.capacity else None
        nodes = preflight.Preflight(config, need)

        def find_places() -> Placement:
            if config.resources.address is None:
                return placement.place(config, cluster.present(), need)
            for line in nodes.ask():
                display.say(f"no host will be on the node {line}")
            with nodes.naming():
                return replace(placement.place(config, nodes.capacity(), need), avoid=[*nodes.unfit])

        if places is None and (warning := find_places().warning):
            display.say(warning)

        def start(saved: SavedCheckpoint | None, apart: bool) -> Attempt:
            reach()
            now = places or find_places()
            return coordinator.Remote(config, run.federation, now, saved, apart, paced=bool(run.callbacks))

        yield start


def default_directory(config: Config, overrides: Sequence[str] | Mapping[str, object] = ()) -> Path:
    """Return runs/NAME/seed-SEED/DATE-TIME-LABEL (see label_run), with a number appended if that exists."""
    name = "-".join(filter(None, [datetime.now().strftime("%Y%m%d-%H%M%S"), label_run(config, overrides)]))
    first = Path("runs") / config.name / f"seed-{config.seed}" / name
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(path for path in chain([first], others) if not path.exists())
