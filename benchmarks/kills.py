"""Kill a run's processes at random moments, and see whether anything is lost.

    python benchmarks/kills.py [--kills N] [--what host ...] [--seed N]

N kills each of a host, the coordinator, the driver and a node (SIGKILL), over methods and schedules that take turns, a
few kills to a run. A run's bits must be those of the same run undisturbed; what was computed again must be at most
`checkpoint.every_rounds` rounds per kill. Prints a line per kind, and ends with status 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import ray
import yaml
from ray.cluster_utils import Cluster
from rich.console import Console
from rich.table import Table

import raysim
from raysim.actors.cluster import own_cluster
from raysim.capacity import Capacity
from raysim.events import Event, RoundDone

EVERY, ROUNDS, A_RUN = 5, 120, 5  # rounds between checkpoints, rounds of a run, kills in a run
BASE: dict[str, Any] = {
    "name": "kills",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [16], "train": 400, "test": 80},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 4},
    "model": {"name": "mlp", "hidden": [32], "dropout": 0.2},
    "training": {"rounds_per_task": ROUNDS // 2, "batch_size": 8, "optimizer": {"lr": 0.05}},
    "participation": {"count": 3},
    "memory": {"capacity": 20},
    "resources": {"clients_per_actor": 2},
    "checkpoint": {"every_rounds": EVERY, "tries": 1000},
    "logging": {"tensorboard": False},
}
FEDBUFF = {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}}
RUNS: dict[str, dict[str, Any]] = {
    "DER + Fed-A-GEM + SCAFFOLD": {"methods": {"der": {}, "fed_a_gem": {}, "scaffold": {}}},
    "DER + Fed-A-GEM, FedBuff": {
        "methods": {"der": {}, "fed_a_gem": {"reference": "with_update"}},
        "schedule": FEDBUFF,
        "participation": {"fraction": 1.0},
    },
    "SPECIAL + A-GEM + FedAdam": {"methods": {"special": {}, "a_gem": {}, "fedadam": {"lr": 0.01}}},
    "ER, FedBuff": {"methods": {"er": {}}, "schedule": FEDBUFF, "participation": {"fraction": 1.0}},
    "Re-Fed": {"methods": {"re_fed": {"epochs": 1}}},
    "C-FLAG": {"methods": {"c_flag": {"sample_size": 8}}},
}
Kill = Callable[[], bool]
Replace = Callable[[], object]


@dataclass
class Tally:
    """What became of the kills of one kind."""

    kills: int = 0
    runs: int = 0
    different: list[str] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)


class Killer:
    """Kills at random moments, never before the run has gone on after the last kill; times how long that takes."""

    def __init__(self, kill: Kill, replace: Replace, kills: int, draws: random.Random) -> None:
        self.done = 0
        self.pauses: list[float] = []
        self._kill, self._replace, self._left, self._draws = kill, replace, kills, draws
        self._killed: float | None = None
        self._pending = False

    def take(self, event: Event) -> None:
        if not isinstance(event, RoundDone):
            return
        if self._killed is not None:
            self.pauses.append(time.perf_counter() - self._killed)
            self._killed = None
        if self._left and not self._pending and event.round < ROUNDS - 2 * EVERY:
            self._pending = True
            threading.Timer(self._draws.uniform(0, 0.5), self._strike).start()

    def say(self, text: str) -> None:
        if "going on from round" in text:
            self._replace()  # here, as only a process's main thread can start nodes
            self._pending = False

    def _strike(self) -> None:
        if self._kill():
            self.done, self._left, self._killed = self.done + 1, self._left - 1, time.perf_counter()
        else:
            self._pending = False


def actor(name: str, draws: random.Random) -> Kill:
    """Return what kills one of this process's actors of a class."""

    def kill() -> bool:
        found = []
        for process in psutil.Process().children(recursive=True):
            try:
                if process.name().startswith(f"ray::{name}"):
                    found.append(process)
            except psutil.Error:
                continue
        if not found:
            return False
        draws.choice(sorted(found, key=lambda process: process.pid)).kill()
        return True

    return kill


def losses(out: Path) -> list[int]:
    path = out / "checkpoints" / "losses.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line)["rounds_recomputed"] for line in lines]


def driver(config: Mapping[str, Any], out: Path, kills: int, draws: random.Random) -> int:
    """Kill the driver of a run, and resume it, again and again; return how often it was killed."""
    file = out.parent / f"{out.name}.yaml"
    file.write_text(yaml.safe_dump(dict(config)))
    command = [sys.executable, "-m", "raysim", "run", str(file), "--out", str(out), "--resume", "--quiet"]
    done = 0
    while True:
        with subprocess.Popen(command, start_new_session=True) as run:
            seen = rounds(out)
            while done < kills and run.poll() is None and not seen < rounds(out) < ROUNDS - 2 * EVERY:
                time.sleep(0.005)
            if done < kills and run.poll() is None:
                time.sleep(draws.uniform(0, 0.5))
                run.kill()
                done += 1
            elif run.wait():
                raise SystemExit(f"{out}: the run failed")
            else:
                return done


def rounds(out: Path) -> int:
    path = out / "rounds.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


@contextmanager
def nodes(draws: random.Random) -> Iterator[tuple[Kill, Replace]]:
    """Give a cluster of three nodes, what kills one that is not the driver's, and what puts another in its place."""
    cluster = Cluster(initialize_head=True, connect=True, head_node_args={"num_cpus": 0})
    others = [cluster.add_node(num_cpus=2) for _ in range(2)]
    cluster.wait_for_nodes()

    def kill() -> bool:
        cluster.remove_node(others.pop(draws.randrange(2)), allow_graceful=False)
        return True

    try:
        yield kill, lambda: others.append(cluster.add_node(num_cpus=2))
    finally:
        ray.shutdown()
        cluster.shutdown()


def carry_out(what: str, kills: int, seed: int, folder: Path, oracle: Mapping[str, str | None]) -> Tally:
    """Make that many kills of one kind."""
    tally, draws = Tally(), random.Random(f"{seed} {what}")
    with ExitStack() as stack:
        kill: Kill = bool  # nothing: the driver is not killed from here
        replace: Replace = bool
        if what in ("host", "coordinator"):
            stack.enter_context(own_cluster(Capacity(2, 0, None)))
            kill = actor(what.capitalize(), draws)
        elif what == "node":
            kill, replace = stack.enter_context(nodes(draws))
        for number in count():
            if tally.kills >= kills:
                return tally
            name = list(RUNS)[number % len(RUNS)]
            config, out = BASE | RUNS[name], folder / f"{what}-{number}"
            wanted = min(A_RUN, kills - tally.kills)
            if what == "driver":
                tally.kills += driver(config, out, wanted, draws)
            else:
                killer = Killer(kill, replace, wanted, draws)
                raysim.run(config, out=out, display=killer)
                tally.kills += killer.done
                tally.pauses += killer.pauses
            tally.runs += 1
            tally.again += losses(out)
            if raysim.load(out).model_sha256 != oracle[name]:
                tally.different.append(name)
    raise AssertionError("the loop returns")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ("host", "coordinator", "driver", "node")
    parser.add_argument("--kills", type=int, default=20, help="kills of each kind (20)")
    parser.add_argument("--what", nargs="+", choices=kinds, default=kinds, help="the kinds (all)")
    parser.add_argument("--seed", type=int, default=0, help="what the moments are drawn from (0)")
    asked = parser.parse_args()
    console = Console(width=120)
    table = Table(
        "killed", "kills", "runs", "same bits", "rounds again per kill", "seconds to the next round", box=None
    )
    lost = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        oracle = {
            name: raysim.run(BASE | RUNS[name], out=path / f"undisturbed-{number}", local=True).model_sha256
            for number, name in enumerate(RUNS)
        }
        for what in asked.what:
            tally = carry_out(what, asked.kills, asked.seed, path, oracle)
            lost = lost or bool(tally.different) or max(tally.again, default=0) > EVERY
            table.add_row(
                what,
                str(tally.kills),
                str(tally.runs),
                "all" if not tally.different else f"not of {', '.join(tally.different)}",
                f"{median(tally.again or [0]):.0f}, at most {max(tally.again, default=0)} (of {EVERY})",
                f"{median(tally.pauses):.1f}" if tally.pauses else "-",
            )
    console.print(table)
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
