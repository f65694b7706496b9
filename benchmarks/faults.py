"""Kill or stop processes of a run, alone and in pairs, at its start and in its middle; check its bits and what is left.

    python benchmarks/faults.py [--cases N] [--seed N]

The processes are a host, the coordinator, the driver, the raylet, the GCS, the fork server and the reaper. A fork
server is also stopped instead of killed. If the driver ends, the run is resumed. Every run must end with the bits of
the same run without faults. Afterwards, no process of it, no folder and no shared memory may be left. Prints a line per
case, and exits with status 1 if any of this fails.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import psutil
import yaml
from workload import recorded_rounds

import raysim

CONFIG: Mapping[str, Any] = {
    "name": "faults",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [16], "train": 480, "test": 80},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "partition": {"kind": "dirichlet", "alpha": 0.3, "min_samples": 4},
    "clients": {"count": 12},
    "model": {"name": "mlp", "hidden": [32], "dropout": 0.2},
    "training": {"rounds_per_task": 60, "batch_size": 8, "optimizer": {"lr": 0.05}},
    "methods": {"der": {}},
    "memory": {"capacity": 20},
    "resources": {"clients_per_actor": 6, "patience": 40},  # a stopped fork server starts no host
    "checkpoint": {"every_rounds": 3, "tries": 20},
    "logging": {"tensorboard": False},
}
UNHARMED = "nothing was struck"
PATIENCE = 240.0  # seconds for a run, with its resumes
LAST = 100  # the last round after which a fault may happen


def named(name: str) -> Callable[[psutil.Process], bool]:
    return lambda process: process.name().startswith(name)


def script(name: str) -> Callable[[psutil.Process], bool]:
    return lambda process: any(Path(part).name == name for part in process.cmdline())


KINDS: Mapping[str, tuple[Callable[[psutil.Process], bool] | None, signal.Signals]] = {
    "host": (named("ray::Host"), signal.SIGKILL),
    "coordinator": (named("ray::Coordinator"), signal.SIGKILL),
    "driver": (None, signal.SIGKILL),
    "raylet": (named("raylet"), signal.SIGKILL),
    "gcs": (named("gcs_server"), signal.SIGKILL),
    "fork server": (script("fork_server.py"), signal.SIGKILL),
    "reaper": (script("reaper.py"), signal.SIGKILL),
    "stopped fork server": (script("fork_server.py"), signal.SIGSTOP),
}
"""By kind: how its process is found below the driver (None is the driver), and the signal."""
PAIRS = (
    ("fork server", "host"),
    ("fork server", "coordinator"),
    ("reaper", "driver"),
    ("fork server", "raylet"),
    ("driver", "coordinator"),
    ("stopped fork server", "host"),
    ("host", "coordinator"),
)


def cases(seed: int) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield which processes to strike, and whether at the start. All kinds come before any repeats."""
    draws = random.Random(seed)
    while True:
        kinds: list[tuple[str, ...]] = [*((kind,) for kind in KINDS), *PAIRS]
        several = list(product(kinds, (False, True)))
        draws.shuffle(several)
        yield from several


def strike(kinds: tuple[str, ...], driver: psutil.Process, draws: random.Random) -> bool:
    """Send each kind's signal to one of its processes, if there is one of every kind. Return whether there was."""
    below, struck = driver.children(recursive=True), []
    for kind in kinds:
        fits, sent = KINDS[kind]
        found = [driver] if fits is None else []
        for process in below if fits else ():
            with suppress(psutil.Error):
                if fits is not None and fits(process):
                    found.append(process)
        if not found:
            return False
        struck.append((draws.choice(found), sent))
    for process, sent in struck:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(sent)
    return True


def carry_out(kinds: tuple[str, ...], early: bool, folder: Path, draws: random.Random) -> tuple[str | None, str]:
    """Run the config, strike once, and resume until it is done. Return the model's digest, and what happened.

    The digest is None if nothing was struck.
    """
    file, out = folder / "config.yaml", folder / "out"
    file.write_text(yaml.safe_dump(dict(CONFIG), sort_keys=False))
    command = [sys.executable, "-m", "raysim", "run", str(file), "--out", str(out), "--resume", "--quiet"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    after = 0 if early else draws.randint(1, LAST)
    struck, resumed, ends = False, 0, time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        with (folder / "said").open("a") as said:
            run = subprocess.Popen(command, env=environment, start_new_session=True, stdout=said, stderr=said)
            driver = psutil.Process(run.pid)
            while run.poll() is None and time.monotonic() < ends:
                time.sleep(0.02)
                if not struck and recorded_rounds(out) >= after:
                    time.sleep(draws.uniform(0, 4.0 if early else 0.1))
                    with suppress(psutil.Error):
                        struck = strike(kinds, driver, draws)
            if run.poll() is None:
                run.kill()
                return None, "it hung"
        if run.returncode == 0:
            return (raysim.load(out).model_sha256, f"resumed {resumed} times") if struck else (None, UNHARMED)
        resumed += 1
    return None, "it did not end"


def left_behind(folder: Path) -> list[str]:
    """Return the processes, folders and shared memory that a run in this folder has left, after some seconds."""
    found: list[str] = []
    for _ in range(100):
        processes = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if any(str(folder) in part for part in process.cmdline()):
                    processes.append(f"process {process.name()}")
        found = [*processes, *(path.name for path in folder.glob("raysim-*"))]
        if not found:
            break
        time.sleep(0.2)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=30, help="number of runs (30)")
    parser.add_argument("--seed", type=int, default=0, help="what the faults and their moments are drawn from (0)")
    asked = parser.parse_args()
    draws, wrong = random.Random(asked.seed), 0
    with tempfile.TemporaryDirectory(prefix="f", dir="/tmp") as name:
        expected = raysim.run(CONFIG, out=Path(name) / "expected", local=True).model_sha256
    for number, (kinds, early) in zip(range(asked.cases), cases(asked.seed), strict=False):
        before = set(os.listdir("/dev/shm"))
        with tempfile.TemporaryDirectory(prefix="f", dir="/tmp", ignore_cleanup_errors=True) as name:
            found, how = carry_out(kinds, early, Path(name), draws)
            left = left_behind(Path(name)) + sorted(set(os.listdir("/dev/shm")) - before)
        good = (found == expected or how == UNHARMED) and not left
        wrong += not good
        when = "at the start" if early else "later"
        bits = "" if how == UNHARMED else ", same bits" if found == expected else ", OTHER BITS"
        words = f"{' and '.join(kinds)}, {when}: {how}{bits}"
        print(
            f"{number + 1:3}  {'ok ' if good else 'BAD'} {words}{', left: ' * bool(left)}{', '.join(left)}", flush=True
        )
    print(f"{asked.cases - wrong} of {asked.cases} as they should be")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
