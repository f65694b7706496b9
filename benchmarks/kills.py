"""Kill a run's processes at random moments, and check that it recovers with the same bits.

    python benchmarks/kills.py [--kills N] [--what host ...] [--runs LoRA ...] [--seed N] [--workers KIND]

Kills (SIGKILL) a host, the coordinator, the driver, a node, and Ray's raylet, GCS and runtime environment agent, N
times each. `local` kills a run with --local, which is one process. `terminated` sends SIGTERM to the driver and Ray's
processes, as `timeout` and `scancel` do. Runs with different methods and schedules alternate, with three kills per run,
so that 24 kills cover all of them. The checks are:

- A run that was terminated has a summary that says so, and one that was killed has none. Both resume with --resume.
- The run ends with the bits of the same run without kills.
- The run has recorded an interruption for every kill.
- An interruption repeats at most `checkpoint.every_rounds` rounds.

Prints one line per kind, and exits with status 1 if any of this fails, or a run takes longer than five minutes.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import yaml
from killing import STRIKES, Kill, Killer, Replace, actor, at_most, nodes, terminate
from rich.console import Console
from rich.table import Table
from timing import add_workers
from workload import recorded_rounds

import raysim
from raysim.actors.starting import own_cluster
from raysim.system.capacity import Capacity

EVERY, ROUNDS, A_RUN = 5, 60, 3  # rounds between checkpoints, rounds of a run, kills in a run
LAST, SPREAD = ROUNDS - 2 * EVERY, 2 * EVERY  # the last round after which a kill may start; rounds to draw from
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
IMAGES = {"name": "synthetic", "classes": 4, "shape": [1, 8, 8], "train": 400, "test": 80}
ADAPTED = {
    "name": "vit",
    "width": 16,
    "depth": 1,
    "heads": 2,
    "patch": 4,
    "input_size": None,
    "adapters": {"rank": 2, "where": ["attn.qkv", "mlp.fc1"]},
}
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
    "LoRA": {"methods": {"lora": {}}, "dataset": IMAGES, "model": ADAPTED},
    "TARGET": {
        "methods": {"target": {"calls": 1, "batch": 16, "steps": 4, "images": 16, "bn": 1.0, "width": 8}},
        "dataset": IMAGES,
        "model": {"name": "mlp", "hidden": [32], "batch_norm": True},
    },
}


@dataclass
class Tally:
    """Results of the kills of one kind."""

    kills: int = 0
    runs: int = 0
    losses: int = 0
    different: list[str] = field(default_factory=list)
    again: list[int] = field(default_factory=list)
    recomputed: int = 0  # repeated rounds according to summary.json
    pauses: list[float] = field(default_factory=list)

    @property
    def well(self) -> bool:
        counted = self.losses == self.kills and self.recomputed == sum(self.again)
        return not self.different and counted and max(self.again, default=0) <= EVERY


def from_outside(
    what: str, config: Mapping[str, Any], out: Path, kills: int, draws: random.Random
) -> tuple[int, list[float]]:
    """Strike a run's processes repeatedly, and resume it where it ended.

    Returns:
        the number of strikes, and the seconds from each one to the next round.
    """
    file = out.parent / f"{out.name}.yaml"
    file.write_text(yaml.safe_dump(dict(config), sort_keys=False))  # the order of methods matters
    command = [sys.executable, "-m", "raysim", "run", str(file), "--out", str(out), "--resume", "--quiet"]
    command += ["--local"] * (what == "local")
    strike, done, struck, pauses = STRIKES[what], 0, 0.0, list[float]()
    while True:
        run = subprocess.Popen(command, start_new_session=True)
        try:
            while run.poll() is None:
                go_on(run, out, 1)
                if done > len(pauses) and run.poll() is None:
                    pauses.append(time.perf_counter() - struck)
                go_on(run, out, draws.randint(0, SPREAD))
                if done == kills or recorded_rounds(out) > LAST or run.poll() is not None:
                    run.wait()
                    break
                time.sleep(draws.uniform(0, 0.05))
                noted, struck = len(again(out)), time.perf_counter()
                done += strike(run.pid)
                while run.poll() is None and len(again(out)) == noted:
                    time.sleep(0.005)
        finally:
            run.kill()
        if run.returncode == 0:
            return done, pauses
        ended = raysim.load(out).status if (out / "summary.json").exists() else "killed"
        expected = (130, "interrupted") if strike is terminate else (-signal.SIGKILL, "killed")
        if (run.returncode, ended) != expected:
            raise SystemExit(f"{out}: the run has ended as {ended}, with exit status {run.returncode}")


def go_on(run: subprocess.Popen[bytes], out: Path, more: int) -> None:
    """Wait until the run has recorded this many further rounds (it may have removed some before), or has ended."""
    seen = recorded_rounds(out)
    while more > 0 and run.poll() is None:
        time.sleep(0.005)
        now = recorded_rounds(out)
        more -= max(0, now - seen)
        seen = now


def again(out: Path) -> list[int]:
    """Return the number of repeated rounds of each interruption that the run recorded."""
    path = out / "checkpoints" / "losses.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line)["rounds_recomputed"] for line in lines]


def carry_out(
    what: str, kills: int, runs: Sequence[str], seed: int, folder: Path, oracle: Callable[[str], str | None]
) -> Tally:
    """Perform this many kills of one kind, in these runs in turn."""
    tally, draws = Tally(), random.Random(f"{seed} {what}")
    resources: dict[str, Any] = dict(BASE["resources"])
    with ExitStack() as stack:
        kill: Kill = bool  # does nothing: not all are killed from within
        replace: Replace = bool
        with at_most(f"{what}: its cluster"):
            if what in ("host", "coordinator"):
                stack.enter_context(own_cluster(Capacity(2, 0, None)))
                kill = actor(what.capitalize(), draws)
            elif what == "node":
                resources["address"], kill, replace = stack.enter_context(nodes(draws))
        for number in count():
            if tally.kills >= kills:
                return tally
            name = runs[number % len(runs)]
            config, out = BASE | RUNS[name] | {"resources": resources}, folder / f"{what}-{number}"
            wanted = min(A_RUN, kills - tally.kills)
            with at_most(f"{what}, {name}"):
                if what in STRIKES:
                    done, pauses = from_outside(what, config, out, wanted, draws)
                else:
                    done, pauses = from_within(config, out, Killer(kill, replace, wanted, LAST, SPREAD, draws), replace)
            result = raysim.load(out)
            if not done:
                raise SystemExit(f"{what}, {name}: the run ended before anything was killed")
            tally.kills += done
            tally.pauses += pauses
            tally.runs += 1
            tally.losses += done if what == "terminated" else result.recoveries  # none if it hit upon a checkpoint
            tally.again += again(out)
            tally.recomputed += result.rounds_recomputed
            if result.model_sha256 != oracle(name):
                tally.different.append(name)
    raise AssertionError("the loop returns")


def from_within(config: Mapping[str, Any], out: Path, killer: Killer, replace: Replace) -> tuple[int, list[float]]:
    """Carry out a run in this process and kill some of its processes."""
    replace()  # nodes that were lost too late for the previous run to report
    try:
        raysim.run(config, out=out, display=killer)
    finally:
        killer.over()
    return killer.done, killer.pauses


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = ("host", "coordinator", "node", *STRIKES)
    parser.add_argument("--kills", type=int, default=20, help="kills of each kind (20)")
    parser.add_argument("--what", nargs="+", choices=kinds, default=kinds, help="the kinds (all)")
    parser.add_argument("--runs", nargs="+", choices=[*RUNS], default=[*RUNS], help="the runs that alternate (all)")
    parser.add_argument("--seed", type=int, default=0, help="what the moments are drawn from (0)")
    add_workers(parser)
    asked = parser.parse_args()
    BASE["resources"]["workers"] = asked.workers
    console = Console(width=120)
    table = Table(
        "killed", "kills", "losses", "runs", "same bits", "rounds again per loss", "seconds to the next round", box=None
    )
    well = True
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)

        @cache
        def oracle(name: str) -> str | None:
            out = path / f"undisturbed-{list(RUNS).index(name)}"
            with at_most(f"undisturbed, {name}"):
                return raysim.run(BASE | RUNS[name], out=out, local=True).model_sha256

        for what in asked.what:
            tally = carry_out(what, asked.kills, asked.runs, asked.seed, path, oracle)
            well = well and tally.well
            table.add_row(
                what,
                str(tally.kills),
                str(tally.losses),
                str(tally.runs),
                "all" if not tally.different else f"not of {', '.join(tally.different)}",
                f"{median(tally.again or [0]):.0f}, at most {max(tally.again, default=0)} (of {EVERY})",
                f"{median(tally.pauses):.1f}" if tally.pauses else "-",
            )
    console.print(table)
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
