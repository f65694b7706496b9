"""What raysim uses of Ray's internals: when it goes without, and that a cluster which others could reach is refused."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_configs import TINY

from raysim.actors import compat, workers
from raysim.actors.cluster import cluster_of
from raysim.config import load
from raysim.system.capacity import CAN_FORK, Capacity
from raysim.system.errors import ConfigError

OPEN = """
import raysim, socket
from raysim.actors import compat
from raysim.system.capacity import Capacity
compat.import_ray(loopback=False)  # as if the variable were not read
from raysim.actors import starting
from contextlib import nullcontext
compat.rays_address = lambda loopback: nullcontext()
try:
    with starting.own_cluster(Capacity(1, 0, None), forked=False):
        print("started")
except raysim.RunError as error:
    print(error)
import ray, psutil
print(ray.is_initialized(), [child.name() for child in psutil.Process().children() if child.name() == "raylet"])
"""


@pytest.mark.parametrize(
    ("installed", "why"),
    [
        ("2.60.0", None),
        ("2.60.3", None),
        ("2.60.0rc1", None),
        ("2.52.1", "Ray 2.52.1 is outside the tested range 2.56 to 2.60"),
        ("2.61.0", "Ray 2.61.0 is outside the tested range 2.56 to 2.60"),
        ("3.0.0.dev0", "Ray 3.0.0.dev0 is outside the tested range 2.56 to 2.60"),
    ],
)
def test_outside_the_tested_range_ray_is_used_plainly(
    installed: str, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAYSIM_PLAIN_RAY", raising=False)
    monkeypatch.setattr(compat, "version", lambda name: installed)
    assert compat.why_plain() == why
    monkeypatch.setenv("RAYSIM_PLAIN_RAY", "1")
    assert compat.why_plain() == "RAYSIM_PLAIN_RAY is set"


def test_the_plain_mode_leaves_out_all_that_saves_time_or_memory(
    tiny: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compat, "version", lambda name: "2.61.0")
    options = compat.own_options(tmp_path, dashboard=False)
    assert (options["_system_config"], options["_node_ip_address"]) == ({}, "127.0.0.1")
    assert workers.choose_start(tiny().resources, ["a node"]) == ([{}], None)


@pytest.mark.skipif(not CAN_FORK, reason="workers are forked on Linux alone; elsewhere the config refuses `forked`")
def test_one_line_says_so_and_forked_workers_are_refused(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "version", lambda name: "2.61.0")
    said: list[str] = []
    cluster_of([tiny(), tiny()], Capacity(1, 0, None), said.append)
    start = "Ray spawns the workers, and each imports torch: "
    assert said == [f"{start}Ray 2.61.0 is outside the tested range 2.56 to 2.60"]
    cluster_of([load(tiny(), {"resources.workers": "spawned"})], Capacity(1, 0, None), said.append)
    assert len(said) == 1
    with pytest.raises(ConfigError, match=r"^resources\.workers: found forked, but Ray 2\.61\.0 is outside the tested"):
        cluster_of([load(tiny(), {"resources.workers": "forked"})], Capacity(1, 0, None), said.append)


def test_variables_are_removed_with_those_that_ray_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_GIVEN", "mine")
    before = dict(os.environ)
    with compat.variables({"RAY_GIVEN": "other", "RAY_NEW": "1", "MALLOC_NEW_": "2"}):
        assert (os.environ["RAY_GIVEN"], os.environ["RAY_NEW"], os.environ["MALLOC_NEW_"]) == ("mine", "1", "2")
        os.environ["RAY_SET_BY_RAY"] = "3"
    assert dict(os.environ) == before


@pytest.mark.ray
def test_a_cluster_that_others_could_reach_is_refused(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ran = subprocess.run(
        [sys.executable, "-c", OPEN],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stderr == ""
    line, after = ran.stdout.splitlines()
    assert line.startswith("Ray was stopped: other machines might reach it (it uses ")
    assert line.endswith("; allowed: 127.0.0.1 alone")
    assert after == "False []"


def test_only_the_monitors_of_the_cluster_in_the_folder_are_killed(tmp_path: Path) -> None:
    """A user's own monitor.py, and the cluster's other processes, are left alone."""
    waits = [sys.executable, "-c", "import time; time.sleep(600)"]
    ours = f"--logs-dir={tmp_path}/logs"
    arguments = [
        ["/ray/monitor.py", ours],
        ["/ray/log_monitor.py", ours],
        ["/mine/monitor.py"],
        ["/ray/agent.py", ours],
    ]
    children = [subprocess.Popen([*waits, *each]) for each in arguments]
    try:
        compat.end_monitors(tmp_path)
        assert [child.wait(timeout=60) for child in children[:2]] == [-signal.SIGKILL] * 2
        assert [child.poll() for child in children[2:]] == [None] * 2
    finally:
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.ray
def test_a_run_below_uv_run_starts_in_each_folder(tmp_path: Path) -> None:
    """Ray would ask for pyproject.toml in the current folder, and upload what is there."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'mine'\nversion = '0'\n")
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "run").write_text("import subprocess, sys\nsys.exit(subprocess.call(sys.argv[1:]))\n")
    (folder / "tiny.yaml").write_text(json.dumps(TINY))
    # Ray looks for an ancestor with the command line `uv run`
    below = f"exec -a uv {sys.executable} run {sys.executable} -m raysim run tiny.yaml --out out"
    done = subprocess.run(["bash", "-c", below], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, "working_dir" in done.stderr) == (0, False), done.stderr
