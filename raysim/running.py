"""A run from a config to its directory: check, start, record, end."""

from __future__ import annotations

import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt

from raysim import resources, seeding
from raysim.compatibility import check_methods
from raysim.config import Config, load
from raysim.display import Display, Silence
from raysim.events import Event, Started
from raysim.federation import Federation, build_federation
from raysim.figures import timeline_image
from raysim.footprint import Footprint
from raysim.local import LocalRunner
from raysim.models.building import check_model
from raysim.recording import Recording, claim
from raysim.result import Result
from raysim.result import load as load_result
from raysim.simulation import Simulation


def run(
    config: str | Path | Mapping[str, object] | Config,
    overrides: Sequence[str] | Mapping[str, object] = (),
    out: str | Path | None = None,
    local: bool = False,
    *,
    display: Display | None = None,
) -> Result:
    """Run a config and return what it came to.

    Args:
        config: a YAML file, a mapping or a config.
        overrides: KEY=VALUE strings, or a mapping from dotted keys to values.
        out: the run's directory, absent or empty; by default runs/NAME/seed-SEED/DATE-TIME.
        local: run every client in this process, without Ray.
        display: shows the events; by default nothing does.

    Raises:
        ConfigError: the config, the data or the resources are wrong; nothing was started.
        RunError: the run failed; its directory says how far it came.
    """
    began = time.perf_counter()
    resolved = load(config, overrides)
    with seeding.torch_untouched():
        check_methods(resolved)
        capacity = resources.this_machine()
        if local:
            resources.check_gpus(resolved, capacity)
        elif resolved.resources.address is None:
            resources.place(resolved, capacity)
        directory = Path(out) if out is not None else _default_directory(resolved)
        claim(directory)
        federation = build_federation(resolved)
        check_model(resolved, federation.shape, federation.classes)
        with Footprint() as footprint, _events(resolved, federation, capacity, local) as (events, stop):
            timeline = None if resolved.together else federation.calendar.timeline()
            return _record(resolved, directory, events, stop, footprint, display or Silence(), began, timeline)


def _record(
    config: Config,
    directory: Path,
    events: Iterator[Event],
    stop: Callable[[], None],
    footprint: Footprint,
    display: Display,
    began: float,
    timeline: npt.NDArray[np.int64] | None,
) -> Result:
    made_with = versions()
    starting = 0.0
    with Recording(config, directory) as recording:
        if timeline is not None:
            recording.picture("clients_at_tasks", timeline_image(timeline))

        def summarise(status: str) -> None:
            footprint.sample()
            recording.summarise(
                status,
                seconds=time.perf_counter() - began,
                seconds_per_round=median(recording.round_seconds) if recording.round_seconds else None,
                seconds_starting=starting,
                peak_memory_bytes=footprint.peak_bytes,
                recoveries=0,
                rounds_recomputed=0,
                versions=made_with,
            )

        try:
            with _interruptible(stop, display):
                for event in events:
                    if isinstance(event, Started):
                        starting = time.perf_counter() - began
                    recording.take(event)
                    display.take(event)
        except KeyboardInterrupt:
            summarise("interrupted")
            raise
        except BaseException:
            summarise("failed")
            raise
        summarise("interrupted" if recording.interrupted else "done")
    return load_result(directory)


@contextmanager
def _events(
    config: Config, federation: Federation, capacity: resources.Capacity, local: bool
) -> Iterator[tuple[Iterator[Event], Callable[[], None]]]:
    """Give the run's events, from this process or from a cluster, and what stops it after the round in progress."""
    if local:
        simulation = Simulation(config, federation, LocalRunner(config, federation))
        yield simulation.events(), simulation.stop
        return
    from raysim.actors import cluster, coordinator

    address = config.resources.address
    nbytes = federation.dataset.train.x.nbytes + federation.dataset.test.x.nbytes
    with cluster.own_cluster(capacity) if address is None else cluster.joined_cluster(address) as there:
        remote = coordinator.Remote(config, federation, resources.place(config, there, nbytes))
        with closing(remote.events()) as events:  # the actors end before their cluster does
            yield events, remote.stop


@contextmanager
def _interruptible(stop: Callable[[], None], display: Display) -> Iterator[None]:
    """Let the first Ctrl-C end the round in progress; let the second, and SIGTERM, leave at once but tidily."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(signum: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # in a thread of its own: the main one may be inside a call to Ray, which cannot be entered twice
        threading.Thread(target=stop, daemon=True).start()
        display.say("stopping after this round; Ctrl-C again leaves at once")

    handlers = {signal.SIGINT: first, signal.SIGTERM: signal.default_int_handler}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)  # none: what was there did not come from Python


def _default_directory(config: Config) -> Path:
    return Path("runs") / config.name / f"seed-{config.seed}" / datetime.now().strftime("%Y%m%d-%H%M%S")


def versions() -> dict[str, str | None]:
    """Return what the result depends on: python, torch, ray, raysim, and raysim's git commit where it has one."""
    return {
        "python": platform.python_version(),
        **{package: _version(package) for package in ("torch", "ray", "raysim")},
        "git": _commit(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        known = subprocess.run(
            ["git", "ls-files", "--error-unmatch", __file__], cwd=here, capture_output=True, timeout=5
        )
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() or None if known.returncode == 0 else None
