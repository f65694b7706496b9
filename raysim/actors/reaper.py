"""Clean-up after a run whose process was killed: a script, run in a process that outlives it, that needs no package.

    python reaper.py FOLDER

waits until standard input ends. If its last line is not CLEARED, the run's process has ended without cleaning up (a
signal that cannot be handled, or Ray, which ends a process that loses the object store): it ends what is left of the
session, deletes its folder, and says how to go on if there is something to go on from: two lines that came before are a
file, which is there then, and a command.
"""

import os
import shutil
import signal
import stat
import sys
from contextlib import suppress

CLEARED = "cleared"


def clear(folder: str) -> None:
    """End the processes of a session that are left, and delete its folder.

    They are known by the logs in it that they write to: some of Ray's wipe out their arguments and their environment.
    """
    present = os.listdir("/proc") if os.path.isdir("/proc") else []  # without it, Ray has a process for this
    for pid in {int(name) for name in present if name.isdecimal()} - {os.getpid()}:
        with suppress(OSError):  # it has ended, or is another user's
            if any(_writes_below(folder, f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")):
                os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _writes_below(folder: str, descriptor: str) -> bool:
    with suppress(OSError):  # it was closed meanwhile
        return bool(os.lstat(descriptor).st_mode & stat.S_IWUSR) and os.readlink(descriptor).startswith(f"{folder}/")
    return False


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # sent to all processes of a run; its end is when the pipe ends
    told = ["", "", *sys.stdin.read().splitlines()]
    if told[-1] != CLEARED:
        clear(sys.argv[1])
        file, command = told[-2:]
        go_on = f"go on with {command}" if os.path.exists(file) else "start it again"
        with suppress(OSError):  # nobody reads it
            print(f"the run's process was killed, or ended by Ray, which lost one of its own; {go_on}", file=sys.stderr)
