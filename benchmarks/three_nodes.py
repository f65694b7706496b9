"""Runs on a cluster of three nodes that have their own network, host name, processes, /tmp and /dev/shm.

    sudo python benchmarks/three_nodes.py [--cases N ...] [--runs N]

The nodes are Linux namespaces on this machine, joined by a bridge. Unlike ray.cluster_utils, they do not share files,
shared memory or process ids. Needs root, and `unshare`, `nsenter` and `ip`. Each line of the table is one case:

- 60 clients with an actor each, and 300 packed ones, with the command on the head and on another node,
- a node that receives a notice of preemption during the run, and is gone ten seconds later,
- a node that is killed and replaced twice during the run,
- what N runs (5), one of which is killed with SIGKILL, leave on the nodes.

The model of each run is compared with that of `raysim run --local`. The exit status is 1 if one differs, or if anything
is left on a node. The namespaces and the bridge are removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.console import Console
from rich.table import Table
from workload import recorded_rounds

from raysim.actors import compat

BRIDGE, SUBNET, PORT = "raysim0", "10.77.0", 6379
CPUS, STORE = 2, 300_000_000  # of each node
LIMIT = 400  # seconds until something hangs
AFTER_NOTICE = 10  # seconds until a preempted node is gone
LINGERING = 15  # seconds in which a run's processes may end
BASE: dict[str, Any] = {
    "name": "nodes",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [16], "train": 3000, "test": 200},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "model": {"name": "mlp", "hidden": [16], "dropout": 0.2},
    "training": {"rounds_per_task": 5, "batch_size": 8, "optimizer": {"lr": 0.05}},
    "participation": {"count": 20},
    "memory": {"capacity": 20},
    "methods": {"der": {}, "scaffold": {}},
    "checkpoint": {"every_rounds": 50, "tries": 10},
    "logging": {"tensorboard": False},
}
ACTORS = {"clients": {"count": 60}}
PACKED = {"clients": {"count": 300}, "resources": {"clients_per_actor": "auto"}}
LONG = {**PACKED, "training": {**BASE["training"], "rounds_per_task": 500}}
ROOT = Path(__file__).parents[1]
RAY = str(Path(sys.executable).with_name("ray"))
# The first process of a node. A shell reaps the processes that lose their parents.
FIRST = """
mount -t tmpfs -o mode=1777 tmpfs /tmp && mount -t tmpfs -o mode=1777,size=1g tmpfs /dev/shm && ip link set lo up &&
hostname "$1" && echo ready && while :; do sleep 1; done
"""


def call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


class Node:
    """A node in namespaces, with Ray on it. Node 1 is the head."""

    def __init__(self, number: int, environment: dict[str, str]) -> None:
        self.address = f"{SUBNET}.{number}"
        self._environment = environment
        spaces = ["--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
        self._holder = subprocess.Popen(
            ["unshare", *spaces, "bash", "-c", FIRST, "bash", f"node{number}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "ready\n":
            raise SystemExit("namespaces are not allowed here: run as root, on a machine that allows them")
        self.first = psutil.Process(self._holder.pid).children()[0].pid
        self._link = link = f"raysim-n{number}"
        call("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(self.first))
        call("ip", "link", "set", link, "master", BRIDGE, "up")
        for words in (["addr", "add", f"{self.address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
            call("nsenter", "-t", str(self.first), "-n", "ip", *words)
        start = [RAY, "start", "--block", f"--num-cpus={CPUS}", f"--object-store-memory={STORE}"]
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        where = head if number == 1 else [f"--address={SUBNET}.1:{PORT}"]
        self._ray = self.begin([*start, f"--node-ip-address={self.address}", "--disable-usage-stats", *where])

    def begin(self, words: Sequence[str], **how: Any) -> subprocess.Popen[str]:
        """Start a command on this node."""
        enter = ["nsenter", "-t", str(self.first), "-n", "-m", "-p", "-u", f"--wd={ROOT}", "--"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen([*enter, *words], env=self._environment, text=True, **(quiet | how))

    def output(self, words: Sequence[str]) -> str:
        """Return what a command on this node prints."""
        process = self.begin(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=LIMIT)
        if process.returncode:
            raise SystemExit(f"{' '.join(words)}: {err}")
        return out

    def kill(self) -> None:
        """Kill every process on this node at once, without a warning."""
        os.kill(self.first, signal.SIGKILL)
        self._holder.wait()
        self._ray.wait()
        with suppress(subprocess.CalledProcessError):  # the kernel may have removed the namespaces already, or may not
            call("ip", "link", "delete", self._link)

    def processes(self) -> list[psutil.Process]:
        """Return all processes on this node."""
        space, found = os.readlink(f"/proc/{self.first}/ns/pid"), []
        for process in psutil.process_iter():
            try:
                if os.readlink(f"/proc/{process.pid}/ns/pid") == space:
                    found.append(process)
            except OSError:
                continue
        return found

    def files(self) -> set[str]:
        """Return the names of the files in /tmp and /dev/shm."""
        root = Path(f"/proc/{self.first}/root")
        return {f"/{place}/{path.name}" for place in ("tmp", "dev/shm") for path in (root / place).iterdir()}


class Nodes:
    """The cluster."""

    def __init__(self) -> None:
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in compat.rays_variables()},
            compat.MODE: "token",
            compat.TOKEN: secrets.token_hex(32),
            "PYTHONPATH": str(ROOT),
        }
        self.nodes: dict[int, Node] = {}

    def add(self, number: int) -> None:
        """Start a node, and wait until the cluster has it."""
        self.nodes[number] = Node(number, self._environment)
        until = time.monotonic() + LIMIT
        while len(self.table()) != len(self.nodes):
            if time.monotonic() > until:
                raise SystemExit(f"node {number} did not join the cluster")

    def table(self) -> dict[str, str]:
        """Return the id of each node that is alive, by address."""
        script = (
            f"import json, ray; ray.init(address='{SUBNET}.1:{PORT}', log_to_driver=False, logging_level='ERROR');"
            "print(json.dumps({n['NodeManagerAddress']: n['NodeID'] for n in ray.nodes() if n['Alive']}))"
        )
        process = self.nodes[1].begin([sys.executable, "-c", script], stdout=subprocess.PIPE)
        out, _ = process.communicate(timeout=LIMIT)
        found: dict[str, str] = json.loads(out.splitlines()[-1]) if process.returncode == 0 else {}
        return found

    def kill(self, number: int) -> None:
        """Kill a node."""
        self.nodes.pop(number).kill()

    def drain(self, number: int) -> None:
        """Give a node notice of preemption, and kill it when the time is up."""
        identity = self.table()[self.nodes[number].address]
        command = [RAY, "drain-node", f"--address={SUBNET}.1:{PORT}", f"--node-id={identity}"]
        why = ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot"]
        self.nodes[1].output([*command, *why, f"--deadline-remaining-seconds={AFTER_NOTICE}"])
        time.sleep(AFTER_NOTICE)
        self.kill(number)


@contextmanager
def cluster() -> Iterator[Nodes]:
    """Start a cluster of three nodes; remove it at the end."""
    call("ip", "link", "add", BRIDGE, "type", "bridge")
    made = Nodes()
    try:
        call("ip", "link", "set", BRIDGE, "up")
        for number in (1, 2, 3):
            made.add(number)
        yield made
    finally:
        for node in made.nodes.values():
            node.kill()
        call("ip", "link", "del", BRIDGE)


@dataclass
class Run:
    """A run of raysim on a node."""

    out: Path
    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)

    def reach(self, rounds: int) -> None:
        """Wait until this many rounds are done."""
        until = time.monotonic() + LIMIT
        while recorded_rounds(self.out) < rounds:
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{self.out}: the run did not reach round {rounds}: {self.process.communicate()[0]}")
            time.sleep(0.05)

    def end(self) -> dict[str, Any]:
        said, _ = self.process.communicate(timeout=LIMIT)
        if self.process.returncode:
            raise SystemExit(f"{self.out}: the run failed: {said}")
        self.said = said.splitlines()
        summary: dict[str, Any] = json.loads((self.out / "summary.json").read_text())
        return summary


class Bench:
    """The runs, in a folder that all nodes share."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self.nodes, self._folder, self._expected = nodes, folder, dict[str, str]()

    def complete(self) -> None:
        """Replace the nodes that are gone."""
        for missing in {1, 2, 3} - {*self.nodes.nodes}:
            self.nodes.add(missing)

    def begin(self, name: str, change: dict[str, Any], on: int) -> Run:
        file = self._folder / f"{name}.yaml"
        place = {**change.get("resources", {}), "address": f"{SUBNET}.1:{PORT}"}
        file.write_text(yaml.safe_dump({**BASE, **change, "resources": place}, sort_keys=False))
        words = [sys.executable, "-m", "raysim", "run", str(file), "--out", str(self._folder / name)]
        return Run(
            self._folder / name, self.nodes.nodes[on].begin(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        )

    def expected(self, change: dict[str, Any]) -> str:
        """Return the model of the same run in one process."""
        key = json.dumps(change)
        if key not in self._expected:
            file, out = self._folder / f"local-{len(self._expected)}.yaml", self._folder / f"l-{len(self._expected)}"
            file.write_text(yaml.safe_dump({**BASE, **change}, sort_keys=False))
            command = [sys.executable, "-m", "raysim", "run", str(file), "--out", str(out), "--local", "--quiet"]
            subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
            self._expected[key] = json.loads((out / "summary.json").read_text())["model_sha256"]
        return self._expected[key]


def undisturbed(run: Run, nodes: Nodes) -> None:
    """Do nothing to a run."""


def drained(run: Run, nodes: Nodes) -> None:
    """Give node 2 notice, and take it away."""
    run.reach(120)
    nodes.drain(2)


def killed_twice(run: Run, nodes: Nodes) -> None:
    """Kill node 3 twice, once it has come back."""
    run.reach(120)
    nodes.kill(3)
    nodes.add(3)
    run.reach(recorded_rounds(run.out) + 100)
    nodes.kill(3)


Act = Callable[[Run, Nodes], None]
CASES: list[tuple[str, dict[str, Any], int, Act]] = [
    ("60 actors, command on the head", ACTORS, 1, undisturbed),
    ("60 actors, command on node 2", ACTORS, 2, undisturbed),
    ("300 packed, command on node 3", PACKED, 3, undisturbed),
    ("300 packed, node 2 preempted", LONG, 1, drained),
    ("300 packed, node 3 killed twice", LONG, 1, killed_twice),
]


def carry_out(bench: Bench, cases: Sequence[int], console: Console) -> tuple[Table, bool]:
    """Carry these cases out. Return the table, and whether all runs have the expected model."""
    table = Table("case", "model as with --local", "losses", "rounds again", "notices", box=None)
    well = True
    for number in cases:
        name, change, on, act = CASES[number - 1]
        bench.complete()
        run = bench.begin(f"case-{number}", change, on)
        act(run, bench.nodes)
        summary = run.end()
        same = summary["model_sha256"] == bench.expected(change)
        well = well and same
        notices = sum("about to leave the cluster" in line for line in run.said)
        again = str(summary["rounds_recomputed"])
        table.add_row(name, "yes" if same else "NO", str(summary["recoveries"]), again, str(notices))
        told = [
            line for line in run.said if "resuming from" in line or "leave the cluster" in line or "no host" in line
        ]
        console.print(f"case {number} done", *told, sep="\n  ", highlight=False)
    return table, well


def leave(bench: Bench, runs: int) -> list[str]:
    """Return what some runs leave on the nodes: processes that are not as old as Ray, and files."""
    nodes = bench.nodes.nodes
    time.sleep(LINGERING)
    before = {number: ({each.pid for each in node.processes()}, node.files()) for number, node in nodes.items()}
    for number in range(runs):
        run = bench.begin(f"left-{number}", LONG if number == 0 else ACTORS, 1 + number % 3)
        if number == 0:
            run.reach(20)
            for process in psutil.Process(run.process.pid).children(recursive=True):
                process.kill()
            run.process.wait()
        else:
            run.end()
    time.sleep(LINGERING)
    left = []
    for number, node in nodes.items():
        processes, files = before[number]
        found = [process for process in node.processes() if process.pid not in processes]
        named = [" ".join(process.cmdline())[:100] or f"{process.name()} ({process.status()})" for process in found]
        # The shell that is the node's first process sleeps, a second at a time. Ray keeps idle workers at hand.
        named = [name for name in named if name != "sleep 1" and not name.startswith("ray::IDLE")]
        left += [f"node {number}: {what}" for what in [*named, *sorted(node.files() - files)]]
    return left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = range(1, len(CASES) + 1)
    parser.add_argument("--cases", type=int, nargs="*", choices=every, default=every, help="which cases (all)")
    parser.add_argument("--runs", type=int, default=5, help="runs after which to look for what is left (5); 0 omits it")
    asked = parser.parse_args()
    if os.geteuid() or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        parser.error("this needs root, and unshare, nsenter and ip")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that the namespaces are removed
    console, left = Console(width=110), list[str]()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, cluster() as nodes:
        bench = Bench(nodes, Path(folder))
        table, well = carry_out(bench, asked.cases, console)
        if asked.runs:
            bench.complete()
            left = leave(bench, asked.runs)
    console.print(table)
    if asked.runs:
        console.print(f"left after {asked.runs} runs, one of them killed: {len(left) or 'nothing'}", *left, sep="\n")
    return int(not well or bool(left))


if __name__ == "__main__":
    sys.exit(main())
