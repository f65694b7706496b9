"""Share of the time in which hosts compute, with clients that stay on their hosts and with clients that move.

    python benchmarks/rebalancing.py [--rounds N] [--repeats N] [--noise SHARE]
    python benchmarks/rebalancing.py --hosts N [--rounds N]

Drives raysim's own rebalancing with a clock in place of training. A client takes 0.1 ms for each of its samples, as
with the MNIST CNN on one core. This is multiplied by a noise of 5% that is drawn anew each round. A move takes its old
host 0.5 ms and its new one 1 ms after that. Where hosts differ, every second one is half as fast.

No assignment of whole clients exceeds the bound. It is the seconds of all clients, divided by the hosts and by the
longest that some host computes. With equal clients the longest is the fullest host's. Otherwise it is the largest
client or an equal share. The bound ignores the noise, which costs 7% with 64 hosts and 100 equal clients: 36 hosts have
two clients, and the slowest pair counts. No assignment in advance exceeds 0.93 there. --noise 0 leaves the noise out.

With --hosts, 100 of 1,000 clients sleep for 20 ms each in real runs on N hosts, which other programs hardly slow.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from workload import config, saved

import raysim
from raysim.actors.rebalancing import Rebalancing
from raysim.actors.starting import own_cluster
from raysim.engine.events import Event, RoundDone
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.launch.display import RunDisplay
from raysim.system.capacity import Capacity

CLIENTS, COHORT, SAMPLES, SECONDS, NOISE = 1000, 100, 600, 1e-4, 0.05
ASLEEP = 0.02  # seconds
GIVING, TAKING = 0.5e-3, 1e-3  # seconds of a move
WARM_UP = 3  # rounds that are not counted: nothing is known before the first one


@dataclass(frozen=True)
class Setting:
    """Samples of each client, how many take part in a round, seconds of each host against the fastest's, and noise."""

    sizes: npt.NDArray[np.int64]
    cohort: int
    slowness: npt.NDArray[np.float64]
    noise: float


@dataclass
class Found:
    """Over the counted rounds: the hosts' seconds, those in which they computed, the bound's, and the moves."""

    there: float = 0.0
    computed: float = 0.0
    bound: float = 0.0
    moves: list[int] = field(default_factory=list)


def simulate(setting: Setting, fixed: bool, rounds: int, seed: int) -> Found:
    sizes, cohort, slowness = setting.sizes, setting.cohort, setting.slowness
    draws, hosts, found = np.random.default_rng(seed), len(slowness), Found()
    moving = Rebalancing([range(h, len(sizes), hosts) for h in range(hosts)], lambda k, _: int(sizes[k]), fixed)
    for round in range(1, WARM_UP + rounds + 1):
        chosen = tuple(sorted(int(k) for k in draws.choice(len(sizes), cohort, replace=False)))
        moves = moving.plan_moves(Order(Train(), chosen, {}, cohort, RoundInfo(round, 0, 0.1)))
        idle = np.zeros(hosts)  # seconds before a host begins to compute
        for (old, _), clients in moves.items():
            idle[old] += GIVING * len(clients)
        for (_, new), clients in moves.items():
            idle[new] += (GIVING + TAKING) * len(clients)
        price = GIVING + TAKING if moves else None
        alone = sizes[list(chosen)] * SECONDS * np.exp(setting.noise * draws.standard_normal(cohort))
        busy = np.zeros(hosts)
        took: list[dict[int, float]] = [{} for _ in range(hosts)]
        for client, seconds in zip(chosen, alone, strict=True):
            home = moving.home[client]
            took[home][client] = seconds * slowness[home]
            busy[home] += took[home][client]
        for host, own in enumerate(took):
            moving.add_times(host, own, price)
        if round > WARM_UP:
            speed = float((1 / slowness).sum())
            longest = max(float(alone.sum()) / speed, float(alone.max()) * float(slowness.min()))
            if len(set(sizes)) == 1 and len(set(slowness)) == 1:
                longest = math.ceil(cohort / hosts) * float(alone.mean())
            found.there += hosts * float((idle + busy).max())
            found.computed += float(busy.sum())
            found.bound += hosts * longest
            found.moves.append(sum(map(len, moves.values())))
    return found


class Rounds(RunDisplay):
    """The seconds of all rounds of a run but the first ones."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone) and event.round > WARM_UP:
            self.seconds.append(event.seconds)


def sleep(hosts: int, rounds: int) -> None:
    """Print the share of the hosts' time in which clients slept."""
    with tempfile.TemporaryDirectory() as folder, own_cluster(Capacity(hosts, 0, None)):
        _, data = saved(folder, CLIENTS)
        for rebalance in (False, True):
            more = {
                "participation": {"count": COHORT},
                "resources": {"clients_per_actor": "auto", "rebalance": rebalance},
                "methods": {"workload:Idle": {"seconds": ASLEEP}},
            }
            watch = Rounds()
            raysim.run(config(data, CLIENTS, WARM_UP + rounds, **more), out=Path(folder, str(rebalance)), display=watch)
            share = rounds * COHORT * ASLEEP / (hosts * sum(watch.seconds))
            print(f"{hosts} hosts, clients {'move' if rebalance else 'stay'}: {share:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="rounds that are counted (30)")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions with other draws (5)")
    parser.add_argument("--noise", type=float, default=NOISE, help=f"of the clock, as a share ({NOISE})")
    parser.add_argument("--hosts", type=int, help="run with this many hosts, and clients that sleep")
    asked = parser.parse_args()
    if asked.hosts:
        sleep(asked.hosts, asked.rounds)
        return
    table = Table("clients", "hosts", "stay", "move", "bound", "move / bound", "moves per round")
    for name, cohort in (
        ("100 of 1,000, equal", COHORT),
        ("1,000, log-normal", CLIENTS),
        ("100 of 1,000, log-normal", COHORT),
    ):
        for hosts, unlike in ((2, False), (8, False), (16, False), (64, False), (8, True)):
            stay, move = Found(), Found()
            for seed in range(asked.repeats):
                sizes = np.full(CLIENTS, SAMPLES)
                if "log-normal" in name:
                    drawn = np.random.default_rng(seed).lognormal(size=CLIENTS)
                    sizes = np.maximum(1, drawn / drawn.mean() * SAMPLES).astype(np.int64)
                slowness = np.where(np.arange(hosts) % 2 * unlike, 2.0, 1.0)
                setting = Setting(sizes, cohort, slowness, asked.noise)
                for total, fixed in ((stay, True), (move, False)):
                    one = simulate(setting, fixed, asked.rounds, seed)
                    total.there += one.there
                    total.computed += one.computed
                    total.bound += one.bound
                    total.moves += one.moves
            shares = [stay.computed / stay.there, move.computed / move.there, move.computed / move.bound]
            shown = [f"{share:.2f}" for share in [*shares, move.bound / move.there]]
            table.add_row(name, f"{hosts}{', unlike' * unlike}", *shown, f"{np.mean(move.moves):.1f}")
        table.add_section()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
