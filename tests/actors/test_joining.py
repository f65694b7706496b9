"""Joining a cluster that `ray start` started, with a token and without: a run, or one line within seconds."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import raysim
from raysim.actors.compat import CLUSTER_VARIABLE, MODE, RAYLET_VARIABLE
from raysim.actors.fork_server import FIRST
from raysim.estimate.memory import PROCESS_BYTES

pytestmark = pytest.mark.ray

LIMIT = 120  # seconds until a hang is a hang
ENOUGH = {"status": "done", "rounds": 6}


@dataclass
class Head:
    """A cluster of one node on the loopback interface, and the home folder with its token."""

    address: str
    home: Path
    process: psutil.Process

    def environment(self, home: Path) -> dict[str, str]:
        return {**_bare(), "HOME": str(home)}


def _bare() -> dict[str, str]:
    """The environment without what this process's own Ray put there."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        (Path(folder) / ".ray").mkdir()
        (Path(folder) / ".ray" / "auth_token").write_text(secrets.token_hex(32))
        # before 2.60 a cluster asks for its token in this mode only
        environment = {**_bare(), "HOME": folder, CLUSTER_VARIABLE: "0", MODE: "token"}
        command = ["start", "--head", "--block", "--num-cpus=2", f"--port={port}", "--node-ip-address=127.0.0.1"]
        more = ["--include-dashboard=false", "--disable-usage-stats", f"--temp-dir={folder}/t"]
        ray = Path(sys.executable).with_name("ray")
        process = subprocess.Popen([ray, *command, *more], env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout
            assert any("Ray runtime started" in line for line in process.stdout)
            yield Head(f"127.0.0.1:{port}", Path(folder), psutil.Process(process.pid))
        finally:
            process.terminate()
            process.communicate(timeout=LIMIT)


def run(config: dict[str, Any], environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    return raysim_does(["run", "--out", "out", "--quiet"], config, environment, folder)


def raysim_does(
    words: list[str], config: dict[str, Any], environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "raysim", *words, "config.yaml"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)


@pytest.fixture
def config(small: dict[str, Any], head: Head) -> dict[str, Any]:
    return {**small, "resources": {"address": head.address, "clients_per_actor": 4}}


def test_a_run_shows_the_token_and_leaves_the_cluster_as_it_was(
    config: dict[str, Any], head: Head, tmp_path: Path
) -> None:
    config["resources"]["workers"] = "spawned"  # so that each process has its own torch
    ended = run(config, head.environment(head.home), tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    result = raysim.load(tmp_path / "out")
    assert {key: getattr(result, key) for key in ENOUGH} == ENOUGH
    assert result.actors == 2
    # of this process alone it would be less than half of it; a process of tests has imported more than an actor
    assert result.peak_memory_bytes > 2.5 * min(PROCESS_BYTES, 335 * 2**20)
    until = time.monotonic() + LIMIT  # the cluster ends actors after their driver has left
    while actors := [name for name in names_below(head.process) if "Host" in name or "Coordinator" in name]:
        assert time.monotonic() < until, actors
        time.sleep(0.2)
    assert any("raylet" in name for name in names_below(head.process))


def names_below(process: psutil.Process) -> list[str]:
    found = []
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.append(" ".join(child.cmdline()))
    return found


def test_without_the_token_one_line_says_where_it_is(config: dict[str, Any], head: Head, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    ended = run(config, head.environment(home), tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(
        f"resources.address: the cluster at {head.address} requires a token: set RAY_AUTH_MODE="
    )
    assert ended.stderr.count("\n") == 1
    assert not (home / ".ray").exists()


def test_a_check_asks_the_cluster_where_the_actors_would_go(config: dict[str, Any], head: Head, tmp_path: Path) -> None:
    ended = raysim_does(["check"], config, head.environment(head.home), tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    where = f"at {head.address}, 1 on 1 node (of 1 node with 2 CPUs, 0 GPUs)"
    assert f"1 coordinator and 1 host {where}; each host has 4 clients, 1 CPU, 0 GPUs\n" in ended.stdout
    assert "on a node with 1 host," in ended.stdout


def processes(head: Head) -> list[str]:
    """What the cluster's workers are doing; those that a server forked have the environment of who started it."""
    raylets, found = [str(p.pid) for p in head.process.children(recursive=True) if p.name() == "raylet"], []
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or is another user's
            if process.name().startswith("ray::"):
                found += [process.name()] * (process.environ().get(RAYLET_VARIABLE) in raylets)
    return found


def servers(head: Head) -> list[psutil.Process]:
    """The fork servers of the cluster's runs."""
    raylets, found = [str(p.pid) for p in head.process.children(recursive=True) if p.name() == "raylet"], []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            named = any("fork_server.py" in part for part in process.cmdline())
            found += [process] * (named and process.environ().get(RAYLET_VARIABLE) in raylets)
    return [process for process in found if not process.name().startswith("ray::")]


@pytest.mark.soak
def test_a_fork_server_ends_with_its_run_even_if_the_command_is_killed(
    config: dict[str, Any], head: Head, tmp_path: Path
) -> None:
    """It used to wait a minute. Half of that is allowed here, and it takes five seconds and what Ray does."""
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    words = ["run", "config.yaml", "--out", "long", "--quiet", "training.rounds_per_task=100000"]
    rounds, limit = tmp_path / "long" / "rounds.jsonl", time.monotonic() + LIMIT
    with subprocess.Popen(
        [sys.executable, "-m", "raysim", *words], cwd=tmp_path, env=head.environment(head.home)
    ) as long:
        try:
            while not rounds.exists() or not rounds.read_text():
                assert time.monotonic() < limit, "waited too long"
                time.sleep(0.05)
            assert servers(head)
        finally:
            long.kill()
    limit = time.monotonic() + FIRST / 2
    while left := servers(head):
        assert time.monotonic() < limit, left
        time.sleep(0.1)


@pytest.mark.soak
def test_a_failure_and_two_interrupts_leave_no_actor_on_the_cluster(
    config: dict[str, Any], head: Head, tmp_path: Path
) -> None:
    environment, limit = head.environment(head.home), time.monotonic() + LIMIT
    failed = run(config | {"methods": {"fedavgm": {"lr": 1e30}}}, environment, tmp_path)
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1), failed.stderr
    assert "diverged in round" in failed.stderr

    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    words = ["run", "config.yaml", "--out", "long", "--quiet", "training.rounds_per_task=100000"]
    rounds = tmp_path / "long" / "rounds.jsonl"
    with subprocess.Popen([sys.executable, "-m", "raysim", *words], cwd=tmp_path, env=environment) as long:
        try:
            while not rounds.exists() or not rounds.read_text():
                assert time.monotonic() < limit, "waited too long"
                time.sleep(0.05)
            assert any("Host" in name for name in processes(head))
            for _ in range(2):
                long.send_signal(signal.SIGINT)
                time.sleep(0.2)
            assert long.wait(LIMIT) == 130
            assert raysim.load(rounds.parent).status == "interrupted"
        finally:
            long.kill()
    while any("Host" in name or "Coordinator" in name for name in processes(head)):
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.05)
