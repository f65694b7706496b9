"""Ctrl-C twice while a host is at work: the run ends at once, and so do its actors on a cluster that stays."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_recovery import LIMIT, actors

import raysim
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Presses(RunDisplay):
    """Presses Ctrl-C in round 3, and again a moment after it is said what the run then waits for.

    Pressed at once after round 2, the coordinator may hear of it before round 3 has begun, and then ends the run.
    """

    def __init__(self) -> None:
        self.said: list[str] = []
        self.hosts = 0

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone) and event.round == 2:
            self.hosts = len(actors("Host"))
            threading.Timer(1.0, press).start()

    def say(self, text: str) -> None:
        self.said.append(text)
        threading.Timer(0.3, press).start()


def test_the_second_interrupt_leaves_at_once(small: dict[str, Any], tmp_path: Path) -> None:
    """Round 3 takes ten minutes. Of a command, and of its own cluster, test_cleanup.py shows the same at length."""
    keys = {"methods": {"misbehaving:Misbehaving": {"what": "sleep"}}, "resources.clients_per_actor": 4}
    shown = Presses()
    with pytest.raises(KeyboardInterrupt):
        raysim.run(small, keys, out=tmp_path / "out", display=shown)
    (line,) = shown.said
    assert line.startswith("finishing round 3 of 6, then stopping with a checkpoint; Ctrl-C again leaves at once")
    result = raysim.load(tmp_path / "out")
    assert (result.status, result.rounds, shown.hosts) == ("interrupted", 2, 1)
    limit = time.monotonic() + LIMIT
    while actors("Host") or actors("Coordinator"):
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.1)
