"""Nothing is lost: a process of a run is killed, and the run ends with the bits of an undisturbed one.

A run here has 2 tasks of 6 rounds and a checkpoint every 3. Rounds and delays are drawn with a seed. An actor is killed
while the display is told of an event: the next checkpoint needs the driver, so the run cannot have ended before.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import raysim
from raysim.engine.events import Checkpoint, Event, RolledBack, RoundDone, Started
from raysim.records.checkpoints import Checkpoints
from raysim.system.errors import ConfigError, RunError

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

Facts = Callable[[raysim.Result], Mapping[str, Any]]

EVERY, ROUNDS = 3, 12
LAST = ROUNDS - EVERY - 1  # the last round after which something is killed: a checkpoint is still to come
LIMIT = 120  # seconds until a hang is a hang
SETTINGS = {
    "synchronous": {
        "methods": {
            "scaffold": {},
            "der": {},
            "fed_a_gem": {},
            "special": {},
            "probes:DrawingInPlans": {},
            "beside:Adversarial": {},
        },
        "participation": {"count": 3},
        "training.optimizer": {"lr": 0.05},
    },
    "asynchronous": {
        "methods": {"der": {}, "fed_a_gem": {"reference": "with_update"}, "probes:Drawing": {}},
        "schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}},
        "training.optimizer": {"lr": 0.05},
    },
}
COMMON = {
    "training.rounds_per_task": ROUNDS // 2,
    "checkpoint.every_rounds": EVERY,
    "logging.tensorboard": False,
}
# setting, clients of a host, and what is killed one after the other: before the first round, in a drawn round, or, in a
# thread, while the run goes on after the loss before
KILLS = {
    "a host, synchronous": ("synchronous", 2, ["Host in a round"]),
    "a host, asynchronous": ("asynchronous", 2, ["Host at the start", "Host in a round"]),
    "the coordinator, synchronous": ("synchronous", 4, ["Coordinator in a round", "Host going on"]),
    "the coordinator, asynchronous": ("asynchronous", 4, ["Coordinator in a round"]),
}
SOAKED = ("a host, synchronous", "the coordinator, asynchronous")


def slow(setting: str, seconds: float) -> dict[str, Any]:
    """The setting with phases of client 1 that take so much longer, of which no bit of the run knows."""
    chosen = SETTINGS[setting]
    return {**COMMON, **chosen, "methods": {**chosen["methods"], "misbehaving:Slow": {"seconds": seconds}}}


@pytest.fixture(scope="module")
def here(small: dict[str, Any], facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each setting's run comes to, undisturbed, in this process and with no slow client: the oracle."""
    out = tmp_path_factory.mktemp("local")
    ways = {name: {**COMMON, **SETTINGS[name]} for name in SETTINGS}
    return {name: facts(raysim.run(small, ways[name], out=out / name, local=True)) for name in ways}


class Killer:
    """Kills processes of this run, one after the other; shows nothing."""

    def __init__(self, kills: list[str], draws: random.Random) -> None:
        self.left = list(kills)
        self.killed: list[str] = []
        self.told: list[str] = []
        self.threads: list[threading.Thread] = []
        self.old: list[psutil.Process] = []
        self.after, self.delay = draws.randint(1, LAST), draws.uniform(0, 0.1)

    def take(self, event: Event) -> None:
        if isinstance(event, RolledBack):
            self.old = actors("")  # which may take a moment to end
            self.say(f"{event.why}; resuming from round {event.round}")
            return
        if len(self.told) < len(self.killed):
            return  # the run has not noticed the last loss yet: a second one would count as the same
        name, _, when = self.left[0].partition(" ") if self.left else ("", "", "")
        if (when == "at the start" and isinstance(event, Started)) or (
            when == "in a round" and isinstance(event, RoundDone) and event.round == self.after
        ):
            time.sleep(self.delay if when == "in a round" else 0)
            self._kill(next(process for process in actors(name) if process not in self.old))

    def say(self, text: str) -> None:
        self.told.append(text)
        if self.left and self.left[0].endswith("going on"):
            name = self.left[0].partition(" ")[0]
            self.threads.append(threading.Thread(target=self._kill_a_new, args=(name, actors(name))))
            self.threads[-1].start()

    def _kill_a_new(self, name: str, before: list[psutil.Process]) -> None:
        limit = time.monotonic() + LIMIT
        while time.monotonic() < limit:
            for process in actors(name):
                if process not in before:
                    self._kill(process)
                    return
            time.sleep(0.01)

    def _kill(self, process: psutil.Process) -> None:
        process.kill()
        self.killed.append(self.left.pop(0))


def actors(name: str) -> list[psutil.Process]:
    """This process's actors of a class."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if process.name().startswith(f"ray::{name}"):
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.soak) if case in SOAKED else case for case in KILLS]
)
def test_actors_are_killed(
    case: str, small: dict[str, Any], here: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    setting, clients, kills = KILLS[case]
    killer = Killer(kills, random.Random(case))
    way = {**slow(setting, 0.1), "resources.clients_per_actor": clients}
    result = raysim.run(small, way, out=tmp_path / "out", display=killer)
    for thread in killer.threads:
        thread.join()
    assert killer.killed == kills
    assert facts(result) == here[setting]
    assert result.recoveries == len(killer.told) == len(kills)
    for told in killer.told:
        assert re.fullmatch(
            r"(the host of clients? .*|the coordinator|a host|a process) died: .*; resuming from round \d+", told
        )
    back = [loss["back_to_round"] for loss in losses(tmp_path / "out")]
    # the last checkpoint before the round that was taken when it was killed, or the next one, if that came through yet
    before = (killer.after - 1) // EVERY * EVERY
    after = {"at the start": 0, "in a round": before, "going on": before}
    expected = [after[kill.partition(" ")[2]] for kill in kills]
    assert all(round in (least, least + EVERY) for round, least in zip(back, expected, strict=True)), back
    again = [loss["rounds_recomputed"] for loss in losses(tmp_path / "out")]
    assert result.rounds_recomputed == sum(again)
    assert max(again) <= EVERY


@pytest.mark.parametrize(
    ("setting", "elsewhere"),
    [pytest.param("synchronous", "local", marks=pytest.mark.soak), ("asynchronous", "ray")],
)
def test_the_driver_is_killed_and_another_packing_goes_on(
    setting: str, elsewhere: str, small: dict[str, Any], here: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    """Killed where checkpoints were made with all clients in one actor; resumed in this process, or with two actors."""
    draws = random.Random(setting)
    config, out = tmp_path / "config.yaml", tmp_path / "out"
    config.write_text(yaml.safe_dump(small))
    way = {**slow(setting, 0.2), "resources.clients_per_actor": 4}
    given = [f"{key}={json.dumps(value)}" for key, value in way.items()]
    command = [sys.executable, "-m", "raysim", "run", str(config), "--out", str(out), "--quiet", *given]
    with (
        tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as temporary,
        subprocess.Popen(
            command, start_new_session=True, env={**os.environ, "TMPDIR": temporary}, stderr=subprocess.PIPE, text=True
        ) as run,
    ):
        after, limit = draws.randint(EVERY + 1, LAST), time.monotonic() + LIMIT
        try:
            while rounds(out) < after and run.poll() is None:
                assert time.monotonic() < limit, "waited too long"
                time.sleep(0.01)
        finally:
            os.kill(run.pid, signal.SIGKILL)
        _, errors = run.communicate(timeout=LIMIT)
        assert errors == ""
        while os.listdir(temporary):  # the reaper clears it
            assert time.monotonic() < limit, "waited too long"
            time.sleep(0.05)
        assert not [process for process in psutil.process_iter() if writes_below(process, temporary)]
    assert run.returncode == -signal.SIGKILL
    before = rounds(out)
    with pytest.raises(ConfigError, match=f"the run was killed; resume it, .*: raysim run --resume --out {out}"):
        raysim.load(out)
    packing = {"resources.clients_per_actor": 2}
    result = raysim.run(None, packing, out=out, local=elsewhere == "local", resume=True, trust=True)
    assert facts(result) == here[setting]
    assert result.recoveries == 1
    assert (before - result.rounds_recomputed) % EVERY == 0  # the round that was gone back to
    assert result.rounds_recomputed <= EVERY


def losses(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "checkpoints" / "losses.jsonl").read_text().splitlines()]


def writes_below(process: psutil.Process, folder: str) -> bool:
    try:
        return any(file.path.startswith(f"{folder}/") for file in process.open_files())
    except (psutil.Error, FileNotFoundError):  # it has ended; psutil lets the second through while it does
        return False


def rounds(out: Path) -> int:
    path = out / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_disk_that_fills_ends_a_run_on_ray_too(
    small: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second checkpoint is not written: the coordinator, which waits for it, ends, and the first one stays."""
    writes, write = [], Checkpoints.write

    def full(kept: Checkpoints, checkpoint: Checkpoint, recorded: Mapping[str, Any]) -> None:
        writes.append(checkpoint.round)
        if len(writes) == 2:
            raise RunError("the disk is full")
        write(kept, checkpoint, recorded)

    monkeypatch.setattr(Checkpoints, "write", full)
    way = {**COMMON, **SETTINGS["synchronous"], "resources.clients_per_actor": 4}
    with pytest.raises(RunError, match="the disk is full") as found:
        raysim.run(small, way, out=tmp_path / "out")
    assert writes == [EVERY, 2 * EVERY]
    assert f"resume from round {EVERY}: raysim run --resume" in found.value.__notes__[0]
    limit = time.monotonic() + LIMIT
    while actors("Host") or actors("Coordinator"):
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.05)
