"""Where a command's output goes is no matter of the run's: closed, full, or a pipe that nobody reads."""

import ctypes
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from small_configs import SMALL

import raysim
from raysim.system.output import buffer_stderr, divert_errors, unfailing_output

CONFIG = SMALL | {"evaluation": {"every_rounds": 1}}
OUTPUTS = {
    "closed": ">&-",
    "full": "> /dev/full",
    "a broken pipe": "| true",
    "all closed": "<&- >&- 2>&-",
    "both full": "> /dev/full 2>&1",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "output",
    [
        output if output in ("full", "a broken pipe") else pytest.param(output, marks=pytest.mark.soak)
        for output in OUTPUTS
    ],
)
def test_a_display_that_cannot_be_written_to_ends_no_run(output: str, tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(json.dumps(CONFIG))
    command = f"set -o pipefail; {sys.executable} -m raysim run tiny.yaml --local --out out {OUTPUTS[output]}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "done"
    rounds = (tmp_path / "out" / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in rounds] == [1, 2, 3, 4]


CLOSED = [" ".join(pick) for pick in product(("", "<&-"), ("", ">&-"), ("", "2>&-"))]
ON_RAY = [CLOSED[1], CLOSED[6], CLOSED[7]]  # standard error, the other two, all: each takes eleven seconds to start Ray


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "how"),
    [
        *[(closed, "--local") for closed in CLOSED[1:2]],
        *[pytest.param(closed, "--local", marks=pytest.mark.soak) for closed in (CLOSED[0], *CLOSED[2:])],
        *[pytest.param(closed, "", marks=[pytest.mark.soak, pytest.mark.ray]) for closed in ON_RAY],
    ],
)
def test_closed_descriptors_end_no_run(closed: str, how: str, tmp_path: Path) -> None:
    """All eight combinations, on Ray three that differ for it. Without standard error, Ray did not start."""
    (tmp_path / "tiny.yaml").write_text(json.dumps(SMALL))
    command = f"{sys.executable} -m raysim run tiny.yaml {how} --out out {closed}"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, timeout=300, check=False)
    assert done.returncode == 0
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["status"] == "done"


@pytest.mark.slow
def test_a_deleted_folder_is_named_before_torch_is_imported(tmp_path: Path) -> None:
    """torch ends the process with exit status 2, which stands for a wrong config, and a line about a library."""
    command = f"cd gone && rmdir ../gone && {sys.executable} -P -m raysim run quickstart --local"
    (tmp_path / "gone").mkdir()
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == (
        "the run failed: the current folder was deleted; cd to another one, then give the command again\n"
    )


@pytest.mark.parametrize("missing", [("stdout",), ("stderr",), ("stdin", "stdout", "stderr")])
def test_a_process_without_streams_gets_them(missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has None for a descriptor that was closed. Ray does not start without sys.stderr."""
    for name in missing:
        monkeypatch.setattr(sys, name, None)
    with unfailing_output(also_results=False), buffer_stderr():
        assert sys.stdout is not None
        assert sys.stderr is not None
    assert all(getattr(sys, name) is None for name in missing)
    with buffer_stderr():  # as in a program that imports raysim
        pass


@pytest.mark.slow
def test_what_an_encoding_lacks_is_escaped_and_the_rest_is_there(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(json.dumps(CONFIG))
    command = [sys.executable, "-m", "raysim", "run", "tiny.yaml", "--local", "--out", "größe"]
    encoding = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=encoding, check=True)
    assert "gr\\xf6\\xdfe" in done.stdout
    assert "4 rounds in " in done.stdout


@pytest.mark.slow
def test_a_report_that_nobody_reads_is_made_all_the_same(tmp_path: Path) -> None:
    raysim.run(CONFIG, out=tmp_path / "runs" / "one", local=True)
    command = f"set -o pipefail; {sys.executable} -m raysim report runs --out report | true"
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert [*(tmp_path / "report").glob("*.html")]


def write_as_c_does(text: bytes) -> None:
    ctypes.CDLL(None).write(2, text, len(text))


def test_what_ray_writes_goes_to_a_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What C++ writes to the descriptor does, and what Python says does not."""
    log = tmp_path / "ray.log"
    with os.fdopen(2, "w", closefd=False) as errors:
        monkeypatch.setattr(sys, "stderr", errors)
        with divert_errors(log):
            write_as_c_does(b"a stack\n")
            print("a line", file=sys.stderr)
        write_as_c_does(b"after\n")
    assert log.read_text() == "a stack\n"
    assert capfd.readouterr().err == "a line\nafter\n"


def test_a_log_without_a_word_is_deleted(tmp_path: Path) -> None:
    """Also if the run fails."""
    with divert_errors(tmp_path / "nothing"):
        pass
    assert not [*tmp_path.iterdir()]
    with pytest.raises(ZeroDivisionError), divert_errors(tmp_path / "nothing"):
        raise ZeroDivisionError
    assert not [*tmp_path.iterdir()]
