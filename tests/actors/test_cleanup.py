"""However a run ends, it says so in summary.json and leaves no process and no temporary file behind."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import matplotlib
import psutil
import pytest
import torch
import yaml

import raysim as raysim_here

pytestmark = pytest.mark.ray

HERE = Path(__file__).parent
SCRIPT = str(Path(sys.executable).with_name("raysim"))  # as a user starts it: the working directory is not in its path
LIMIT = 120  # seconds until a hang is a hang
MARK = "RAYSIM_TEST"  # in the environment, which all processes of a run inherit

MANY_RUNS_ON_RAY = {4: (0, 2), 30: (0, 15, 29)}  # which of so many runs have a cluster; the others are local
FAIL = ["methods={misbehaving:Misbehaving: {}}", "checkpoint.tries=1"]  # of the second run that has one
POOLS = ("default-executo", "event_engine", "resolver-execut")  # of gRPC, in Ray: on a busy machine they grow
MANY_RUNS = f"""
import gc, json, os, psutil, sys, time
from contextlib import suppress
from pathlib import Path
me, results, held = psutil.Process(), [], []
runs, on_ray, imported = json.loads(sys.argv[3])
if imported:
    import ray
before = dict(os.environ)
import raysim
from raysim.cli import main
def threads():
    names = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            names.append(task.joinpath("comm").read_text().strip())
    return len(names), sum(name not in {POOLS} for name in names)
for number in range(runs):
    there, more = sys.argv[2] + str(number), {{"logging.tensorboard": False}}
    if number == on_ray[1]:
        assert main(["run", sys.argv[1], "--out", there, "--quiet", *{FAIL}]) == 1
    else:
        results.append(raysim.run(sys.argv[1], more, out=there, local=number not in on_ray))
    assert before == dict(os.environ)
    gc.collect()
    limit = time.monotonic() + 5  # on a busy machine, threads of Ray's end a moment after it
    while held and threads()[0] > held[-1][1] and time.monotonic() < limit:
        time.sleep(0.1)
    children = len(me.children(recursive=True))
    held.append([me.memory_full_info().uss, *threads(), me.num_fds(), children, len(gc.get_objects())])
assert len({{result.model_sha256 for result in results}}) == 1
print(json.dumps(held))
"""
NO_DASHBOARD = (
    "Ray brings no dashboard without its extra: pip install '.[dashboard]'; that it is asked to listen there alone, "
    "and refused without the extra, is in test_dashboard.py in any case"
)
LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


class Run:
    """A `raysim run` in a process group of its own, as a terminal starts it, with its own temporary directory."""

    def __init__(self, command: list[str], temporary: Path, out: Path) -> None:
        self.mark = str(uuid4())
        self.temporary = temporary
        self.out = out
        self.home = out.parent / "home"
        self.home.mkdir(exist_ok=True)
        own = {MARK: self.mark, "TMPDIR": str(temporary), "HOME": str(self.home)}
        fonts = {"MPLCONFIGDIR": matplotlib.get_cachedir()}  # as looking for them anew takes seconds
        others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        environment = {**others, **own, **fonts}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=HERE,  # where `misbehaving` is
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def end(self, limit: float = LIMIT) -> tuple[int, str, str]:
        """Wait, and return the exit status, the standard output and the standard error."""
        output, errors = self.process.communicate(timeout=limit)
        return self.process.returncode, output, errors

    def interrupt(self) -> None:
        """Press Ctrl-C: the whole process group gets it."""
        os.killpg(self.process.pid, signal.SIGINT)

    def wait_for_rounds(self, rounds: int) -> None:
        lines = self.out / "rounds.jsonl"
        until(lambda: lines.exists() and lines.read_text().count("\n") >= rounds)

    @property
    def summary(self) -> Any:
        return json.loads((self.out / "summary.json").read_text())

    def processes(self) -> list[str]:
        """The command lines of all processes of this run that are alive."""
        return self._of_each(lambda process: [" ".join(process.cmdline())])

    def listening(self, of: str = "") -> list[str]:
        """The addresses that this run's processes listen on, or those of whose command this is a part."""
        return self._of_each(
            lambda process: [
                connection.laddr.ip
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN and of in " ".join(process.cmdline())
            ]
        )

    def _of_each(self, ask: Callable[[psutil.Process], list[str]]) -> list[str]:
        found = []
        for process in psutil.process_iter():
            try:
                if self._has(process) and process.status() != psutil.STATUS_ZOMBIE:
                    found += ask(process)
            except psutil.Error:  # it has ended, or is somebody else's
                continue
        return found

    def _has(self, process: psutil.Process) -> bool:
        """Whether a process is of this run. Some of Ray's wipe out their environment, but they all write logs."""
        folder = f"{self.temporary}/"
        return process.environ().get(MARK) == self.mark or any(
            file.path.startswith(folder) for file in process.open_files()
        )

    def kill(self, name: str) -> None:
        """Kill the run's process of this name."""
        (found,) = [child for child in psutil.Process(self.process.pid).children() if child.name() == name]
        found.kill()

    def assert_nothing_left(self) -> None:
        until(lambda: not self.processes())
        assert list(self.temporary.iterdir()) == []
        assert not (self.home / ".ray").exists()
        assert not [name for name in os.listdir("/dev/shm") if name.startswith("plasma")]


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + LIMIT
    while not holds():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.1)


@pytest.fixture
def config(small: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**small, "clients": {"count": 2}, "resources": {"clients_per_actor": 2}}))
    return path


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """A function that starts `python ARGUMENTS`; what it leaves behind is ended after the test."""
    started = []
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as temporary:  # short: Ray's sockets lie below it

        def run(*command: str) -> Run:
            started.append(Run([*map(str, command)], Path(temporary), tmp_path / "out"))
            return started[-1]

        yield run
        for one in started:
            if one.process.poll() is None:
                one.process.kill()
                one.process.communicate()


@pytest.fixture
def raysim(start: Callable[..., Run], config: Path, tmp_path: Path) -> Callable[..., Run]:
    """A function that starts `raysim run` with the given KEY=VALUEs."""

    def run(*overrides: str) -> Run:
        return start(SCRIPT, "run", str(config), "--out", str(tmp_path / "out"), *overrides)

    return run


def misbehaving(what: str) -> str:
    return f"methods={{misbehaving:Misbehaving: {{what: {what}}}}}"


@pytest.mark.parametrize("runs", [4, pytest.param(30, marks=pytest.mark.soak)])
def test_many_runs_in_one_process_leave_nothing(
    runs: int, start: Callable[..., Run], config: Path, tmp_path: Path
) -> None:
    """Some runs on clusters of their own, the others without, after which the process holds what it did before.

    Of each cluster Ray's own client keeps two sockets, which are closed at the other end, and half a megabyte. The
    second of those runs fails. With few runs, Ray was imported before raysim: its constant for the loopback address is
    then set as a run starts.
    """
    on_ray = MANY_RUNS_ON_RAY[runs]
    run = start("-c", MANY_RUNS, str(config), str(tmp_path / "out"), json.dumps([runs, on_ray, runs == 4]))
    until(lambda: any("Host" in command for command in run.processes()))  # what must be gone is found
    assert [entry.stat().st_mode & 0o777 for entry in run.temporary.iterdir()] == [0o700]
    until(lambda: len(run.listening()) >= 5)  # the GCS, the raylet, its agents, the driver, the actors
    assert set(run.listening()) <= set(LOOPBACK)

    status, output, errors = run.end(runs * LIMIT)
    assert status == 0, errors
    assert_failed("raise", tmp_path / f"out{on_ray[1]}", errors)
    held = json.loads(output)[1:]  # both kinds of run have been there once
    growth = (after - before for before, after in zip(held[0], held[-1], strict=True))
    memory, threads, others, files, children, objects = growth
    assert memory < 16 * 2**20
    assert others < 2  # what else Ray has may grow once, not with every run
    assert threads < 9 * len(on_ray)  # and its pools not with every run without it
    assert files <= 2 * len(on_ray)
    assert children == 0
    assert objects < 8000
    run.assert_nothing_left()


@pytest.mark.soak
def test_a_raylet_that_is_killed_while_ray_starts_is_started_again(raysim: Callable[..., Run]) -> None:
    """Ray's own error for it comes after half a minute."""
    run = raysim("--quiet")
    process = psutil.Process(run.process.pid)
    until(lambda: any(child.name() == "raylet" for child in process.children()))
    run.kill("raylet")
    assert run.end() == (0, "", "")
    assert run.summary["recoveries"] == 0
    run.assert_nothing_left()


@pytest.mark.skipif(find_spec("aiohttp") is None, reason=NO_DASHBOARD)
def test_the_dashboard_listens_on_the_loopback_interface(raysim: Callable[..., Run]) -> None:
    run = raysim("resources.dashboard=true", "training.rounds_per_task=100000", "--quiet")
    run.wait_for_rounds(2)
    until(lambda: bool(run.listening(of="dashboard")))
    assert set(run.listening()) <= set(LOOPBACK)
    run.interrupt()
    run.interrupt()
    assert run.end()[0] == 130


FAILURES = {
    "raise": r"KeyError: 'a mistake of my own' \(Misbehaving\.Client\.finish, .*misbehaving\.py:\d+\); client 1, "
    r"round 3; raysim run --local helps to debug it",
    "send NaN": r"client 1 diverged in round 3 \(Misbehaving\), .*: found nan, allowed: .*may help",
    "die": r"the host of client 1 died 2 times in round 3: its process ended .*; with resources\.clients_per_actor=.*",
}


@pytest.mark.soak
@pytest.mark.parametrize("what", [what for what in FAILURES if what != "raise"])
def test_a_failure_is_told_in_one_line_and_leaves_nothing(what: str, raysim: Callable[..., Run]) -> None:
    """As one of many runs in one process is, whose client raises an error."""
    run = raysim(misbehaving(what), "checkpoint.tries=1", "--quiet")
    status, output, errors = run.end()
    assert (status, output) == (1, "")
    assert_failed(what, run.out, errors)
    run.assert_nothing_left()


def assert_failed(what: str, out: Path, errors: str) -> None:
    *above, last = errors.splitlines()
    assert re.fullmatch(f"the run failed: {FAILURES[what]}", last)
    if what == "raise":  # the traceback of the user's own code stands above the line
        assert above[0] == "Traceback (most recent call last):"
        assert 'raise KeyError("a mistake of my own")' in errors
    else:
        assert above == []
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("failed", 2)


@pytest.mark.soak
def test_the_second_interrupt_leaves_at_once(raysim: Callable[..., Run]) -> None:
    run = raysim(misbehaving("sleep"))  # ten minutes long in round 3
    run.wait_for_rounds(2)
    run.interrupt()
    assert run.process.stdout is not None
    heard = next(line for line in run.process.stdout if "Ctrl-C" in line)
    assert heard.startswith("finishing round 3 of 6, then stopping with a checkpoint; Ctrl-C again leaves at once")
    assert run.process.poll() is None
    run.interrupt()
    assert run.end() == (130, "", "no task was finished, so the accuracy matrix is empty\ninterrupted\n")
    assert run.summary["status"] == "interrupted"
    assert run.summary["rounds"] == 2
    run.assert_nothing_left()


@pytest.mark.soak
def test_a_closed_terminal_ends_a_run_at_once(raysim: Callable[..., Run]) -> None:
    """As SIGTERM does (tests/system/test_interrupts.py); but this signal is sent to the whole process group."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and by a run that inherits that
    try:
        run = raysim("training.rounds_per_task=100000", "--quiet")
    finally:
        signal.signal(signal.SIGHUP, before)
    run.wait_for_rounds(2)
    os.killpg(run.process.pid, signal.SIGHUP)
    assert run.end() == (130, "", "no task was finished, so the accuracy matrix is empty\ninterrupted\n")
    assert run.summary["status"] == "interrupted"
    run.assert_nothing_left()


@pytest.mark.soak
def test_an_interrupted_sweep_goes_on_where_it_was_and_leaves_nothing(
    start: Callable[..., Run], config: Path, tmp_path: Path
) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text("name: s\nbase: config.yaml\ngrid: {seed: [0, 1, 2]}\n")
    sweep = ("-m", "raysim", "sweep", str(path), "--out", str(tmp_path / "sweep"), "--jobs", "2")
    run = start(*sweep, "training.rounds_per_task=100000")
    for seed in (0, 1):
        run.out = tmp_path / "sweep" / f"seed-{seed}"
        run.wait_for_rounds(1)
    run.interrupt()
    status, output, errors = run.end()
    assert (status, errors) == (130, "")
    assert "3 runs: 2 interrupted, 1 not started\n" in output
    assert run.summary["status"] == "interrupted"
    run.assert_nothing_left()
    again = start(*sweep, "--list", "training.rounds_per_task=100000")
    assert [line.split()[1] for line in again.end()[1].splitlines()] == ["interrupted", "interrupted", "new"]


@pytest.mark.parametrize("killed", [("raylet",), pytest.param(("gcs_server", "raylet"), marks=pytest.mark.soak)])
def test_the_loss_of_rays_own_processes_moves_no_bit_and_an_interrupt_lets_the_round_end(
    killed: tuple[str, ...], raysim: Callable[..., Run], config: Path, tmp_path: Path
) -> None:
    """The run resumes from its checkpoint, on another cluster. Ctrl-C then ends it and keeps the model."""
    way = {"training.rounds_per_task": 100000, "checkpoint.every_rounds": 2}
    slow = "methods={misbehaving:Slow: {seconds: 0.2}}"
    run = raysim(slow, "logging.tensorboard=true", *(f"{key}={value}" for key, value in way.items()))
    for name, after in zip(killed, (3, 7), strict=False):
        run.wait_for_rounds(after)
        run.kill(name)
    run.wait_for_rounds(9)
    run.interrupt()
    status, output, errors = run.end()
    assert (status, errors) == (130, "")
    assert [*map(int, re.findall(r"the cluster died: .* resuming from round (\d+)", output))] == [2, 6][: len(killed)]
    assert "(raylet)" not in output  # what Ray would say about it, with a page of its log
    waited_for, words = r"finishing round \d+ of 200000", "Ctrl-C again leaves at once, without one"
    assert re.search(f"^{waited_for}, then stopping with a checkpoint; {words}$", output, re.MULTILINE)
    rounds, summary = len((run.out / "rounds.jsonl").read_text().splitlines()), run.summary
    assert [summary[key] for key in ("status", "recoveries", "rounds")] == ["interrupted", len(killed), rounds]
    run.assert_nothing_left()

    stops = {"test_callbacks_on_ray:Stops": {"last": rounds}}
    raysim_here.run(config, {**way, "callbacks": stops}, out=tmp_path / "alone", local=True)
    there, here = (torch.load(out / "model.pt", weights_only=True) for out in (run.out, tmp_path / "alone"))
    assert {name: tensor.tolist() for name, tensor in there.items()} == {
        name: tensor.tolist() for name, tensor in here.items()
    }


@pytest.mark.soak
def test_a_sweep_goes_on_after_the_loss_of_its_cluster(start: Callable[..., Run], config: Path, tmp_path: Path) -> None:
    """Both runs that were in progress resume from their checkpoints, on another cluster."""
    way = {"training.rounds_per_task": 6, "checkpoint.every_rounds": 2, "logging.tensorboard": False}
    path, out = tmp_path / "sweep.yaml", tmp_path / "sweep"
    path.write_text("name: s\nbase: config.yaml\ngrid: {seed: [0, 1]}\n")
    slow = "methods={misbehaving:Slow: {seconds: 0.3}}"
    given = (slow, *(f"{key}={value}" for key, value in way.items()))
    run = start("-m", "raysim", "sweep", str(path), "--out", str(out), "--jobs", "2", *given)
    for seed in (0, 1):
        run.out = out / f"seed-{seed}"
        run.wait_for_rounds(3)
    run.kill("raylet")
    status, output, errors = run.end()
    assert (status, errors) == (0, "")
    assert len(re.findall(r"seed-\d: the cluster died: .* resuming from round \d", output)) == 2
    for seed in (0, 1):
        run.out = out / f"seed-{seed}"
        assert (run.summary["status"], run.summary["recoveries"]) == ("done", 1)
        alone = raysim_here.run(config, {**way, "seed": seed}, out=tmp_path / f"alone-{seed}", local=True)
        assert run.summary["model_sha256"] == alone.model_sha256
    run.assert_nothing_left()


@pytest.mark.soak
def test_an_interrupt_while_ray_starts_leaves_nothing(raysim: Callable[..., Run]) -> None:
    run = raysim("--quiet")
    until(lambda: any("raylet" in command for command in run.processes()))
    run.interrupt()
    assert run.end()[0] == 130
    run.assert_nothing_left()
