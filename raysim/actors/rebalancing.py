"""Load balancing: before a round, clients move to other hosts so that all hosts end the round together.

The expected time of a client is its number of samples, times its measured seconds for a sample, times the slowness of
its host. Measured times decide where a client computes, and nothing else.
"""

import math
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt

from raysim.engine.orders import Order

GUESS = 1e-4  # seconds for a sample until some are measured: about the MNIST CNN's on one core
PRICE = 2e-3  # seconds that a move takes each of its two hosts, until one is measured
MARGIN = 0.02  # of a round's seconds, what moves must save; less would be noise
STEADY = 0.2  # the weight of a round in a host's slowness, after its first rounds
FADING = 0.01  # of a measured price, what is forgotten each round, so that one stall does not end all moves for good
FULLEST = 2  # times an equal share of all clients, what a host has at most, as they take memory there

Moves = Mapping[tuple[int, int], Sequence[int]]
"""The clients that move, by their old and their new host."""


@dataclass(slots=True)
class _Spent:
    """What a client took in a round.

    Attributes:
        op: the op of its first order in the round.
        samples: the number of its samples.
        host: its host.
        seconds: the time of all its orders.
    """

    op: str
    samples: int
    host: int
    seconds: float = 0.0


class Dealing:
    """The host of each client, and the time that the client is expected to take there.

    A client moves with its first order in a round, when its state is what a checkpoint would keep of it.

    Args:
        clients: each host's at the start.
        samples: returns how many samples a client has in a window of its stream.
        fixed: whether no client moves.

    Attributes:
        home: the host of each client.
    """

    def __init__(
        self, clients: Sequence[Sequence[int]], samples: Callable[[int, int], int], fixed: bool = False
    ) -> None:
        self.home = {client: host for host, own in enumerate(clients) for client in own}
        self._samples = samples
        self._fixed = fixed
        self._counts = np.array([len(own) for own in clients])
        self._slowness = np.ones(len(clients))
        self._rounds = Counter[int]()  # in which a host was measured
        self._usual: dict[str, float] = {}  # seconds for a sample, by the op that a round began with
        self._own: dict[tuple[str, int], float] = {}  # the same of one client
        self._round = 0
        self._spent: dict[int, _Spent] = {}
        self._warm: set[int] = set()
        self._price = PRICE

    def clients_of(self, host: int) -> list[int]:
        """Return the clients that live on a host, ascending."""
        return sorted(client for client, home in self.home.items() if home == host)

    def deal(self, order: Order) -> Moves:
        """Decide which clients of an order move before it is carried out; from now on they live on their new hosts."""
        if self._fixed:
            return {}
        if order.phase.round != self._round:
            self._learn()
            self._round, self._spent = order.phase.round, {}
            self._price += FADING * (PRICE - self._price)
        load = np.zeros(len(self._slowness))
        movable: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for client in order.clients:
            home, known = self.home[client], self._spent.get(client)
            if known is None:
                window = order.windows.get(client, order.phase.window)
                known = self._spent[client] = _Spent(order.op, max(1, self._samples(client, window)), home)
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

    def note(self, host: int, seconds: Mapping[int, float], price: float | None = None) -> None:
        """Record the seconds that a host took for each client, in their order, and for each move."""
        if price is not None:
            self._price += (price - self._price) / 2
        for client, took in seconds.items():
            if (spent := self._spent.get(client)) is not None:
                spent.seconds += took if host in self._warm else math.nan  # a process's first phase takes longer
            self._warm.add(host)

    def _expected(self, client: int, spent: _Spent) -> float:
        """Return the seconds that a client is expected to take on a host of slowness 1."""
        return spent.samples * self._own.get((spent.op, client), self._usual.get(spent.op, GUESS))

    def _balance(self, load: npt.NDArray[np.float64], movable: dict[int, list[tuple[float, int]]]) -> dict[int, int]:
        """Return the clients that move and their new hosts, or none if the round would not end soon enough.

        Move a client from the slowest host to the fastest one, choosing the client that balances the two best. Repeat
        as long as that pays. Both hosts pay the price of a move: one makes the record, the other waits for it.
        """
        before, going, counts = float(load.max()), dict[int, int](), self._counts.copy()
        most = FULLEST * math.ceil(len(self.home) / len(load))
        for own in movable.values():
            own.sort()
        while True:
            late = int(load.argmax())
            if not (own := movable[late]):
                break
            then = load + own[0][0] * self._slowness
            soon = int(np.where(counts < most, then, math.inf).argmin())
            slow, slow_too = self._slowness[late], self._slowness[soon]
            place = bisect(own, ((load[late] - load[soon]) / (slow + slow_too), -1))
            ends = {
                index: max(load[late] - own[index][0] * slow, load[soon] + own[index][0] * slow_too) + self._price
                for index in (place - 1, place)
                if 0 <= index < len(own)
            }
            index = min(ends, key=ends.__getitem__)
            if soon == late or ends[index] >= load[late]:
                break
            cost, client = own.pop(index)
            load[[late, soon]] += [self._price - cost * slow, self._price + cost * slow_too]
            counts[[late, soon]] += [-1, 1]
            going[client] = soon
        return going if float(load.max()) + PRICE < (1 - MARGIN) * before else {}

    def _learn(self) -> None:
        """Learn from the last round: the seconds for a sample, of all clients and of each, and each host's slowness."""
        measured = [(client, spent) for client, spent in self._spent.items() if spent.seconds > 0]  # nor NaN
        for op in {spent.op for _, spent in measured}:
            took = sum(spent.seconds / self._slowness[spent.host] for _, spent in measured if spent.op == op)
            now = took / sum(spent.samples for _, spent in measured if spent.op == op)
            self._usual[op] = (self._usual.get(op, now) + now) / 2
        errors: dict[int, list[float]] = defaultdict(list)
        for client, spent in measured:
            errors[spent.host].append(spent.seconds / (self._expected(client, spent) * self._slowness[spent.host]))
        for host, found in errors.items():
            self._rounds[host] += 1
            self._slowness[host] *= median(found) ** max(STEADY, 1 / self._rounds[host])
        for client, spent in measured:
            now, key = spent.seconds / self._slowness[spent.host] / spent.samples, (spent.op, client)
            self._own[key] = (self._own.get(key, now) + now) / 2
