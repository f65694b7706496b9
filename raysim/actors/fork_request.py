"""Ask a fork server to start a worker. Ray starts this script where it would start Python with the worker's script.

    python -I -S fork_request.py SOCKET default_worker.py ARGUMENT ...

The fork server at SOCKET starts the command as its child. The child gets this process's working directory, environment,
stdout and stderr. Then this script ends within milliseconds, and Ray learns the worker's process id from the worker. If
no server answers, this process becomes the worker, as if Ray had started Python itself. To start fast, the script
imports only the standard library.
"""

import json
import os
import socket
import sys
from contextlib import suppress

GREETING = b"!"
PATIENCE = 40  # seconds to wait for a server that is still importing; Ray waits 60 for a worker
SIZE = 8  # bytes of the length that precedes a request


def hand_over(path: str, command: list[str]) -> bool:
    """Send the command to the fork server at this path. Return whether the server has taken it.

    Send it only after the greeting. After a timeout, this process becomes the worker, and the server must not start a
    second worker.
    """
    here = {"folder": os.getcwd(), "command": command, "environment": dict(os.environ)}
    request = json.dumps(here).encode()  # JSON escapes the surrogates of variables that are not UTF-8
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
