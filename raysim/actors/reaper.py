"""Clean-up after a run whose process was killed: a script, run in a process that outlives it, that needs no package.

    python reaper.py FOLDER

reads lines from standard input until it ends. If the last one is not CLEARED, the run's process has ended without
cleaning up (a signal that cannot be handled, or Ray, which ends a process that loses the object store): it writes the
summaries of the runs that have none, ends what is left of the session, deletes its folder, and says how to go on. What
it needs for that came before, as JSON (raysim/system/last_words.py): a file and a command, to go on with if the file is
there; and a run's directory and summary, the newest of which counts.
"""

import fcntl
import json
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

CLEARED, FORGET = "cleared", "forget"
PATIENCE = 2  # seconds in which the run's process, of which this one hears at its end, has released all that it held
# what reading somebody else's JSON raises
RUBBISH = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


def listen(lines: Iterable[str]) -> dict[str, dict[str, Any]] | None:
    """Return the newest of what was said of each directory, and under "" how to go on; None if all is cleared.

    `told` is when it came, by time.monotonic. What was said before FORGET is another process's to do.
    """
    said: dict[str, dict[str, Any]] = {"": {"file": "", "command": ""}}
    for line in lines:
        if line.strip() == CLEARED:
            return None
        if line.strip() == FORGET:
            said.clear()
            continue
        with suppress(ValueError):  # the process was killed in the middle of it
            told = json.loads(line)
            said[told.get("directory", "")] = told | {"told": time.monotonic()}
    return said


def write_summary(directory: str, summary: dict[str, Any], told: float) -> None:
    """Write a run's summary.json, if it has none and nobody has begun to go on with it. Raises OSError."""
    with suppress(*RUBBISH):  # then it is as of when it was told
        summary |= count_rounds(f"{directory}/rounds.jsonl", summary["clients"])
    summary["seconds"] += time.monotonic() - told
    path = f"{directory}/summary.json"
    folder = os.open(directory, os.O_RDONLY)
    try:
        if _lock(folder) and not os.path.lexists(path):
            _write_whole(path, f"{directory}/.summary.json", json.dumps(summary, indent=2) + "\n")
    finally:
        os.close(folder)


def _write_whole(path: str, part: str, content: str) -> None:
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        os.unlink(part)
        raise


def _lock(folder: int) -> bool:
    """Lock a run's directory as a run does; return whether it was free, or is on a file system without locks."""
    limit = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit:
                return False
            time.sleep(0.01)
        except OSError:
            return True
        else:
            return True


def count_rounds(path: str, clients: int) -> dict[str, Any]:
    """Return what summary.json has of the rounds that were recorded, as raysim/records/totals.py counts them."""
    with open(path, encoding="utf-8") as file:
        rounds = [json.loads(line) for line in file if line.endswith("\n")]
    seconds, participation = sorted(one["seconds"] for one in rounds), [0] * clients
    for client in (client for one in rounds for client in one["cohort"]):
        participation[client] += 1
    middle = seconds[(len(seconds) - 1) // 2 : len(seconds) // 2 + 1]
    return {
        "rounds": len(rounds),
        "updates": sum(participation),
        **{key: sum(one[key] for one in rounds) for key in ("bytes_up", "bytes_down", "steps")},
        "participation": participation,
        "virtual_time": rounds[-1]["virtual_time"] if rounds else 0.0,
        "seconds_per_round": sum(middle) / len(middle) if middle else None,
    }


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
    said = listen(sys.stdin)
    if said is not None:
        go_on = said.pop("", None)
        for run in said.values():
            with suppress(*RUBBISH):  # the disk is full, or the directory is gone
                write_summary(**run)
        clear(sys.argv[1])
        if go_on is not None:
            advice = f"go on with {go_on['command']}" if os.path.exists(go_on["file"]) else "start it again"
            with suppress(OSError):  # nobody reads it
                words = f"the run's process was killed, or ended by Ray, which lost one of its own; {advice}"
                print(words, file=sys.stderr)
