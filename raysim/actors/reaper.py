"""Clean-up after a run whose process was killed: a script, run in a process that outlives it.

    python reaper.py FOLDER

waits until standard input ends, as it does with the process that started it. Then it ends what is left of the session
in the folder and deletes the folder. After a run that cleaned up by itself there is nothing left to do.
"""

import os
import shutil
import signal
import sys
from contextlib import suppress

import psutil


def clear(folder: str) -> None:
    """End the processes of a session that are left, and delete its folder.

    They are known by the logs in it that they write to, as some of Ray's overwrite their arguments and environment.
    """
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has ended, or is another user's
            if process.pid != os.getpid() and any(
                file.path.startswith(f"{folder}/") and file.mode != "r" for file in process.open_files()
            ):
                process.kill()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # sent to all processes of a run; its end is when the pipe ends
    sys.stdin.read()
    clear(sys.argv[1])
