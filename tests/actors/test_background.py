"""A cluster that starts beside the imports: which thread starts and stops it, and what is heard of a failure."""

import os
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raysim import cli
from raysim.actors import background, cluster
from raysim.actors.background import EarlyCluster, open_cluster
from raysim.system.capacity import Capacity
from raysim.system.errors import RunError

LIMIT = 20  # seconds until a hang is a hang


class Rays:
    """In place of Ray: notes which thread does what, and starts when it may."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int]] = []
        self.may_start = threading.Event()
        self.error: Exception | None = None

    def note(self, what: str) -> None:
        self.log.append((what, threading.get_ident()))

    def start(self, capacity: Capacity, dashboard: bool, session: object) -> None:
        assert self.may_start.wait(LIMIT)
        self.note("start")
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.note("stop")


@pytest.fixture
def rays(monkeypatch: pytest.MonkeyPatch) -> Rays:
    made = Rays()

    @contextmanager
    def session(forked: bool) -> Iterator[Any]:
        yield Namespace(announce=lambda *told: None, abandon=lambda: made.note("abandon"))
        made.note("close")

    monkeypatch.setattr(cluster, "start_own", made.start)
    monkeypatch.setattr(cluster, "stop_own", made.stop)
    monkeypatch.setattr(background, "open_session", session)
    return made


def opened() -> Any:
    return open_cluster(lambda: Capacity(1, 0, None), False, False)


def enter(early: EarlyCluster) -> Any:
    return early.running(Path("config.yaml"), "raysim run")


def test_the_thread_that_starts_ray_stops_it_and_lives_until_then(rays: Rays) -> None:
    """The kernel ends Ray's processes with the thread that has started them."""
    rays.may_start.set()
    with opened() as early:
        with enter(early):
            (starting,) = [thread for what, thread in rays.log if what == "start"]
            assert starting != threading.get_ident()
            assert starting in [thread.ident for thread in threading.enumerate()]
            rays.note("run")
        assert rays.log[-1] == ("stop", starting)
    assert [what for what, _ in rays.log] == ["start", "run", "stop", "close"]


def test_a_run_that_is_refused_meanwhile_waits_for_nothing(rays: Rays) -> None:
    with pytest.raises(ZeroDivisionError), opened() as early:
        raise ZeroDivisionError
    assert [what for what, _ in rays.log] == ["abandon"]
    rays.may_start.set()  # as in a process that goes on
    early._thread.join(LIMIT)
    assert [what for what, _ in rays.log] == ["abandon", "start", "stop"]


def test_a_failure_to_start_is_the_runs(rays: Rays) -> None:
    rays.may_start.set()
    rays.error = RunError("Ray could not start (no); start the run again")
    with pytest.raises(RunError, match=r"^Ray could not start \(no\)"), opened() as early, enter(early):
        pytest.fail("it runs")
    assert [what for what, _ in rays.log] == ["start", "stop"]


def test_an_interrupt_while_ray_starts_waits_for_nothing(rays: Rays) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background would ignore it
    threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
    try:
        with pytest.raises(KeyboardInterrupt), opened() as early, enter(early):
            pytest.fail("it runs")
    finally:
        signal.signal(signal.SIGINT, before)
    assert "abandon" in [what for what, _ in rays.log]
    rays.may_start.set()


@pytest.mark.parametrize("gpus", [0, 0.5])
def test_torch_is_waited_for_only_by_a_run_that_wants_gpus(
    gpus: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only torch says how many there are, and its import takes longer than all others."""
    (tmp_path / "one.yaml").write_text(
        "{name: one, dataset: {name: digits}, scenario: {kind: class_incremental, tasks: 1}, model: {name: mlp}, "
        "clients: {count: 1}, training: {rounds_per_task: 1}}"
    )
    given: list[Any] = []
    monkeypatch.setattr(background, "open_cluster", lambda *all_of: given.extend(all_of))
    asked = {"out": None, "local": False, "resume": False, "overrides": [f"resources.gpus_per_actor={gpus}"]}
    cli._cluster(Namespace(config=str(tmp_path / "one.yaml"), **asked))
    monkeypatch.setitem(sys.modules, "torch", None)  # its import fails
    if gpus:
        with pytest.raises(ImportError):
            given[0]()
    else:
        assert given[0]().gpus == 0
