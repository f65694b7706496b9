"""Where the time of a round goes: in the coordinator, which this process replaces, and in a host's client updates.

    python benchmarks/round_time.py [--samples N] [--rounds N] [--coarse]

Measures CPU time per client update in the thread that does the work, which other programs hardly affect, without
evaluation. The coordinator's own work is everything except for waiting for its hosts; "all threads" adds those of Ray
in the same process. A host's work is timed in this process, where one host has all clients. Under FedBuff as many
client updates are timed as in synchronous rounds. Reading the clock costs a microsecond or two for each timed call.
With --coarse, only calls to hosts are timed of the coordinator's work. MNIST CNN; uses MNIST if $RAYSIM_DATA contains
it, else noise of the same shape. (A module called profile would hide Python's own.)
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import ray
import torch
from rich.console import Console
from rich.table import Table
from workload import config, saved

from raysim import config as configs
from raysim.actors import compat, reservation, runner
from raysim.actors.rebalancing import Rebalancing
from raysim.actors.starting import own_cluster
from raysim.api.client import Client
from raysim.data.pixels import Source
from raysim.engine import collection, synchronous
from raysim.engine.asynchronous import AsynchronousUpdates
from raysim.engine.collection import Collection
from raysim.engine.events import RoundDone
from raysim.engine.exact_sum import ExactSum
from raysim.engine.exchange import Exchange, Traffic
from raysim.engine.host import ClientHost
from raysim.engine.hosted_client import HostedClient
from raysim.engine.optimizer import LocalSgd
from raysim.engine.replies import Reply
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.engine.synchronous import SynchronousRounds
from raysim.estimate.placement import place
from raysim.federation.federation import build_federation
from raysim.federation.stream import Stream
from raysim.models.flat import FlatModel
from raysim.models.mnist_cnn import MnistCnn
from raysim.system.capacity import this_machine
from raysim.system.switches import set_torch

WARM_UP = 2  # rounds that are not counted

Places = dict[str, list[tuple[Any, str]]]  # the functions that are timed as one

COORDINATOR: Places = {
    "draw the cohort": [(synchronous, "choose_participants")],
    "make orders": [(Exchange, "order")],
    "count bytes": [(Traffic, "count_sent"), (Traffic, "count_received"), (Traffic, "take_by_client")],
    "move clients": [(Rebalancing, "plan_moves"), (Rebalancing, "add_times")],
    "broadcast the model": [(runner.RayRunner, "_stored")],
    "send orders": [(runner.RayRunner, "begin")],
    "wait": [(ray, "wait")],
    "take replies": [(runner.RayRunner, "_answer")],
    "merge sums": [(Reply, "merge")],
    "make the model": [(Exchange, "update_model")],
    "virtual time, tasks": [(SynchronousRounds, "_outcome"), (AsynchronousUpdates, "_outcome")],
    "the rest": [(Simulation, "_timed_round")],
}
COARSE = {label: COORDINATOR[label] for label in ("send orders", "wait", "take replies", "the rest")}
HOST = {
    "copy the model in": [(FlatModel, "load")],
    "enter the phase": [(HostedClient, "begin_phase")],
    "make batches": [(Stream, "locate"), (Source, "fetch"), (Source, "labels")],
    "forward": [(MnistCnn, "__call__"), (Client, "loss")],
    "backward": [(torch.Tensor, "backward")],
    "SGD step": [(LocalSgd, "step")],
    "exact sum": [(ExactSum, "add"), (collection, "magnitude"), (Collection, "settle")],
    "the rest": [(ClientHost, "perform")],
}
BUFFER = 10  # client updates in a server update of FedBuff
FEDBUFF = {"kind": "asynchronous", "concurrency": BUFFER, "buffer_size": BUFFER}
SETTINGS: list[tuple[int, str | int, dict[str, Any]]] = [
    (10, 1, {"kind": "synchronous"}),
    (100, "auto", {"kind": "synchronous"}),
    (1000, "auto", {"kind": "synchronous"}),
    (100, "auto", FEDBUFF),
    (1000, "auto", FEDBUFF),
]


@dataclass
class Shares:
    """CPU seconds of this thread by label; in nested calls, time counts only for the innermost label."""

    seconds: dict[str, float] = field(default_factory=dict)
    inside: list[str] = field(default_factory=list)
    since: float = 0.0

    def timed(self, label: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def within(*arguments: Any, **more: Any) -> Any:
            self._turn()
            self.inside.append(label)
            try:
                return call(*arguments, **more)
            finally:
                self._turn()
                self.inside.pop()

        return within

    def _turn(self) -> None:
        now = time.thread_time()
        if self.inside:
            self.seconds[self.inside[-1]] = self.seconds.get(self.inside[-1], 0.0) + now - self.since
        self.since = now

    @contextmanager
    def of(self, places: Places) -> Iterator[None]:
        """Time these functions inside the block."""
        found = [(label, owner, name) for label, several in places.items() for owner, name in several]
        before = [(owner, name, getattr(owner, name)) for _, owner, name in found]
        for (label, owner, name), (_, _, call) in zip(found, before, strict=True):
            setattr(owner, name, self.timed(label, call))
        try:
            yield
        finally:
            for owner, name, call in before:
                setattr(owner, name, call)


def rounds(simulation: Simulation, shares: Shares, many: int) -> tuple[int, float, float]:
    """Run the rounds; after the warm-up, count client updates and their CPU (all threads) and wall seconds."""
    updates, cpu, wall = 0, 0.0, 0.0
    for event in simulation.events():
        if not isinstance(event, RoundDone) or event.round > WARM_UP + many:
            continue
        if event.round == WARM_UP:
            shares.seconds.clear()
            cpu, wall = -time.process_time(), -time.perf_counter()
        elif event.round > WARM_UP:
            updates += len(event.cohort)
        if event.round == WARM_UP + many:
            cpu, wall = cpu + time.process_time(), wall + time.perf_counter()
            kept = dict(shares.seconds)
    shares.seconds = kept
    return updates, cpu, wall


def of_coordinator(asked: configs.Config, many: int, places: Places) -> tuple[Shares, int, float, float]:
    shares, federation = Shares(), build_federation(asked)
    nodes = reservation.Places(place(asked, this_machine()))
    gc.collect()
    gc.freeze()  # a coordinator is forked so: what was imported, and other settings left, is not looked at again
    try:
        hosts = runner.start_hosts(asked, ray.put(federation), nodes)
        remote = runner.RayRunner(asked, federation.streams, hosts, nodes.placement)
        list(remote.start(nodes))
        with shares.of(places):
            return shares, *rounds(Simulation(asked, federation, remote), shares, many)
    finally:
        nodes.give_back()


def of_host(asked: configs.Config, many: int) -> tuple[Shares, int, float, float]:
    shares, federation = Shares(), build_federation(asked)
    with shares.of(HOST):
        simulation = Simulation(asked, federation, LocalRunner(asked, federation))
        return shares, *rounds(simulation, shares, many)


def table(title: str, places: Places, columns: dict[str, tuple[Shares, int, float, float]]) -> Table:
    shown = Table("us per client update", *columns, title=title)
    for label in places:
        found = [1e6 * shares.seconds.get(label, 0.0) / updates for shares, updates, _, _ in columns.values()]
        shown.add_row(label, *(f"{us:.0f}" for us in found))
    own = [sum(v for k, v in shares.seconds.items() if k != "wait") / n for shares, n, _, _ in columns.values()]
    shown.add_section()
    shown.add_row("own work", *(f"{1e6 * us:.0f}" for us in own))
    shown.add_row("own work, all threads", *(f"{1e6 * cpu / n:.0f}" for _, n, cpu, _ in columns.values()))
    shown.add_row("seconds per update (wall)", *(f"{wall / n:.5f}" for _, n, _, wall in columns.values()))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=60000, help="over all clients (60000)")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds (5)")
    parser.add_argument("--coarse", action="store_true", help="of the coordinator's work, time calls to hosts alone")
    asked = parser.parse_args()
    set_torch(torch.device("cpu"), True)  # as every actor does
    coordinator, host, places = {}, {}, COARSE if asked.coarse else COORDINATOR
    with tempfile.TemporaryDirectory() as folder, own_cluster(this_machine()):
        name, data = saved(folder, asked.samples)
        for clients, per_actor, schedule in SETTINGS:
            resources = {"clients_per_actor": per_actor}
            many = asked.rounds if schedule is not FEDBUFF else asked.rounds * clients // BUFFER
            loaded = configs.load(config(data, clients, WARM_UP + many + 1, resources=resources, schedule=schedule))
            kind = "" if schedule["kind"] == "synchronous" else ", FedBuff"
            coordinator[f"{clients} clients, {per_actor}{kind}"] = of_coordinator(loaded, many, places)
            if per_actor == "auto" and not kind:
                host[f"{clients} clients of {asked.samples // clients}"] = of_host(loaded, many)
    console = Console(width=120)
    console.print(f"{name}, {asked.samples} samples of all clients in total, {int(this_machine().cpus)} cores")
    console.print(table("the coordinator", places, coordinator))
    console.print(table("a host", HOST, host))


if __name__ == "__main__":
    if not compat.WORKER_VARIABLES.keys() <= os.environ.keys():  # glibc reads its own when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **compat.WORKER_VARIABLES})
    main()
