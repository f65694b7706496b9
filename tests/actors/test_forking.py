"""The fork server by itself: what asks it is not Ray but the same script, and its raylet is a process that sleeps."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from raysim.actors import compat
from raysim.actors import fork_request as request
from raysim.actors import fork_server as server
from raysim.actors.fork_server import ForkServer, answers, python_command
from raysim.system.capacity import CAN_FORK

pytestmark = pytest.mark.skipif(
    not CAN_FORK, reason="workers are forked on Linux alone; elsewhere raysim spawns them, as all other tests here show"
)

TELL = """
import atexit, json, os, sys
atexit.register(print, "taken down")
print(json.dumps({
    "argv": sys.argv, "folder": os.getcwd(), "mine": os.environ.get("MINE"), "path": sys.path[:2], "name": __name__,
    "alone": os.getsid(0) == os.getpid(), "torch": "torch" in sys.modules, "ray": "ray" in sys.modules,
    "wave": "wave" in sys.modules,
    "parent": os.getppid(), "stdin": sys.stdin.read(), "threads": len(os.listdir("/proc/self/task")),
}), flush=True)
print("a line of its own", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
WAIT = "import os, sys, time; print(os.getpid(), flush=True); time.sleep(600)"


class Cluster:
    """A fork server, and the process that it takes for its raylet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raylet = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self.server = ForkServer(folder)
        self.server.serve(self.raylet.pid, "01000000", ["wave"])

    def ask(self, script: str, *arguments: str) -> subprocess.Popen[str]:
        """Do as Ray does for a worker that executes a script."""
        path = self.folder / "worker.py"
        path.write_text(script)
        return ask(self.folder, str(path), *arguments)

    def child(self) -> int:
        """Return the process id of a child that goes on for ten minutes."""
        with self.ask(WAIT) as asker:
            return int(asker.stdout.readline())


def ask(folder: Path, *command: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "MINE": "ü\udcff", "PYTHONPATH": f"{folder}/own"}
    line = ["bash", "-c", f'exec {python_command(folder)} "$@"', "bash", *command]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, cwd=folder, env=environment, stdout=pipe, stderr=pipe, stdin=pipe, text=True)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(prefix="fork-", dir="/tmp") as folder:
        made = Cluster(Path(folder))
        yield made
        made.raylet.kill()
        made.raylet.wait()
        made.server.end()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fork-", dir="/tmp") as path:
        yield Path(path)


def until(true: Callable[[], bool]) -> bool:
    for _ in range(1200):
        if true():
            return True
        time.sleep(0.05)
    return False


def test_a_child_is_as_if_python_had_been_started_with_the_command(cluster: Cluster, folder: Path) -> None:
    """Beside a plain Python with the same command: the same, but for what it has imported and its parent."""
    out, err = cluster.ask(TELL, "3").communicate(timeout=60)
    told = json.loads(out)  # one line: Python was not taken down
    assert err == "a line of its own\n"
    (folder / "worker.py").write_text(TELL)
    asker = ask(folder, str(folder / "worker.py"), "3")
    plain, _ = asker.communicate(timeout=60)
    expected = json.loads(plain.splitlines()[0].replace(str(folder), str(cluster.folder)))
    assert plain.splitlines()[1:] == ["taken down"]
    assert asker.returncode == 3
    assert expected["mine"] == "ü\udcff"
    for name in ("argv", "folder", "mine", "path", "name", "stdin", "threads"):
        assert told[name] == expected[name], name
    imported = ("torch", "ray", "wave")  # wave is the module that this server has been told to import
    assert [told[name] for name in ("alone", *imported)] == [True] * 4
    assert [expected[name] for name in ("alone", *imported)] == [False] * 4
    assert psutil.Process(told["parent"]).cmdline()[-2].endswith("fork_server.py")


def test_children_end_alone_and_none_is_left_as_a_zombie(cluster: Cluster) -> None:
    first, second = (cluster.child() for _ in range(2))
    psutil.Process(first).kill()
    assert until(lambda: not psutil.pid_exists(first))
    assert psutil.Process(second).status() != psutil.STATUS_ZOMBIE
    psutil.Process(second).kill()
    assert until(lambda: not psutil.pid_exists(second))


def test_a_script_that_fails_says_why(cluster: Cluster) -> None:
    out, err = cluster.ask("raise ValueError('so')").communicate(timeout=60)
    assert (out, err.splitlines()[-1]) == ("", "ValueError: so")


@pytest.mark.parametrize("there", ["nothing", "a stale socket", "one that refuses", "one that ends", "another"])
def test_where_no_server_takes_it_python_executes_the_command(there: str, folder: Path) -> None:
    (folder / "worker.py").write_text(TELL)
    with socket.socket(socket.AF_UNIX) as listener:
        if there != "nothing":
            listener.bind(str(folder / "fork"))
        if there in ("one that refuses", "one that ends", "another"):
            listener.listen()
        asker = ask(folder, str(folder / "worker.py"), "0")
        if there == "one that refuses":
            listener.accept()[0].close()
        if there == "another":
            connection, _ = listener.accept()
            connection.sendall(b"HTTP/1.1 400")
            connection.close()
        if there == "one that ends":
            listener.close()
        out, _ = asker.communicate(timeout=60)
    told = json.loads(out.splitlines()[0])
    assert not told["torch"]
    assert told["argv"] == [str(folder / "worker.py"), "0"]


def test_a_server_with_a_second_thread_forks_none(folder: Path) -> None:
    """A lock that another thread holds at that moment is locked in the child for good."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as asker:
        listener.bind(str(folder / "fork"))
        listener.listen()
        thread.start()
        asker.connect(str(folder / "fork"))
        assert server.receive(listener) is None
        assert asker.recv(1) == b""
        over.set()
        thread.join()


@pytest.mark.parametrize("sent", [b"", b"\x09\0\0\0\0\0\0\0", b"\x02\0\0\0\0\0\0\0{}", b"\x03\0\0\0\0\0\0\0{]}"])
def test_what_is_no_request_is_no_child(cluster: Cluster, sent: bytes) -> None:
    """Nothing; a length alone; no outputs; no JSON."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(str(cluster.folder / "fork"))
        assert asker.recv(1) == request.GREETING
        with suppress(BrokenPipeError):
            asker.sendall(sent)
    out, _ = cluster.ask(TELL, "0").communicate(timeout=60)
    assert json.loads(out)["torch"]


def test_it_leaves_with_its_raylet_and_its_children_go_on(folder: Path) -> None:
    """Ray's workers notice the end of their raylet themselves."""
    cluster = Cluster(folder)
    child = cluster.child()
    cluster.raylet.kill()
    assert until(lambda: not answers(folder))
    assert psutil.pid_exists(child)
    psutil.Process(child).kill()
    cluster.server.keep()  # as after a loss: it is started again, and leaves again
    assert until(lambda: not answers(folder))
    cluster.raylet.wait()
    cluster.server.end()


def test_rays_settings_are_those_of_the_cluster(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """raysim shows its token to the clusters that it joins; workers of one that wants none must not ask for it."""
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    (folder / ".ray").mkdir()
    (folder / ".ray" / "auth_token").write_text("a" * 64)
    cluster = Cluster(folder)
    out, _ = cluster.ask(f"import os; print(os.environ.get({compat.MODE!r}))").communicate(timeout=60)
    assert out == "None\n"
    cluster.raylet.kill()
    cluster.raylet.wait()
    cluster.server.end()


def test_a_stopped_server_is_ended(folder: Path) -> None:
    """It hears no SIGTERM. A run that waited for it would stay after its end."""
    started = ForkServer(folder)
    process = psutil.Process(started._process.pid)
    process.suspend()
    assert until(lambda: process.status() == psutil.STATUS_STOPPED)
    ending = threading.Thread(target=started.end, daemon=True)
    ending.start()
    ending.join(60)
    left = ending.is_alive()
    started._process.kill()
    assert not left
    assert started._process.wait() == -signal.SIGKILL


def test_it_leaves_where_ray_did_not_start(folder: Path) -> None:
    started = ForkServer(folder)
    assert answers(folder)  # it listens before it has imported anything
    started._process.stdin.close()
    assert until(lambda: not answers(folder))
    started.end()


def test_a_server_of_a_joined_cluster_ends_soon_after_its_last_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits long only for a first child, and again once somebody has asked whether it still runs."""
    listener, raylet, child = 1_000_003, 1_000_004, 1_000_005
    asks, ends = [(SimpleNamespace(fd=listener), 0)], [(SimpleNamespace(fd=child), 0)]
    requests = iter([{"outputs": []}, None, {"outputs": []}])
    happens = iter([asks, ends, asks, asks, ends, []])
    waits: list[float | None] = []

    class Selector:
        def __enter__(self) -> "Selector":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def register(self, *_: object) -> None:
            pass

        unregister = register

        def select(self, timeout: float | None) -> list[tuple[SimpleNamespace, int]]:
            waits.append(timeout)
            return next(happens)

    monkeypatch.setattr(server.selectors, "DefaultSelector", Selector)
    monkeypatch.setattr(server, "receive", lambda _: next(requests))
    for name, result in {"fork": 4242, "pidfd_open": child, "waitpid": None, "close": None}.items():
        monkeypatch.setattr(server.os, name, lambda *_, result=result: result)
    assert server.serve(SimpleNamespace(fd=listener), raylet, ends=True) is None
    # A first request; its child ends; a question; another request; its child ends; nothing.
    assert waits == [server.FIRST, None, server.AFTER, server.FIRST, None, server.AFTER]
    assert server.AFTER < server.FIRST / 10
