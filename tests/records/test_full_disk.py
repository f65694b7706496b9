"""A disk that fills and a process that is killed: one line that says which file, and no file that is half written."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

import raysim
from raysim.cli import main
from raysim.engine.events import RoundDone
from raysim.launch.display import RunDisplay
from raysim.records.run_directory import claim_directory
from raysim.records.tensorboard import Board
from raysim.system.errors import ConfigError, RunError
from raysim.system.files import write_whole


@contextmanager
def files_of_at_most(nbytes):
    """As a full disk would, Linux refuses to write more."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        if nbytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, limits[1]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


class Fills(RunDisplay):
    """The disk is full after a round."""

    def __init__(self, after, out):
        self.after, self.rounds = after, out / "rounds.jsonl"

    def take(self, event):
        if isinstance(event, RoundDone) and event.round == self.after:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.rounds.stat().st_size, resource.RLIM_INFINITY))


@pytest.fixture
def config(tiny):
    """4 rounds, a checkpoint after every second."""
    return tiny(checkpoint={"every_rounds": 2}, logging={"tensorboard": False})


def told(out, name):
    return f"{out / name} could not be written (File too large); make room, then run raysim run --resume --out {out}"


class Deletes(RunDisplay):
    """The run's directory is deleted after a round."""

    def __init__(self, after, out):
        self.after, self.out = after, out

    def take(self, event):
        if isinstance(event, RoundDone) and event.round == self.after:
            shutil.rmtree(self.out)


@pytest.mark.parametrize(("after", "name"), [(1, "rounds.jsonl"), (2, "the checkpoint of round 2")])
def test_a_directory_that_is_deleted_under_its_run_ends_it(config, tmp_path, after, name):
    """Before a round is written, or a checkpoint; neither makes the directory anew, with a part of the run."""
    out = tmp_path / "FL + ER"
    what = out / name if after == 1 else name
    with pytest.raises(RunError) as failed:
        raysim.run(config, out=out, local=True, display=Deletes(after, out))
    assert str(failed.value) == (
        f"{what} could not be written (No such file or directory); {out} was deleted or moved: start the run again, or "
        f"put it back, then run raysim run --resume --out '{out}'"
    )
    assert not out.exists()
    assert not any("resume from round" in note for note in failed.value.__notes__)


def test_a_round_that_cannot_be_written_ends_the_run_in_one_line(config, tmp_path):
    """summary.json has no room either, which does not hide the first line; the rest is that of an undisturbed run."""
    out = tmp_path / "out"
    with files_of_at_most(None), pytest.raises(RunError) as failed:
        raysim.run(config, out=out, local=True, display=Fills(3, out))
    assert str(failed.value) == told(out, "rounds.jsonl")
    assert failed.value.__notes__ == [
        told(out, "summary.json"),
        f"resume from round 2: raysim run --resume --out {out} --local",
    ]
    assert not (out / "summary.json").exists()
    assert not (out / ".summary.json").exists()
    whole = raysim.run(config, out=tmp_path / "whole", local=True)
    result = raysim.run(None, out=out, local=True, resume=True)
    assert result.model_sha256 == whole.model_sha256
    assert len((out / "rounds.jsonl").read_text().splitlines()) == 4


def test_a_model_that_cannot_be_written_leaves_none(tiny, tmp_path, capsys):
    """6 x 2000 numbers and more take over 48 KB; all else fits into 16."""
    out = tmp_path / "out"
    config = tiny(model__hidden=[2000], checkpoint__every_rounds=100, logging__tensorboard=False)
    path = tmp_path / "config.yaml"
    path.write_text(json.dumps(config.model_dump(mode="json")))
    with files_of_at_most(16_384):
        assert main(["run", str(path), "--out", str(out), "--local", "--quiet"]) == 1
    assert capsys.readouterr().err == f"the run failed: {told(out, 'model.pt')}\n"
    assert json.loads((out / "summary.json").read_text())["status"] == "failed"
    assert not [path for path in out.iterdir() if "model" in path.name]


def test_a_run_that_cannot_begin_or_go_on_says_so(config, tmp_path):
    out = tmp_path / "out"
    with files_of_at_most(10), pytest.raises(RunError) as failed:
        raysim.run(config, out=out, local=True)
    assert str(failed.value) == told(out, "config.yaml")
    with files_of_at_most(None), pytest.raises(RunError):
        raysim.run(config, out=out, local=True, resume=True, display=Fills(3, out))
    with files_of_at_most(10), pytest.raises(RunError) as failed:
        raysim.run(None, out=out, local=True, resume=True)
    assert str(failed.value) == told(out, "checkpoints/losses.jsonl")
    result = raysim.run(None, out=out, local=True, resume=True)
    assert (result.recoveries, result.rounds_recomputed) == (1, 1)


@pytest.mark.parametrize("hook", ["add_round", "flush", "close"])
def test_tensorboards_files_are_told_too(hook, tiny, tmp_path, monkeypatch):
    close = Board.close

    def full(board, *_):
        close(board)  # as Python closes a file whose last bytes find no room
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(f"raysim.records.run_directory.Board.{hook}", full)
    with pytest.raises(RunError, match=r"events\.out\.\* could not be written \(No space left on device\); make room"):
        raysim.run(tiny(checkpoint={"every_rounds": 2}, logging__tensorboard=True), out=tmp_path / "out", local=True)


def test_a_full_disk_under_tensorboards_file_prints_one_line(tiny, tmp_path):
    """Its file grows past 16,000 bytes with the first picture; no other does."""
    path, out = tmp_path / "config.yaml", tmp_path / "out"
    path.write_text(json.dumps(tiny(logging__tensorboard=True).model_dump(mode="json")))
    script = (
        "import resource, signal, sys; from raysim.cli import main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (16000, 16000))\n"
        f"sys.exit(main(['run', '{path}', '--out', '{out}', '--local', '--quiet']))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, f"the run failed: {told(out, 'events.out.*')}\n")


def test_what_was_there_stays_until_the_new_is_whole(tmp_path, monkeypatch):
    """A kill is stood in for by an exception that nothing catches, where the file is on its way to the disk."""

    class Killed(BaseException):
        pass

    def kill(_):
        raise Killed

    path = tmp_path / "summary.json"
    write_whole(path, "the first")
    with monkeypatch.context() as patch:
        patch.setattr("raysim.system.files.os.fsync", kill)
        with pytest.raises(Killed):
            write_whole(path, b"the second")
    assert path.read_text() == "the first"
    with files_of_at_most(3), pytest.raises(OSError, match="File too large"):
        write_whole(path, "the third")
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    write_whole(path, b"the fourth")
    assert path.read_text() == "the fourth"


def test_a_run_killed_while_its_summary_is_written_goes_on(config, tmp_path, monkeypatch):
    """An empty summary.json would be refused from then on."""
    out = tmp_path / "out"

    class Killed(BaseException):
        pass

    def killed(file):
        if "summary.json" in os.readlink(f"/proc/self/fd/{file}"):
            raise Killed
        return sync(file)

    sync = os.fsync
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(Killed):
            raysim.run(config, out=out, local=True)
    assert (out / ".summary.json").exists()
    assert raysim.run(None, out=out, local=True, resume=True).status == "done"
    assert not [path.name for path in out.iterdir() if path.name.startswith(".")]


def test_one_killed_while_its_config_is_written_begins(config, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".config.yaml").write_text("name: ti")
    claim_directory(out)
    assert raysim.run(config, out=out, local=True, resume=True).status == "done"
    assert torch.load(out / "model.pt", weights_only=True)
    with pytest.raises(ConfigError, match="not empty"):
        claim_directory(out)
