"""A run from a config to its directory: check, start, record, end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

from raysim import resources, seeding
from raysim.compatibility import check_methods
from raysim.config import Config, load
from raysim.course import Course
from raysim.display import Display, Silence
from raysim.events import Event
from raysim.federation import Federation, build_federation
from raysim.footprint import Footprint
from raysim.local import LocalRunner
from raysim.models.building import check_model
from raysim.recording import claim
from raysim.result import Result
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
        with (
            Footprint() as footprint,
            _events(resolved, federation, capacity, local) as (events, stop),
            Course(resolved, federation, directory, began) as course,
        ):
            return _record(course, events, stop, footprint, display or Silence())


def _record(
    course: Course,
    events: Iterator[Event],
    stop: Callable[[], None],
    footprint: Footprint,
    display: Display,
) -> Result:
    def end(status: str) -> Result:
        footprint.sample()
        return course.end(status, footprint.peak_bytes)

    try:
        with interruptible(stop, display.say):
            for event in events:
                course.take(event)
                display.take(event)
    except KeyboardInterrupt:
        end("interrupted")
        raise
    except BaseException:
        end("failed")
        raise
    return end(course.status)


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
def interruptible(stop: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """Let the first Ctrl-C end the round in progress; let the second, and SIGTERM, leave at once but tidily."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def first(signum: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # in a thread of its own: the main one may be inside a call to Ray, which cannot be entered twice
        threading.Thread(target=stop, daemon=True).start()
        say("stopping after this round; Ctrl-C again leaves at once")

    handlers = {signal.SIGINT: first, signal.SIGTERM: signal.default_int_handler}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)  # none: what was there did not come from Python


def _default_directory(config: Config) -> Path:
    return Path("runs") / config.name / f"seed-{config.seed}" / datetime.now().strftime("%Y%m%d-%H%M%S")
