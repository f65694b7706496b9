"""Cut the network of a run that trains on a cluster, for a while, and show what happens. Linux, as root.

    sudo python benchmarks/cuts.py [--seconds N ...] [--who driver node]

The head of a Ray cluster and another node are in separate namespaces, like two machines. A third namespace between them
forwards packets, or drops them for some seconds.

- `driver`: the run starts on the other node, and is cut off from the head.
- `node`: the run starts on the head. The other node, which has one of its two hosts, is cut off.

A run that continues for 20 rounds after the cut is stopped with Ctrl-C. Each cut has one line:

- whether the run continued, or when it ended,
- its exit status and summary,
- the CPUs that the cluster still has reserved in the end,
- what the run printed.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml
from workload import recorded_rounds

import raysim

RAY = str(Path(sys.executable).with_name("ray"))
PORT, BEFORE, AFTER = 6379, 25, 20  # rounds before the cut, and after it
LIMIT = 240  # seconds for each step, without the cut
PATIENCE = 90  # seconds in which the cluster takes back what was reserved
CONFIG: dict[str, Any] = {
    "name": "cuts",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 200, "test": 120},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 2},
    "model": {"name": "mlp", "hidden": [12]},
    "methods": {"workload:Idle": {"seconds": 0.2}},  # slow rounds that cost nothing
    "training": {"rounds_per_task": 100_000, "batch_size": 8, "optimizer": {"lr": 0.1}},
    "resources": {"clients_per_actor": 1},
    "logging": {"tensorboard": False},
}


class Network:
    """Two namespaces, `head` and `other`, with an address in each, and a third between them.

    As on two machines, neither sees the other's processes, nor Ray's files, which are below `rays`.
    """

    def __init__(self, stack: ExitStack, rays: Path) -> None:
        self.head, self.other, between = (f"raysim-{os.getpid()}-{name}" for name in ("head", "other", "between"))
        self.addresses = {self.head: "10.213.1.2", self.other: "10.213.2.2"}
        for name in (self.head, self.other, between):
            self._ip("netns", "add", name)
            stack.callback(self._ip, "netns", "del", name)
            self._ip("-n", name, "link", "set", "lo", "up")
        for number, (name, address) in enumerate(self.addresses.items()):
            gate = f"{address.rpartition('.')[0]}.1"
            self._ip("link", "add", "e0", "netns", name, "type", "veth", "peer", "name", f"e{number}", "netns", between)
            for space, device, own in ((name, "e0", address), (between, f"e{number}", gate)):
                self._ip("-n", space, "addr", "add", f"{own}/24", "dev", device)
                self._ip("-n", space, "link", "set", device, "up")
            self._ip("-n", name, "route", "add", "default", "via", gate)
        self._between = between
        self.forward(True)
        self.inside = {name: self._machine(stack, name, rays) for name in self.addresses}

    def _machine(self, stack: ExitStack, name: str, rays: Path) -> list[str]:
        """Return the words that run a command there, with separate processes and files of Ray's."""
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        keep = ["sh", "-c", 'mount -t tmpfs none "$0" && echo && exec sleep infinity', str(rays)]
        keeper = stack.enter_context(
            subprocess.Popen(["ip", "netns", "exec", name, *apart, *keep], stdout=subprocess.PIPE)
        )
        stack.callback(keeper.kill)
        assert keeper.stdout is not None
        assert keeper.stdout.readline()
        (first,) = psutil.Process(keeper.pid).children()
        return ["nsenter", f"--target={first.pid}", "--net", "--mount", "--pid"]

    def forward(self, on: bool) -> None:
        """Join the two, or cut them off from each other."""
        self._ip("netns", "exec", self._between, "sysctl", "-qw", f"net.ipv4.ip_forward={int(on)}")

    def start(self, where: str, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            inside = [*self.inside[where], *command]
            return subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)

    @staticmethod
    def _ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)


def send(started: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Send a signal to what nsenter has started, if it has not ended."""
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(started.pid).children():
            process.send_signal(number)


@contextmanager
def cluster(network: Network, folder: Path) -> Iterator[str]:
    """Start a node of one CPU in each namespace, and yield the head's address."""
    address = f"{network.addresses[network.head]}:{PORT}"
    common = ["--block", "--num-cpus=1", "--disable-usage-stats", "--object-store-memory=200000000"]
    head = ["--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={folder}/r"]
    nodes = []
    try:
        for where, more in ((network.head, head), (network.other, [f"--address={address}"])):
            log = folder / f"{len(nodes)}.log"
            command = [RAY, "start", *common, f"--node-ip-address={network.addresses[where]}", *more]
            nodes.append(network.start(where, command, log))
            until(lambda log=log: "Ray runtime started" in log.read_text())
        yield address
    finally:
        for node in reversed(nodes):
            send(node, signal.SIGTERM)
        for node in nodes:
            node.wait(LIMIT)


def until(holds: Callable[[], bool], limit: float = LIMIT) -> bool:
    """Wait until something holds; return whether it does."""
    end = time.monotonic() + limit
    while not (there := holds()) and time.monotonic() < end:
        time.sleep(0.2)
    return there


def reserved(network: Network, address: str) -> str:
    """Return the CPUs in use, of how many, as `ray status` says."""
    command = [*network.inside[network.head], RAY, "status", "--address", address]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    found = re.search(r"([\d.]+/[\d.]+) CPU", said.stdout)
    return found[1] if found else "unknown"


def cut(who: str, seconds: int, folder: Path) -> str:
    """Cut off the driver or a node from a run for this many seconds, and return a line about it."""
    config, out, log = folder / "cuts.yaml", folder / "run", folder / "run.log"
    config.write_text(yaml.safe_dump(CONFIG, sort_keys=False))
    with ExitStack() as stack:
        (folder / "r").mkdir()
        network = Network(stack, folder / "r")
        address = stack.enter_context(cluster(network, folder))
        command = [sys.executable, "-m", "raysim", "run", str(config), f"resources.address={address}"]
        where = network.other if who == "driver" else network.head
        run = network.start(where, [*command, "--out", str(out), "--quiet"], log)
        stack.callback(send, run, signal.SIGKILL)
        if not until(lambda: recorded_rounds(out) >= BEFORE or run.poll() is not None) or run.poll() is not None:
            raise SystemExit(f"the run does not train: {log.read_text()}")
        began = time.monotonic()
        network.forward(False)
        until(lambda: run.poll() is not None, seconds)
        ended = time.monotonic() - began if run.poll() is not None else None
        time.sleep(max(0, began + seconds - time.monotonic()))
        network.forward(True)
        at = recorded_rounds(out)
        if until(lambda: run.poll() is not None or recorded_rounds(out) >= at + AFTER) and run.poll() is None:
            went = "continued"
            send(run, signal.SIGINT)
        else:
            went = f"ended after {ended or time.monotonic() - began:.0f} s"
        run.wait(LIMIT)
        until(lambda: reserved(network, address).startswith("0.0/"), PATIENCE)
        held = reserved(network, address)
    summary = raysim.load(out) if (out / "summary.json").exists() else None
    told = f"{summary.status}, {summary.rounds} rounds, {summary.recoveries} recoveries" if summary else "no summary"
    said = " | ".join(log.read_text().split("\n")).strip(" |")
    return f"{who} cut off for {seconds} s: {went}; status {run.returncode}; {told}; {held} CPUs reserved; said: {said}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, nargs="+", default=[25, 50, 120, 150], help="lengths of the cuts")
    parser.add_argument(
        "--who", nargs="+", choices=("driver", "node"), default=("driver", "node"), help="who is cut off"
    )
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # also then, what was started ends
    found = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))  # for Idle
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "PYTHONPATH": found}
    for who in asked.who:
        for seconds in asked.seconds:
            with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder:
                print(cut(who, seconds, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
