"""Rebalancing: before a round, clients move to other hosts so that all hosts finish the round together.

The expected time of a client is its number of samples, times its measured seconds per sample, times its host's
slowness. Measured times only decide where a client computes.
"""

import math
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from raysim.engine.orders import Operation, Order

GUESS = 1e-4  # seconds per sample before any are measured: about those of the MNIST CNN on one core
PRICE = 2e-3  # seconds that a move costs each of its two hosts, before any are measured
MARGIN = 0.02  # the fraction of a round's duration that moves must save; less would be noise
STEADY = 0.2  # the weight of the last round in a host's slowness, after the host's first rounds
FADING = 0.01  # per round, the price moves by this fraction toward PRICE; otherwise one stall would prevent later moves
FULLEST = 2  # the maximum clients per host, as a multiple of an equal share; it limits a host's memory

Moves = Mapping[tuple[int, int], Sequence[int]]
"""The clients that move, by their old and their new host."""


@dataclass(slots=True)
class _Spent:
    """One client's work in a round."""

    operation: Operation  # of its first order in the round
    samples: int  # the number of its samples
    host: int  # its host
    seconds: float = 0.0  # the measured time of all its orders


class Rebalancing:
    """The host of each client, and the expected time of the client there.

    A client moves only at its first order of a round: only between rounds does its saved state contain everything.

    Args:
        clients: the clients of each host at the start.
        samples: returns how many samples a client has in a window of its stream.
        fixed: whether no client may move.
    """

    def __init__(
        self, clients: Sequence[Sequence[int]], samples: Callable[[int, int], int], fixed: bool = False
    ) -> None:
        self.home = {client: host for host, members in enumerate(clients) for client in members}
        self._samples = samples
        self._fixed = fixed
        self._counts = np.array([len(members) for members in clients])  # for each host: the number of its clients
        self._slowness = np.ones(len(clients))  # for each host: its time divided by a typical host's time
        self._rounds = Counter[int]()  # host -> the number of rounds in which it was measured
        self._per_sample: dict[Operation, float] = {}  # the first operation of a round -> the seconds per sample
        self._per_sample_of: dict[tuple[Operation, int], float] = {}  # (operation, client) -> the seconds per sample
        self._round = 0
        self._spent: dict[int, _Spent] = {}  # client -> its work in this round
        self._warm: set[int] = set()  # the hosts that have carried out an order
        self._price = PRICE

    def clients_of(self, host: int) -> list[int]:
        """Return the clients that live on a host, ascending."""
        return sorted(client for client, home in self.home.items() if home == host)

    def plan_moves(self, order: Order) -> Moves:
        """Decide which clients of an order move before the order is carried out, and record their new hosts."""
        if self._fixed:
            return {}
        if order.round_info.round != self._round:
            self._learn()
            self._round, self._spent = order.round_info.round, {}
            self._price += FADING * (PRICE - self._price)
        load = np.zeros(len(self._slowness))
        movable: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for client in order.clients:
            home, known = self.home[client], self._spent.get(client)
            if known is None:
                window = order.windows.get(client, order.round_info.window)
                known = self._spent[client] = _Spent(order.operation, max(1, self._samples(client, window)), home)
                movable[home].append((self._expected(client, known), client))
            load[home] += self._expected(client, known) * self._slowness[home]
        going = self._balance(load, movable)
        moves: dict[tuple[int, int], list[int]] = defaultdict(list)
        for client, new in going.items():
            moves[self.home[client], new].append(client)
            self.home[client] = self._spent[client].host = new
        for (old, new), clients in moves.items():
            self._counts[[old, new]] += [-len(clients), len(clients)]
        return moves

    def add_times(self, host: int, seconds: Mapping[int, float], price: float | None = None) -> None:
        """Record the seconds that a host took for each client, in order of computation, and the seconds per move."""
        if price is not None:
            self._price += (price - self._price) / 2
        for client, took in seconds.items():
            if (spent := self._spent.get(client)) is not None:
                spent.seconds += took if host in self._warm else math.nan  # a process's first phase takes longer
            self._warm.add(host)

    def _expected(self, client: int, spent: _Spent) -> float:
        """Return the seconds that a client is expected to take on a host of slowness 1."""
        return spent.samples * self._per_sample_of.get(
            (spent.operation, client), self._per_sample.get(spent.operation, GUESS)
        )

    def _balance(self, load: npt.NDArray[np.float64], movable: dict[int, list[tuple[float, int]]]) -> dict[int, int]:
        """Return the clients that move, with their new hosts. Return none if this saves less than MARGIN.

        Move a client from the slowest host to the fastest one, choosing the client that balances the two best. Repeat
        while that shortens the round. A move costs both hosts time: one saves the state, the other waits for it.

        Args:
            load: the expected seconds of each host.
            movable: for each host, a pair for each client that may move: the client's expected seconds on a host of
                slowness 1, and its id.
        """
        before, moves, counts = float(load.max()), dict[int, int](), self._counts.copy()
        most = FULLEST * math.ceil(len(self.home) / len(load))
        for candidates in movable.values():
            candidates.sort()
        while True:
            slowest = int(load.argmax())
            if not (candidates := movable[slowest]):
                break
            # The fastest host is the one that would finish first with the smallest candidate.
            with_smallest = load + candidates[0][0] * self._slowness
            fastest = int(np.where(counts < most, with_smallest, math.inf).argmin())
            old, new = self._slowness[slowest], self._slowness[fastest]
            ideal = bisect(candidates, ((load[slowest] - load[fastest]) / (old + new), -1))
            finishes = dict[int, float]()
            for index in (ideal - 1, ideal):
                if 0 <= index < len(candidates):
                    cost, _ = candidates[index]
                    finishes[index] = max(load[slowest] - cost * old, load[fastest] + cost * new) + self._price
            index = min(finishes, key=finishes.__getitem__)
            if fastest == slowest or finishes[index] >= load[slowest]:
                break
            cost, client = candidates.pop(index)
            load[[slowest, fastest]] += [self._price - cost * old, self._price + cost * new]
            counts[[slowest, fastest]] += [-1, 1]
            moves[client] = fastest
        return moves if float(load.max()) + PRICE < (1 - MARGIN) * before else {}

    def _learn(self) -> None:
        """Learn from the last round: the seconds per sample, overall and by client, and the slowness of each host."""
        measured = [(client, spent) for client, spent in self._spent.items() if spent.seconds > 0]  # false for NaN
        for operation in {spent.operation for _, spent in measured}:
            alike = [spent for _, spent in measured if spent.operation == operation]
            took = sum(spent.seconds / self._slowness[spent.host] for spent in alike)
            now = took / sum(spent.samples for spent in alike)
            self._per_sample[operation] = (self._per_sample.get(operation, now) + now) / 2
        errors: dict[int, list[float]] = defaultdict(list)  # host -> measured / expected seconds of its clients
        for client, spent in measured:
            errors[spent.host].append(spent.seconds / (self._expected(client, spent) * self._slowness[spent.host]))
        for host, ratios in errors.items():
            self._rounds[host] += 1
            self._slowness[host] *= median(ratios) ** max(STEADY, 1 / self._rounds[host])
        for client, spent in measured:
            now, key = spent.seconds / self._slowness[spent.host] / spent.samples, (spent.operation, client)
            self._per_sample_of[key] = (self._per_sample_of.get(key, now) + now) / 2
