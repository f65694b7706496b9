"""A killed run is recognized when it is read: no summary.json, and no process that holds its directory's lock."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.config import load
from raysim.records.run_directory import find_interruption
from raysim.sweeps.cells import Cell
from raysim.sweeps.directory import find_progress
from raysim.system.errors import ConfigError
from raysim.system.files import lock_directory

AFTER = 5  # the round after which the run is killed
KILLED = f"""
import os, signal, sys
import raysim
from raysim.engine.events import RoundDone
from raysim.launch.display import RunDisplay

class Dies(RunDisplay):
    def take(self, event):
        if isinstance(event, RoundDone) and event.round == {AFTER}:
            os.kill(os.getpid(), signal.SIGKILL)

raysim.run(sys.argv[1], out=sys.argv[2], local=True, display=Dies())
"""
ASYNCHRONOUS = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}}


@pytest.fixture
def config(tiny: Any) -> Any:
    """3 clients, two of which take part in each of 2 x 4 rounds; a checkpoint every 3."""
    return lambda **more: tiny(
        training__rounds_per_task=4, checkpoint={"every_rounds": 3}, logging={"tensorboard": False}, **more
    )


@pytest.mark.parametrize(
    "setting", [{"participation": {"count": 2}}, {"schedule": ASYNCHRONOUS}], ids=["in step", "not"]
)
def test_a_killed_run_says_so_when_it_is_read_and_resumes_with_the_same_bits(
    setting: dict[str, Any], config: Any, tmp_path: Path
) -> None:
    """Killed after round 5 of 8; its newest checkpoint is of round 3, so rounds 4 and 5 are computed again."""
    undisturbed = raysim.run(config(**setting), out=tmp_path / "undisturbed", local=True)
    path, out = tmp_path / "undisturbed" / "config.yaml", tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(path), str(out)]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL
    assert not (out / "summary.json").exists()
    assert not list(out.glob(".*"))
    with pytest.raises(
        ConfigError,
        match=rf"was killed; resume it, with --trust if it has .*: raysim run --resume --out {out}$",
    ):
        raysim.load(out)
    assert find_interruption(out) == "the process ended in the middle of the run"
    assert find_progress(Cell("out", load(path), {}, {}), tmp_path) == "unfinished"

    again = raysim.run(None, out=out, local=True, resume=True)
    assert (again.status, again.rounds) == ("done", 8)
    assert (again.model_sha256, again.evaluation) == (undisturbed.model_sha256, undisturbed.evaluation)
    assert (again.recoveries, again.rounds_recomputed) == (1, 2)


def test_a_run_whose_directory_is_locked_is_under_way(tmp_path: Path) -> None:
    with lock_directory(tmp_path, "run"):
        (tmp_path / "rounds.jsonl").touch()
        with pytest.raises(ConfigError, match=r"no summary\.json yet: the run is under way$"):
            raysim.load(tmp_path)
    with pytest.raises(ConfigError, match="the run was killed"):
        raysim.load(tmp_path)
    (tmp_path / "FL + ER").mkdir()
    (tmp_path / "FL + ER" / "rounds.jsonl").touch()
    with pytest.raises(ConfigError, match=rf"raysim run --resume --out '{tmp_path}/FL \+ ER'$"):
        raysim.load(tmp_path / "FL + ER")
    (tmp_path / "rounds.jsonl").unlink()
    with pytest.raises(ConfigError, match="No such file or directory; allowed: the directory of a run that ended"):
        raysim.load(tmp_path)


def test_a_summary_of_an_older_version_that_says_killed_is_read(config: Any, tmp_path: Path) -> None:
    raysim.run(config(), out=tmp_path / "out", local=True)
    path = tmp_path / "out" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "failed", "killed": True}))
    assert raysim.load(tmp_path / "out").status == "failed"
    assert find_interruption(tmp_path / "out") == "the run failed"
