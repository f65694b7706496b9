"""Folders of killed runs are deleted by the next run; those in use, young ones and other things are not."""

import fcntl
import os
import time
from pathlib import Path

import pytest

from raysim.actors.cluster import session_folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("raysim.actors.cluster.LONGEST_PARENT", 1000)
    return tmp_path


def made(path: Path, seconds_ago: float = 3600, holds: str = "session_latest") -> Path:
    path.mkdir()
    (path / holds).write_text("a log")
    os.utime(path, (time.time() - seconds_ago,) * 2)
    return path


def test_what_nobody_uses_is_deleted(temporary: Path) -> None:
    left = made(temporary / "raysim-abcd1234")
    young = made(temporary / "raysim-abcd5678", seconds_ago=1)
    mine = made(temporary / "raysim-research", holds="paper.tex")
    unlike = made(temporary / "session_folder")
    used = made(temporary / "raysim-abcd9999")
    outside = made(temporary / "elsewhere")
    (temporary / "raysim-linklink").symlink_to(outside)
    lock = os.open(used, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with session_folder() as folder:
        assert Path(folder).is_dir()
        assert not left.exists()
        assert (mine / "paper.tex").exists()
        for kept in (young, used, outside, unlike):
            assert (kept / "session_latest").exists()
    os.close(lock)
    assert not Path(folder).exists()


def test_a_folder_in_use_survives_the_next_run(temporary: Path) -> None:
    with session_folder() as first:
        os.utime(first, (0, 0))
        with session_folder() as second:
            assert Path(first).is_dir()
            assert first != second
        assert Path(first).is_dir()
