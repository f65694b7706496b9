"""Starting a fork server on this machine. Does not import Ray, so that the server can start before Ray is imported."""

import json
import os
import shlex
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from raysim.actors import compat
from raysim.actors.forking import request

BACKLOG = 4096  # requests that wait while the server imports; the kernel may allow fewer
SERVER = Path(request.__file__).with_name("server.py")
ROOT = Path(__file__).parents[3]  # where raysim is imported from
SOCKET, LOG = "fork", "fork.log"  # in the server's folder


class ForkServer:
    """A fork server on this machine, as the process that starts it sees it.

    Args:
        folder: a folder that only this user can enter.
        lock: the descriptor of a lock on the folder, if the server has the folder for itself: it holds the lock,
            leaves when it has nothing to do, and deletes the folder.
    """

    def __init__(self, folder: Path, lock: int | None = None) -> None:
        self._folder, self._lock = folder, lock
        self._told = ""
        self._start()

    @property
    def command(self) -> str:
        """The command that Ray takes for the one that starts Python."""
        return python_command(self._folder)

    def serve(self, raylet: int, job: str) -> None:
        """Have the server fork workers for a job, of the raylet on this machine that has this process id."""
        self._told = json.dumps(
            compat.rays_variables() | {compat.RAYLET_VARIABLE: str(raylet), compat.JOB_VARIABLE: job}
        )
        self._tell()

    def keep(self) -> None:
        """Start the server again if it has ended."""
        if self._process.poll() is not None:
            self._start()
            self._tell()

    def end(self) -> None:
        """End the server; workers that it has forked go on."""
        self._process.terminate()
        self._process.communicate()

    def _start(self) -> None:
        path = self._folder / SOCKET
        path.unlink(missing_ok=True)
        paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        # OpenBLAS starts threads when NumPy is imported, and a process with threads cannot be forked
        environment = {**os.environ, **compat.WORKER_VARIABLES, "PYTHONPATH": paths, "OPENBLAS_NUM_THREADS": "1"}
        own = [] if self._lock is None else [self._lock]
        with socket.socket(socket.AF_UNIX) as listener, open(self._folder / LOG, "ab") as log:
            listener.bind(str(path))
            listener.listen(BACKLOG)
            number = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SERVER), str(number), *([str(self._folder)] if own else [])],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[number, *own],
                start_new_session=True,
                env=environment,
            )
        if own:
            self._process.wait()

    def _tell(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as pipe:  # broken: it has ended, and Ray starts workers
            pipe.write(self._told.encode())


def python_command(folder: Path) -> str:
    """Return the command that Ray takes for the one that starts Python, and that asks the server in this folder."""
    return shlex.join([sys.executable, "-I", "-S", request.__file__, str(folder / SOCKET)])


def is_forked() -> bool:
    """Return whether this process is a child of a fork server."""
    return str(SERVER) in sys.orig_argv


def answers(folder: Path) -> bool:
    """Return whether there is a server in this folder."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as asker:
        asker.connect(str(folder / SOCKET))
        return True
    return False
