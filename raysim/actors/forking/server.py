"""The fork server: imports what every actor needs, then forks a worker for each request.

    python -P server.py LISTENER [FOLDER] <PIPE

LISTENER is the descriptor of a listening socket. The pipe gives Ray's environment variables, in JSON, as its workers
have them; if it ends without, the cluster did not start. Ray is imported only then, as its C++ code reads them when it
is imported. The end of the raylet, which one of them names, is this server's end too. A server with a FOLDER of
its own deletes it in the end, and leaves when it has had no child for a while: nobody tells it that the runs are over.
"""

import gc
import json
import os
import random
import runpy
import selectors
import shutil
import socket
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from raysim.actors import compat
from raysim.actors.forking.request import GREETING, SIZE

WITHOUT_RAY = ("raysim.engine.simulation",)  # and with it torch
WITH_RAY = (compat.WORKER_MODULE, "raysim.actors.coordinator", "raysim.actors.runs")
IDLE = 60  # seconds
SLOW = 10  # seconds in which a request must have come once it was greeted
ME = "/proc/self/task"


def serve(listener: socket.socket, raylet: int, idle: float | None) -> Mapping[str, Any] | None:
    """Fork a child for each request. Return its request in the child; None in the server, when it is to leave."""
    children: dict[int, int] = {}  # by the descriptor that becomes readable when it ends
    with selectors.DefaultSelector() as events:
        events.register(listener, selectors.EVENT_READ)
        events.register(raylet, selectors.EVENT_READ)
        try:
            while ready := events.select(None if children else idle):
                for key, _ in ready:
                    if key.fd == raylet:
                        return None
                    if key.fd in children:
                        events.unregister(key.fd)
                        os.close(key.fd)
                        os.waitpid(children.pop(key.fd), 0)
                    elif request := receive(listener):
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
    """Accept a connection and return its request, with the outputs' descriptors; None if it sends none in time.

    A process with a second thread is not forked: a lock that the thread holds would be locked forever in the child.
    """
    asker, _ = listener.accept()
    with suppress(OSError, ValueError), asker:
        if len(os.listdir(ME)) > 1:
            return None
        asker.settimeout(SLOW)
        asker.sendall(GREETING)
        head, outputs, _, _ = socket.recv_fds(asker, SIZE, 2)
        with asker.makefile("rb") as stream:
            text = stream.read(int.from_bytes(head, "little"))
        if len(outputs) == 2 and len(head) == SIZE and text:
            return {**json.loads(text), "outputs": outputs}
        _close(outputs)
    return None


def become(request: Mapping[str, Any]) -> NoReturn:
    """Run a request's command in this process, a child, as if Python had been started with it, and end.

    It leaves the server's process group, as Ray ends the whole group of a worker that died. It ends without taking
    Python down, which writes to most of the pages that children share: 200 MB in each.
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
    own = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [os.path.dirname(script), *own, *(path for path in sys.path if path not in own)]
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


def serve_cluster(number: int, folder: str | None = None) -> None:
    """Serve until the cluster has ended; in a child, be its worker."""
    for module in WITHOUT_RAY:
        import_module(module)
    told = sys.stdin.read()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if not told:
        return
    compat.drop_rays_variables()  # of whoever started this server
    os.environ.update(json.loads(told))
    raylet = os.pidfd_open(int(os.environ[compat.RAYLET_VARIABLE]))
    for module in WITH_RAY:
        import_module(module)
    gc.collect()
    gc.freeze()  # else the collector would write to the pages that children share
    with socket.socket(fileno=number) as listener:
        request = serve(listener, raylet, IDLE if folder else None)
    os.close(raylet)
    if request is not None:
        become(request)
    elif folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) > 2 and os.fork():
        os._exit(0)  # else a Ray worker would be the server's parent, and Ray ends the children of a worker that ends
    serve_cluster(int(sys.argv[1]), *sys.argv[2:])
