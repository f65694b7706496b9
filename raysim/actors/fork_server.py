"""The fork server: a process per node that imports the actors' code, and forks a Ray worker for each request.

Forked workers share the memory that they only read. An actor takes 36 MB instead of 335, and does not import torch.

    python -P fork_server.py LISTENER [FOLDER] <PIPE

LISTENER is the descriptor of a listening socket. The pipe carries Ray's environment variables for workers, and modules
to import, as JSON. It is empty if the cluster did not start. The server imports Ray only after it has read the pipe,
because Ray's C++ code reads the variables at its import. The server ends with its raylet. With a FOLDER, it serves one
run on a joined cluster. It then also ends a few seconds after its last child, and deletes the folder. The last child
ends with the run.

This module does not import Ray at the top: the server starts before Ray does.
"""

import gc
import json
import os
import random
import runpy
import selectors
import shlex
import shutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import psutil

from raysim.actors import compat, fork_request
from raysim.actors.fork_request import GREETING, SIZE

SOCKET, LOG = "fork", "fork.log"  # in the server's folder
BACKLOG = 4096  # requests that wait while the server imports; the kernel may allow fewer
WITHOUT_RAY = ("raysim.engine.simulation",)  # imports torch
WITH_RAY = (compat.WORKER_MODULE, "raysim.actors.coordinator", "raysim.actors.runs")
# A server with a FOLDER ends when it has had no child for some time: FIRST seconds from its start or last connection,
# or AFTER seconds from the end of its last child. A run that restarts its hosts connects sooner.
FIRST, AFTER = 60, 5
ENDING = 2  # seconds that a process may take to end after a signal
SLOW = 10  # seconds in which a request must arrive after the greeting


class ForkServer:
    """A fork server on this machine, as seen by the process that starts it.

    Args:
        folder: a folder that only this user can enter.
        lock: the descriptor of a lock on the folder. The server holds the lock, and deletes the folder when it ends.
            None in a session, which deletes its folder itself.
    """

    def __init__(self, folder: Path, lock: int | None = None) -> None:
        self._folder, self._lock = folder, lock
        self._message = ""  # Ray's variables for workers, and the modules to import, as JSON
        self._start()

    @property
    def command(self) -> str:
        """The command that Ray uses in place of Python."""
        return python_command(self._folder)

    def serve(self, raylet: int, job: str, modules: Sequence[str] = ()) -> None:
        """Have the server import these modules, and fork workers for a job of the raylet with this process id."""
        ids = {compat.RAYLET_VARIABLE: str(raylet), compat.JOB_VARIABLE: job}
        self._message = json.dumps([compat.rays_variables() | ids, [*modules]])
        self._send()

    def keep(self) -> None:
        """Start the server again if it has ended."""
        if self._process.poll() is not None:
            self._start()
            self._send()

    def end(self) -> None:
        """End the server. Workers that it has forked keep running."""
        end_process(self._process)

    def _start(self) -> None:
        path = self._folder / SOCKET
        path.unlink(missing_ok=True)
        root = Path(__file__).parents[2]  # where raysim is imported from
        paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
        # They keep OpenBLAS to one thread, without which a process that has imported NumPy could not be forked.
        environment = {**os.environ, **compat.WORKER_VARIABLES, "PYTHONPATH": paths}
        lock = [] if self._lock is None else [self._lock]
        with socket.socket(socket.AF_UNIX) as listener, open(self._folder / LOG, "ab") as log:
            listener.bind(str(path))
            listener.listen(BACKLOG)
            number = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(number), *([str(self._folder)] if lock else [])],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[number, *lock],
                start_new_session=True,
                env=environment,
            )
        if lock:
            self._process.wait()  # the started process ends at once; its child is the server

    def _send(self) -> None:
        assert self._process.stdin is not None
        # A broken pipe means that the server has ended. Ray then spawns the workers.
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(self._message.encode())


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Close a process's input and end the process. A suspended process (SIGSTOP) ends only when it is killed."""
    assert process.stdin is not None
    process.stdin.close()
    for end in (process.terminate, process.kill):
        end()
        with suppress(subprocess.TimeoutExpired):
            process.wait(ENDING)
            return


def python_command(folder: Path) -> str:
    """Return the command that Ray uses in place of Python. It asks the server in this folder for a worker."""
    return shlex.join([sys.executable, "-I", "-S", fork_request.__file__, str(folder / SOCKET)])


def is_forked() -> bool:
    """Return whether this process is a child of a fork server."""
    return __file__ in sys.orig_argv


def answers(folder: Path) -> bool:
    """Return whether a server runs in this folder."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / SOCKET))
        return True
    return False


# --- In the server's process


def serve_cluster(number: int, folder: str | None = None) -> None:
    """Serve requests until the cluster has ended. Each forked child returns from `serve`, too, and becomes a worker.

    Args:
        number: the descriptor of the listening socket.
        folder: the folder to delete at the end.
    """
    for module in WITHOUT_RAY:
        import_module(module)
    message = sys.stdin.read()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if not message:
        return
    variables, modules = json.loads(message)
    for name in compat.rays_variables():  # inherited from the process that started this server
        del os.environ[name]
    os.environ.update(variables)
    raylet = os.pidfd_open(int(os.environ[compat.RAYLET_VARIABLE]))
    for module in (*WITH_RAY, *modules):
        import_module(module)
    gc.collect()
    gc.freeze()  # otherwise the collector would write to the memory that children share
    with socket.socket(fileno=number) as listener:
        request = serve(listener, raylet, ends=folder is not None)
    os.close(raylet)
    if request is not None:
        become(request)
    elif folder:
        shutil.rmtree(folder, ignore_errors=True)


def serve(listener: socket.socket, raylet: int, ends: bool) -> Mapping[str, Any] | None:
    """Fork a child for each request. In the child, return the request. In the server, return None when it should end.

    Args:
        listener: the listening socket.
        raylet: a descriptor that becomes readable when the raylet ends.
        ends: whether to end if there are no children: FIRST seconds after a connection, or AFTER seconds after the end
            of the last child. The last child ends with the run, even if the run's driver was killed on another node.
    """
    children: dict[int, int] = {}  # process ids, by the descriptor that becomes readable when the child ends
    patience = FIRST
    with selectors.DefaultSelector() as events:
        events.register(listener, selectors.EVENT_READ)
        events.register(raylet, selectors.EVENT_READ)
        try:
            while ready := events.select(None if children or not ends else patience):
                for key, _ in ready:
                    if key.fd == raylet:
                        return None
                    if key.fd in children:
                        events.unregister(key.fd)
                        os.close(key.fd)
                        os.waitpid(children.pop(key.fd), 0)
                        patience = AFTER
                        continue
                    patience = FIRST
                    if request := receive(listener):
                        child = os.fork()
                        if not child:
                            return request
                        _close(request["outputs"])
                        descriptor = os.pidfd_open(child)
                        children[descriptor] = child
                        events.register(descriptor, selectors.EVENT_READ)
            return None
        finally:
            _close([*children])


def receive(listener: socket.socket) -> Mapping[str, Any] | None:
    """Accept a connection. Return its request, with the descriptors of its outputs, or None if none arrives in time.

    A process with a second thread is not forked: a lock that the thread holds would stay locked in the child.
    """
    client, _ = listener.accept()
    with suppress(OSError, ValueError), client:
        if psutil.Process().num_threads() > 1:
            return None
        client.settimeout(SLOW)
        client.sendall(GREETING)
        head, outputs, _, _ = socket.recv_fds(client, SIZE, 2)
        with client.makefile("rb") as stream:
            text = stream.read(int.from_bytes(head, "little"))
        if len(outputs) == 2 and len(head) == SIZE and text:
            return {**json.loads(text), "outputs": outputs}
        _close(outputs)
    return None


def become(request: Mapping[str, Any]) -> NoReturn:
    """Run a request's command in this child, as if Python had been started with it, and end.

    The child leaves the server's process group, because Ray kills the whole group of a dead worker. The child ends
    without the interpreter's shutdown, which would write to most of the shared memory: 200 MB in each child.
    """
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, output in enumerate(request["outputs"], start=1):
        os.dup2(output, number)
    _close(request["outputs"])
    sys.argv[:] = request["command"]
    script = sys.argv[0]
    first = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [os.path.dirname(script), *first, *(path for path in sys.path if path not in first)]
    for generator in (random, sys.modules["numpy.random"], sys.modules["torch"]):
        generator.seed()
    status: object = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        status = end.code
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else 0)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


if __name__ == "__main__":
    if len(sys.argv) > 2 and os.fork():
        os._exit(0)  # Ray kills the children of a worker that ends, so the server must not be one
    serve_cluster(int(sys.argv[1]), *sys.argv[2:])
