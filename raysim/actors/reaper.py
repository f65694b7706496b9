"""Clean-up after a run whose process was killed: a script, run in a process that outlives it, that needs no package.

    python reaper.py FOLDER FILE COMMAND

waits until standard input ends. If nothing was written there, the run's process has ended without cleaning up (a signal
that cannot be handled, or Ray, which ends a process that loses the object store): it ends what is left of the session,
deletes its folder, and says how to go on if there is something to go on from.
"""

import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

MARK = "RAYSIM_SESSION"  # in the environment of every process that is started in a session: the session's folder


def clear(folder: str) -> None:
    """End the processes of a session that are left, and delete its folder."""
    mark = f"{MARK}={folder}".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):  # a system without it has Ray's own clean-up
        with suppress(OSError):  # it has ended, or belongs to another user
            if mark in environment.read_bytes().split(b"\0"):
                os.kill(int(environment.parent.name), signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    session, file, command = sys.argv[1:]
    if not sys.stdin.read():
        clear(session)
        go_on = f"; go on with {command}" if os.path.exists(file) else ""
        with suppress(OSError):  # nobody reads it
            print(f"the run's process was killed, or ended by Ray, which lost one of its own{go_on}", file=sys.stderr)
