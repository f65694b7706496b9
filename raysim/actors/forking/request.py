"""What Ray executes in place of a worker's Python: a script of the standard library that is done in milliseconds.

    python -I -S request.py SOCKET default_worker.py ARGUMENT ...

It has the fork server that listens at SOCKET start the command as a child of its own, in this folder, with this
environment and these outputs, and ends; Ray learns a worker's process id from the worker. Where no server answers,
this process becomes the command, a worker as Ray starts them.
"""

import json
import os
import socket
import sys
from contextlib import suppress

GREETING = b"!"
PATIENCE = 40  # seconds to wait for a server that is importing; Ray waits 60 for a worker
SIZE = 8  # bytes of the length that precedes a request


def hand_over(path: str, command: list[str]) -> bool:
    """Return whether a fork server has taken the command.

    Nothing is sent before its greeting, so that a server which comes too late starts nothing.
    """
    here = {"folder": os.getcwd(), "command": command, "environment": dict(os.environ)}
    request = json.dumps(here).encode()  # ASCII: bytes that are no UTF-8 are escaped surrogates
    with suppress(OSError), socket.socket(socket.AF_UNIX) as server:
        server.settimeout(PATIENCE)
        server.connect(path)
        if server.recv(1) == GREETING:
            socket.send_fds(server, [len(request).to_bytes(SIZE, "little")], [1, 2])
            server.sendall(request)
            return True
    return False


if __name__ == "__main__":
    if not hand_over(sys.argv[1], sys.argv[2:]):
        os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
