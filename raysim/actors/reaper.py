"""Clean up after a run if its process was killed. This script runs in a process that outlives the run's process.

    python reaper.py FOLDER

The script waits for the end of its standard input, which comes when the process that started it ends. Then it kills the
processes of the session in the folder, and deletes the folder. After a normal end, nothing is left to do.
"""

import os
import shutil
import signal
import sys
from contextlib import suppress

import psutil


def clear(folder: str) -> None:
    """Kill the processes of a session, and delete its folder.

    The session's processes are found by files in the folder that they have open for writing. Arguments and environment
    do not identify them, because some of Ray's processes overwrite both.
    """
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # the process has ended, or belongs to another user
            if process.pid != os.getpid() and any(
                file.path.startswith(f"{folder}/") and file.mode != "r" for file in process.open_files()
            ):
                process.kill()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # all processes of a run receive them, but the run may still clean up
    sys.stdin.read()
    clear(sys.argv[1])
