"""Nothing is lost: a process of a run is killed, and the run ends with the bits of an undisturbed one.

Which process and which moment are drawn with a seed. A run here has 2 tasks of 6 rounds and a checkpoint every 3.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import raysim
from raysim.events import Event, RoundDone

pytestmark = pytest.mark.ray

Facts = Callable[[raysim.Result], Mapping[str, Any]]

EVERY = 3
ROUNDS = 12
SETTINGS = {
    "synchronous": {
        "methods": {"scaffold": {}, "der": {}, "fed_a_gem": {}, "special": {}},
        "participation": {"count": 3},
        "training.optimizer": {"lr": 0.05},
    },
    "asynchronous": {
        "methods": {"der": {}, "fed_a_gem": {"reference": "with_update"}},
        "schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}},
        "training.optimizer": {"lr": 0.05},
    },
}
COMMON = {
    "training.rounds_per_task": ROUNDS // 2,
    "checkpoint.every_rounds": EVERY,
    "logging.tensorboard": False,
}


class Killer:
    """Kills one process of this run after a round, a moment later; shows nothing."""

    def __init__(self, name: str, after: int, delay: float) -> None:
        self.name, self.after, self.delay = name, after, delay
        self.killed = 0
        self.told: list[str] = []

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone) and event.round == self.after and not self.killed:
            self.killed = 1
            threading.Timer(self.delay, self._kill).start()

    def say(self, text: str) -> None:
        self.told.append(text)

    def _kill(self) -> None:
        for process in psutil.Process().children(recursive=True):
            if process.is_running() and process.name().startswith(f"ray::{self.name}"):
                process.kill()
                return


def overrides(setting: str) -> dict[str, Any]:
    return {**COMMON, **SETTINGS[setting]}


@pytest.fixture(scope="module")
def here(small: dict[str, Any], facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each setting's run comes to, undisturbed and in this process: the oracle."""
    out = tmp_path_factory.mktemp("local")
    return {name: facts(raysim.run(small, overrides(name), out=out / name, local=True)) for name in SETTINGS}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", ["Host", "Coordinator"])
def test_an_actor_is_killed(
    name: str, setting: str, small: dict[str, Any], here: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    draws = random.Random(f"{name}, {setting}")
    killer = Killer(name, draws.randint(1, ROUNDS - 2), draws.uniform(0, 0.02))
    way = {**overrides(setting), "resources.clients_per_actor": 2}
    result = raysim.run(small, way, out=tmp_path / "out", display=killer)
    assert facts(result) == here[setting]
    if result.recoveries:  # the run may have ended before it was hit
        (told,) = killer.told
        assert re.fullmatch(
            r"(the host of clients .*|the coordinator|a process) died: .*; going on from round \d+", told
        )
    assert result.recoveries == len(killer.told) <= 1
    assert result.rounds_recomputed <= EVERY


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_driver_is_killed_and_another_packing_goes_on(
    setting: str, small: dict[str, Any], here: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    """Killed where checkpoints were made with one client per actor; resumed in this process."""
    draws = random.Random(setting)
    config, out = tmp_path / "config.yaml", tmp_path / "out"
    config.write_text(yaml.safe_dump(small))
    given = [f"{key}={json.dumps(value)}" for key, value in overrides(setting).items()]
    command = [sys.executable, "-m", "raysim", "run", str(config), "--out", str(out), "--quiet", *given]
    with subprocess.Popen(command, start_new_session=True) as run:
        after, limit = draws.randint(EVERY + 1, ROUNDS - 2), time.monotonic() + 120
        while rounds(out) < after and run.poll() is None:
            assert time.monotonic() < limit, "waited too long"
            time.sleep(0.01)
        os.kill(run.pid, signal.SIGKILL)
    before = rounds(out)
    result = raysim.run(None, out=out, local=True, resume=True)
    assert facts(result) == here[setting]
    assert result.recoveries == 1
    assert (before - result.rounds_recomputed) % EVERY == 0  # the round that was gone back to
    assert result.rounds_recomputed <= EVERY


def rounds(out: Path) -> int:
    path = out / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0
