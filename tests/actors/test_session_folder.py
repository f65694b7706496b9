"""A session's folder is closed to other users; what killed runs left is cleared, and nothing else."""

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from raysim.actors import session
from raysim.actors.session import open_session
from raysim.system.errors import ConfigError

NOBODY = 65534
AS_NOBODY = f"""
import os, socket, sys
outside, rays = sys.argv[1:]
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
def listen():
    os.rename(f"{{rays}}/sockets/raylet", f"{{rays}}/sockets/gone")
    socket.socket(socket.AF_UNIX).bind(f"{{rays}}/sockets/raylet")
for attack in (
    lambda: os.listdir(rays),
    lambda: open(f"{{rays}}/planted", "w"),
    lambda: os.symlink("/etc/passwd", f"{{rays}}/logs/planted.log"),
    lambda: open(f"{{rays}}/logs/gcs_server.out").read(),
    lambda: socket.socket(socket.AF_UNIX).connect(f"{{rays}}/sockets/plasma_store"),
    lambda: socket.socket(socket.AF_UNIX).connect(f"{{outside}}/fork"),
    listen,
    lambda: os.rename(outside, f"{{outside}}-gone"),
    lambda: os.rmdir(outside),
):
    try:
        attack()
    except PermissionError:
        print("refused")
"""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary directory like /tmp: everybody may write to it, and rename only what is their own."""
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as path:
        os.chmod(path, 0o1777)
        monkeypatch.setattr("tempfile.tempdir", path)
        yield Path(path)


@contextmanager
def rays_folder() -> Iterator[str]:
    """The folder of a session without a fork server in which Ray's is."""
    with open_session(forked=False) as made:
        yield str(made.rays)


def left_behind(path: Path, holds: str = session.RAYS) -> Path:
    path.mkdir(mode=0o700)
    (path / holds).mkdir()
    (path / holds / "log").write_text("a log")
    return path


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="only root can act as another user; owner and mode, which keep others out, are tested for all",
)
def test_another_user_can_do_nothing_with_it(temporary: Path) -> None:
    """Ray gives everybody all rights to what it makes."""
    unix = socket.AF_UNIX
    with rays_folder() as rays, socket.socket(unix) as store, socket.socket(unix) as forks:
        outside = Path(rays).parent
        for name in ("", "logs", "sockets"):
            (Path(rays) / name).mkdir(exist_ok=True)
            (Path(rays) / name).chmod(0o777)
        for name in ("logs/gcs_server.out", "sockets/raylet"):
            (Path(rays) / name).touch(mode=0o666)
        store.bind(f"{rays}/sockets/plasma_store")
        os.chmod(f"{rays}/sockets/plasma_store", 0o777)
        store.listen()
        forks.bind(f"{outside}/fork")  # as a fork server does
        forks.listen()
        command = [sys.executable, "-c", AS_NOBODY, str(outside), rays]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        assert told.stdout.split() == ["refused"] * 9
        outside.chmod(0o755)  # the attacks are real ones: as Ray leaves its folder, six of them do harm
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        assert told.stdout.split() == ["refused"] * 3


@pytest.mark.parametrize(
    ("place", "mode"),
    [("ä", 0o700), ("l" * 20, 0o700), ("open", 0o777), ("group", 0o770)],
    ids=lambda value: str(value),
)
def test_a_place_that_does_not_suit_is_not_used(
    place: str, mode: int, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray knows no other characters, has no room for longer paths, and others could replace the folder."""
    unsuited = temporary / place
    unsuited.mkdir()
    unsuited.chmod(mode)
    monkeypatch.setattr("tempfile.tempdir", str(unsuited))
    with rays_folder() as rays:
        assert Path(rays).parents[1] == Path("/tmp")
        assert not list(unsuited.iterdir())


def test_a_stopped_reaper_is_ended(temporary: Path) -> None:
    """It is not needed any more: the folder is cleared by then."""

    def work() -> None:
        before = psutil.Process().children()
        with open_session(forked=False):
            (reaper,) = [child for child in psutil.Process().children() if child not in before]
            reaper.suspend()
            reapers.append(reaper)

    reapers: list[psutil.Process] = []
    working = threading.Thread(target=work, daemon=True)
    working.start()
    working.join(60)
    left = working.is_alive()
    for reaper in reapers:
        with suppress(psutil.NoSuchProcess):
            reaper.kill()
    assert not left
    assert not list(temporary.iterdir())


def test_where_nothing_suits_one_line_says_so(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system without modes, where every folder is everybody's."""
    monkeypatch.setattr(session, "_is_closed_to_others", lambda status: False)
    with (
        pytest.raises(ConfigError, match=rf"^TMPDIR: found {temporary} and /tmp, allowed: a folder"),
        rays_folder(),
    ):
        pass
    assert not list(temporary.iterdir())


def test_only_a_folder_of_ones_own_is_closed_to_others(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(own)
    (tmp_path / "file").touch(mode=0o600)

    def private(name: str) -> bool:
        return session._is_closed_to_others((tmp_path / name).lstat())

    assert [private(name) for name in ("own", "link", "file")] == [True, False, False]
    own.chmod(0o750)
    assert not private("own")
    if os.geteuid() == 0:
        own.chmod(0o700)
        os.chown(own, NOBODY, NOBODY)
        assert not private("own")


def test_what_nobody_uses_is_cleared(temporary: Path) -> None:
    left = left_behind(temporary / "raysim-abcd1234")
    used = left_behind(temporary / "raysim-abcd9999")
    kept = [
        left_behind(temporary / "raysim-research", holds="paper"),
        left_behind(temporary / "session_folder"),
        left_behind(temporary / "elsewhere"),
        left_behind(temporary / "raysim-everyone"),
        used,
    ]
    kept[3].chmod(0o777)  # somebody else may have put something there
    (temporary / "raysim-linklink").symlink_to(temporary / "elsewhere")
    if os.geteuid() == 0:
        kept.append(left_behind(temporary / "raysim-notmine1"))
        os.chown(kept[-1], NOBODY, NOBODY)
    lock = os.open(used, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with rays_folder() as rays:
        assert Path(rays).is_dir()
        assert not left.exists()
        assert [len(list(path.glob("*/log"))) for path in kept] == [1] * len(kept)
    os.close(lock)
    assert not Path(rays).parent.exists()


def test_an_empty_folder_is_cleared_once_it_is_old(temporary: Path) -> None:
    """A new one may be that of a process that has not locked it yet."""
    old, new = temporary / "raysim-oldempty", temporary / "raysim-newempty"
    for folder, age in ((old, 2 * session.OLD), (new, 0.0)):
        folder.mkdir(mode=0o700)
        os.utime(folder, (time.time() - age,) * 2)
    with rays_folder():
        assert not old.exists()
        assert new.exists()


def test_a_file_system_without_locks_is_passed_over(
    temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Lustre without -o flock. If no place has locks, one line says so, and nothing is left."""

    def refuse(file: int, how: int) -> None:
        if not everywhere and not os.readlink(f"/proc/self/fd/{file}").startswith(str(temporary)):
            return
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    everywhere = False
    monkeypatch.setattr(session.fcntl, "flock", refuse)
    found = Path(session.private_folder())
    assert found.parent == Path("/tmp")
    found.rmdir()
    everywhere = True
    with pytest.raises(ConfigError, match=r"^TMPDIR: found .*, allowed: .* on a file system with locks"):
        session.private_folder()
    assert not list(temporary.iterdir())


def test_a_folder_in_use_survives_the_next_run(temporary: Path) -> None:
    with rays_folder() as first:
        with rays_folder() as second:
            assert Path(first).is_dir()
            assert first != second
        assert Path(first).is_dir()


def test_the_folder_of_a_killed_process_is_cleared_without_a_word(temporary: Path) -> None:
    script = """
import os, signal
from raysim.actors.session import open_session
with open_session(forked=False) as made:
    print(made.rays.parent, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (-signal.SIGKILL, "")
    folder, limit = Path(ended.stdout.strip()), time.monotonic() + 10
    assert folder.parent == temporary
    while folder.exists():
        assert time.monotonic() < limit, "waited too long"
        time.sleep(0.01)
