"""A process that outlives the run's writes its summary if it is killed: never over another one, nor half of one."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.actors import reaper
from raysim.config import load
from raysim.records.run_directory import find_interruption
from raysim.sweeps.cells import Cell
from raysim.sweeps.directory import find_progress
from raysim.system import last_words

AFTER = 5  # the round after which the run is killed
KILLED = f"""
import os, signal, sys
import raysim
from raysim.actors.session import open_session
from raysim.engine.events import RoundDone
from raysim.launch import run
from raysim.launch.display import RunDisplay

kept = []

class Dies(RunDisplay):
    def take(self, event):
        if isinstance(event, RoundDone) and event.round == {AFTER}:
            os.kill(os.getpid(), signal.SIGKILL)

def start_without_ray(prepared, words, *_):
    kept.append(open_session(forked=False))
    kept[0].__enter__().keep(words)
    return run._start_here(prepared)

run._start_on_ray = start_without_ray
raysim.run(sys.argv[1], out=sys.argv[2], display=Dies())
"""
ASYNCHRONOUS = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}}


@pytest.fixture
def config(tiny: Any) -> Any:
    """3 clients, two of which take part in each of 2 x 4 rounds; a checkpoint every 3."""
    return lambda **more: tiny(
        training__rounds_per_task=4, checkpoint={"every_rounds": 3}, logging={"tensorboard": False}, **more
    )


def reap(out: Path, *lines: str) -> str:
    """What is said when a run's process ends after it has told this."""
    told = "".join(f"{line}\n" for line in lines).removesuffix("\n")
    gone = str(out.parent / "session")
    command = [sys.executable, "-I", "-S", reaper.__file__, gone]
    return subprocess.run(command, input=told, capture_output=True, text=True, check=True, timeout=60).stderr


def prepared(out: Path, **more: object) -> str:
    """What a run tells of its summary, which is far behind what it has recorded."""
    summary = {"clients": 3, "rounds": 0, "seconds": 1.5, "status": "failed", "killed": True}
    return json.dumps({"directory": str(out), "summary": summary | more})


@pytest.mark.parametrize(
    "setting", [{"participation": {"count": 2}}, {"schedule": ASYNCHRONOUS}], ids=["in step", "not"]
)
def test_a_killed_run_has_a_summary_and_goes_on_with_the_same_bits(
    setting: dict[str, Any], config: Any, tmp_path: Path
) -> None:
    """Killed after round 5 of 8, the first of task 2: of the matrix there is one row. Its checkpoint is of round 3."""
    undisturbed = raysim.run(config(**setting), out=tmp_path / "undisturbed", local=True)
    path, out = tmp_path / "undisturbed" / "config.yaml", tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(path), str(out)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)  # and the reaper has ended
    assert run.returncode == -signal.SIGKILL
    assert run.stderr.endswith(f"; go on with raysim run --resume --out {out}\n")

    result = raysim.load(out)
    rounds = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
    assert (result.status, result.killed, result.rounds, result.recoveries) == ("failed", True, AFTER, 0)
    assert result.updates == sum(len(one["cohort"]) for one in rounds)
    assert list(result.participation) == [sum(one["cohort"].count(client) for one in rounds) for client in range(3)]
    for key in ("bytes_up", "bytes_down", "steps"):
        assert getattr(result, key) == sum(one[key] for one in rounds)
    assert result.virtual_time == rounds[-1]["virtual_time"]
    assert result.seconds_per_round == sorted(one["seconds"] for one in rounds)[AFTER // 2]
    (row,) = result.evaluation["domain_il"]["accuracy"]
    assert row == undisturbed.evaluation["domain_il"]["accuracy"][0] == rounds[3]["evaluation"]["domain_il"]
    assert result.model_sha256 is None
    assert result.seconds > sum(one["seconds"] for one in rounds)
    assert not list(out.glob(".*"))
    assert find_interruption(out) == "the process ended in the middle of the run"  # as if there were no summary
    assert find_progress(Cell("out", load(path), {}, {}), tmp_path) == "unfinished"

    again = raysim.run(None, out=out, local=True, resume=True)
    assert (again.status, again.killed, again.rounds) == ("done", False, 8)
    assert (again.model_sha256, again.evaluation) == (undisturbed.model_sha256, undisturbed.evaluation)
    assert (again.recoveries, again.rounds_recomputed) == (1, 2)
    assert "killed" not in json.loads((out / "summary.json").read_text())


def test_the_middle_of_an_even_number_of_rounds_is_the_mean_of_two(tmp_path: Path) -> None:
    round = {"cohort": [2, 0], "bytes_up": 3, "bytes_down": 4, "steps": 5, "virtual_time": 0.5}
    lines = [json.dumps({**round, "seconds": seconds}) for seconds in (0.5, 8.0, 0.25, 0.75)]
    (tmp_path / "rounds.jsonl").write_text("\n".join([*lines, '{"cohort": [1']))  # the last was being written
    assert reaper.count_rounds(str(tmp_path / "rounds.jsonl"), 3) == {
        "rounds": 4,
        "updates": 8,
        "bytes_up": 12,
        "bytes_down": 16,
        "steps": 20,
        "participation": [4, 0, 4],
        "virtual_time": 0.5,
        "seconds_per_round": 0.625,
    }


def test_before_the_first_round_there_is_one_too(tmp_path: Path) -> None:
    """Nor does it matter that rounds.jsonl is not yet there, or is no longer what was written."""
    for content in (None, "", "no round\n"):
        if content is not None:
            (tmp_path / "rounds.jsonl").write_text(content)
        reap(tmp_path, prepared(tmp_path))
        written = json.loads((tmp_path / "summary.json").read_text())
        assert (written["status"], written["rounds"]) == ("failed", 0)
        assert 1.5 < written["seconds"] < 60
        (tmp_path / "summary.json").unlink()


@pytest.mark.parametrize("last", ["", '{"directory": "', reaper.FORGET, reaper.CLEARED])
def test_the_newest_that_was_told_whole_counts(last: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    how = json.dumps({"file": str(tmp_path / "config.yaml"), "command": "a command"})
    said = reap(tmp_path, how, prepared(tmp_path, seed=1), prepared(tmp_path, seed=2), last)
    if last in (reaper.FORGET, reaper.CLEARED):
        assert said == ""
        assert not (tmp_path / "summary.json").exists()
    else:
        assert said.endswith("; go on with a command\n")
        assert json.loads((tmp_path / "summary.json").read_text())["seed"] == 2


def test_a_summary_that_is_there_stays(tmp_path: Path) -> None:
    """The run was done, and its process killed when it left."""
    (tmp_path / "summary.json").write_text("done")
    reap(tmp_path, prepared(tmp_path))
    assert (tmp_path / "summary.json").read_text() == "done"


def test_nothing_is_written_where_another_process_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "PATIENCE", 0.05)
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    reaper.write_summary(**json.loads(prepared(tmp_path)), told=0.0)
    assert not list(tmp_path.iterdir())
    os.close(held)
    reaper.write_summary(**json.loads(prepared(tmp_path)), told=0.0)
    assert (tmp_path / "summary.json").exists()


def test_a_full_disk_and_a_directory_that_is_gone_hide_nothing(tmp_path: Path) -> None:
    """Of a sweep's two runs neither has a place for it: nothing is left half-written, and the word still comes."""
    lines = [prepared(tmp_path), prepared(tmp_path / "gone")]
    script = f"ulimit -f 0; trap '' XFSZ; exec {sys.executable} -I -S {reaper.__file__} {tmp_path / 'session'}"
    ended = subprocess.run(["bash", "-c", script], input="\n".join(lines), capture_output=True, text=True, check=True)
    assert "was killed, or ended by Ray, which lost one of its own; start it again" in ended.stderr
    assert not list(tmp_path.iterdir())


def test_who_listens_anew_is_told_everything_and_the_one_before_forgets(tmp_path: Path) -> None:
    """As when a run goes on with another cluster: a second line, or an older summary, would contradict."""
    words, first, second = last_words.LastWords(tmp_path, "a command"), tmp_path / "1", tmp_path / "2"
    words.prepare(tmp_path / "run", '{"seed": 1}')
    with first.open("wb") as earlier, second.open("wb") as later:
        words.tell(earlier)
        words.prepare(tmp_path / "run", '{"seed": 2}')
        words.tell(later)
    words.prepare(tmp_path / "run", '{"seed": 3}')  # nobody listens: that is no error
    with first.open() as earlier_lines, second.open() as later_lines:
        assert reaper.listen(earlier_lines) == {}
        heard = reaper.listen(later_lines)
    assert heard is not None
    assert heard[""]["command"] == "a command"
    assert heard[str(tmp_path / "run")]["summary"] == {"seed": 2}


def test_the_word_comes_where_errors_are_shown_and_not_where_rays_go(tmp_path: Path) -> None:
    """A second cluster is started while Ray's paragraphs go to a log."""
    script = f"""
import os, signal
from pathlib import Path
from raysim.actors.session import open_session
from raysim.system.output import divert_errors
with divert_errors(Path({str(tmp_path / "log")!r})), open_session(forked=False):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert "was killed, or ended by Ray" in ended.stderr
    assert (tmp_path / "log").read_text() == ""
