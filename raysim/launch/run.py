"""A run from a config to its directory: resolve, check, start, record, end."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysim.config import Config, load
from raysim.config.comparison import describe_difference
from raysim.config.lookup import only_named_by, own_names
from raysim.engine.compatibility import check_fit, check_methods
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.estimate import placement
from raysim.estimate.memory import estimate_memory
from raysim.estimate.placement import Placement
from raysim.federation.federation import Federation, build_federation
from raysim.launch.display import RunDisplay
from raysim.launch.recovery import Attempt, Recovery
from raysim.models.building import check_model
from raysim.models.flat import FlatModel
from raysim.records.checkpoints import SavedCheckpoint
from raysim.records.recorder import Recorder
from raysim.records.result import Result, load_result
from raysim.records.run_directory import claim_directory
from raysim.system import seeding
from raysim.system.capacity import Capacity, this_machine
from raysim.system.errors import ConfigError, RunError
from raysim.system.files import lock_directory
from raysim.system.footprint import Footprint
from raysim.system.interrupts import delay_interrupts, interruptible
from raysim.system.output import divert_errors

if TYPE_CHECKING:
    from raysim.actors.session import Session

MAY_DIFFER = ("resources", "logging", "checkpoint")  # blocks of the config, when a run is resumed


def run(
    config: str | Path | Mapping[str, object] | Config | None,
    overrides: Sequence[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    local: bool = False,
    *,
    resume: bool = False,
    trust: bool = False,
    display: RunDisplay | None = None,
    session: "Session | None" = None,
) -> Result:
    """Run a config and return its result.

    Args:
        config: a YAML file, a mapping or a config; with `resume` it may be None, for the directory's own config.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values.
        out: the run's directory, absent or empty; by default runs/NAME/seed-SEED/DATE-TIME.
        local: run every client in this process, without Ray.
        resume: resume from the newest checkpoint in `out`, or start the run if there is none; only resources, logging
            and checkpoint may differ from the directory's config. The result of a finished run is returned as it is.
        trust: import what only the directory's config names and raysim does not have: with `resume`, see `lookup.py`.
        display: shows the events; by default they are not shown.
        session: of the Ray that is started, opened by the command line before it imported torch.

    Raises:
        ConfigError: the config, the data or the resources are wrong; nothing was started.
        RunError: the run failed; its directory says how far it came.
    """
    began = time.perf_counter()
    if resume:
        resolved = resolve_resumed(out, config, overrides, trust)
    elif config is None:
        raise ConfigError("run: found no config, allowed: a YAML file, a mapping or a config")
    else:
        resolved = load(config, overrides)
    directory = Path(out) if out is not None else _default_directory(resolved)
    if not resume:
        claim_directory(directory)
    elif (directory / "summary.json").exists() and (ended := load_result(directory)).status == "done":
        return ended
    elif directory.exists():
        with lock_directory(directory, "run"):  # as the recorder does, but before anything has started
            pass
    with seeding.torch_untouched():
        check_methods(resolved)
        capacity = this_machine()
        places = None
        if local:
            placement.check_gpus(resolved, capacity)
        elif resolved.resources.address is None:
            places = placement.place(resolved, capacity)
        federation = build_federation(resolved)
        model = check_model(resolved, federation.shape, federation.classes, federation.vocabulary)
        check_fit(resolved, model, federation.classes)
        display = display or RunDisplay()
        log = getattr(display, "log", None)  # a display of one's own need not have it
        prepared = _Prepared(resolved, federation, model, capacity, places)
        with (
            Footprint() as footprint,
            _start_here(prepared) if local else _start_on_ray(prepared, directory, display, session) as start,
            Recorder(resolved, federation, directory, began, footprint) as recorder,
            divert_errors(directory / log) if log and not local else nullcontext(),
        ):
            recovery = Recovery(start, recorder, resolved.checkpoint.tries, display.say)
            return _carry_out(recovery, recorder, display)


def resolve_resumed(
    out: str | Path | None,
    config: str | Path | Mapping[str, object] | Config | None,
    overrides: Sequence[str] | Mapping[str, object],
    trust: bool,
) -> Config:
    """Return the config of a resumed run: its directory's, or the one that is given, if they agree.

    Without `trust`, the directory's config may name only components of raysim's and of the config that is given.

    Raises:
        ConfigError: there is no run and no config, or the given config would change the run's results.
    """
    if out is None:
        raise ConfigError("--resume: found no --out, allowed: --resume --out DIR, the run's directory")
    own = Path(out) / "config.yaml"
    if not own.exists():
        if config is None:
            raise ConfigError(f"--resume: there is no {own}, allowed: a run's directory, or a config to start one with")
        claim_directory(Path(out))
        return load(config, overrides)
    given = [] if config is None else [load(config, overrides)]
    with only_named_by(*given, trust=trust):
        before = load(own)
        now = given[0] if given else load(own, overrides)
    unlike = describe_difference(before, now)
    if unlike is not None:
        raise ConfigError(f"--resume: {out} has another config: {unlike}; allowed: other {', '.join(MAY_DIFFER)}")
    return now


def resume_command(config: Config, directory: Path) -> str:
    """Return the command that goes on with a run from its directory."""
    own = any(not name.startswith("raysim.") for name in own_names(config))
    return f"raysim run --resume --out {directory}{' --trust' * own}"


def _carry_out(recovery: Recovery, recorder: Recorder, display: RunDisplay) -> Result:
    def end(status: str) -> Result:
        recorder.footprint.sample()
        return recorder.end(status)

    try:
        with interruptible(recovery.stop, display.say, recovery.doing), closing(recovery.events()) as events:
            for event in events:  # closing this ends the actors before their cluster
                display.take(event)
                del event  # see Recovery
    except BaseException as error:
        try:
            with delay_interrupts():
                end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        except RunError as also:  # for example, the disk is still full
            error.add_note(str(also))
        if recorder.checkpoints.newest is not None:
            where = f"go on from round {recorder.checkpoints.newest}"
            error.add_note(f"{where}: {resume_command(recorder.config, recorder.directory)}")
        raise
    with delay_interrupts():
        return end(recorder.status)


@dataclass(frozen=True)
class _Prepared:
    """A run whose config, data and model suit each other; `places` are its hosts', if a cluster is started for it."""

    config: Config
    federation: Federation
    model: FlatModel
    capacity: Capacity
    places: Placement | None


@contextmanager
def _start_here(run: _Prepared) -> Iterator[Callable[[SavedCheckpoint | None, bool], Attempt]]:
    """Yield the function that starts the run from a checkpoint in this process."""
    placement.check_alone(run.config, run.capacity, estimate_memory(run.config, run.federation, run.model))

    def start(saved: SavedCheckpoint | None, apart: bool) -> Attempt:
        server, clients = (None, None) if saved is None else (saved.server, saved.clients)
        runner = LocalRunner(run.config, run.federation, clients)
        return Simulation(run.config, run.federation, runner, server, run.model)

    yield start


@contextmanager
def _start_on_ray(
    run: _Prepared, directory: Path, display: RunDisplay, early: "Session | None"
) -> Iterator[Callable[[SavedCheckpoint | None, bool], Attempt]]:
    """Yield the function that starts the run from a checkpoint on a cluster; one started here is replaced if lost."""
    from raysim.actors import cluster, contact, coordinator

    config, need = run.config, estimate_memory(run.config, run.federation, run.model)
    if run.places is not None:
        placement.check_memory(config, run.capacity, run.places, need)
    go_on = (directory / "config.yaml", resume_command(config, directory))
    with ExitStack() as started:

        def begin(early: "Session | None" = None) -> tuple[Placement | None, Any]:
            there = started.enter_context(cluster.cluster_of([config], run.capacity, display.say, *go_on, early))
            # nodes of a joined cluster may change, so their places are looked for at each start, and here before the
            # run has a directory
            places = run.places if there is run.capacity else None
            if places is None:
                placement.place(config, there, need)
            return places, coordinator.shared(run.federation)

        places, data = begin(early)

        def start(saved: SavedCheckpoint | None, apart: bool) -> Attempt:
            nonlocal places, data
            if contact.own_has_ended():
                started.close()
                places, data = begin()
            contact.reach()
            now = places or placement.place(config, cluster.present(), need)
            return coordinator.Remote(config, data, now, saved, apart)

        yield start


def _default_directory(config: Config) -> Path:
    """Return runs/NAME/seed-SEED/DATE-TIME, with a number appended if that exists."""
    first = Path("runs") / config.name / f"seed-{config.seed}" / datetime.now().strftime("%Y%m%d-%H%M%S")
    others = (first.with_name(f"{first.name}-{number}") for number in count(2))
    return next(path for path in chain([first], others) if not path.exists())
