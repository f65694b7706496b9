"""A file named `stop` in a run's directory ends the run after its round, with a checkpoint, and is then removed."""

import threading
from pathlib import Path

import pytest
from small_configs import TINY

import raysim
from raysim.callbacks import Callback, RunView
from raysim.engine.events import RoundDone
from raysim.launch import stop_file
from raysim.launch.stop_file import StopFile, request_stop

CONFIG = TINY | {"training": {"rounds_per_task": 3}}


class Requesting(Callback):
    """Writes the file during a round."""

    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, run: RunView, done: RoundDone) -> None:
        if done.round == self.round:
            request_stop(run.directory)


def test_the_run_ends_after_its_round_and_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """It has 6 rounds and is asked in the 4th. A request from before the resume does not count."""
    whole = raysim.run(CONFIG, out=tmp_path / "whole", local=True)
    stopped = raysim.run(CONFIG, out=tmp_path / "run", local=True, callbacks=[Requesting(4)])
    assert (stopped.status, stopped.rounds) == ("interrupted", 4)
    assert not (tmp_path / "run" / "stop").exists()
    request_stop(tmp_path / "run")
    resumed = raysim.run(None, out=tmp_path / "run", local=True, resume=True)
    assert (resumed.status, resumed.model_sha256) == ("done", whole.model_sha256)
    assert resumed.rounds_recomputed == 0
    assert not (tmp_path / "run" / "stop").exists()


def test_a_request_is_heard_during_a_long_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No event comes while the file appears; it is heard once."""
    monkeypatch.setattr(stop_file, "SECONDS", 0.01)
    heard: list[int] = []
    stopped = threading.Event()

    def stop() -> None:
        heard.append(1)
        stopped.set()

    with StopFile(tmp_path, stop) as request:
        request_stop(tmp_path)
        assert stopped.wait(30)
        request.look()
    assert heard == [1]
    assert [*tmp_path.iterdir()] == []
