"""The clients in virtual time: each trip of a client, or, if there are many, shares of time by groups of clients."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from raysim.live.feed import Feed
from raysim.live.round_line import RoundLine, Trip

MOST_TRIPS = 2000  # shown one by one
MOST_LANES = 60
MOST_COLUMNS = 240
LOST = 0  # stands for a task where an update came to nothing

Cells = dict[tuple[int, int], float]


class Trips:
    """The trips of clients, by lane. `trips` has them one by one, until there are too many; then `columns` counts.

    Trips are `[lane, sent, back, task, fate]`. A column is `column_width` virtual seconds wide. It has, one after the
    other, a lane, a task, and the percentage of the lane's time that was spent on the task. Task 0 stands for updates
    that came to nothing.

    Args:
        clients: the clients that are shown.
        at_tasks: by client: pairs of a round and the client's task from then on. A client that is missing is at the
            run's task.
    """

    def __init__(self, clients: Sequence[int], at_tasks: Mapping[int, Sequence[tuple[int, int]]]) -> None:
        self.clients_per_lane = -(-len(clients) // MOST_LANES) or 1
        self.trips = Feed()
        self.columns = Feed()
        self.column_width = 0.0
        self.one_by_one = self.clients_per_lane == 1
        self._lanes = {client: place // self.clients_per_lane for place, client in enumerate(clients)}
        self._members = [0] * (max(self._lanes.values(), default=0) + 1)
        for lane in self._lanes.values():
            self._members[lane] += 1
        changes = ((round, client, task) for client, pairs in at_tasks.items() for round, task in pairs)
        self._changes = sorted(changes, reverse=True)  # those to come; the next one is last
        self._tasks: dict[int, int] = {}
        self._cells: list[Cells] = []
        self._new: set[int] = set()  # columns in which something was added

    def add(self, line: RoundLine) -> None:
        """Add the trips that began since the round before."""
        while self._changes and self._changes[-1][0] <= line.round:
            _, client, task = self._changes.pop()
            self._tasks[client] = task
        for trip in line.dispatches or ():
            lane = self._lanes.get(trip.client)
            if lane is not None and 0.0 <= trip.sent <= trip.back:
                self._add(lane, trip, self._tasks.get(trip.client, line.so_far))

    def show(self) -> None:
        """Put what was added into the columns' feed, if trips are not shown one by one."""
        if self.one_by_one:
            return
        for column in sorted({*self._new, *range(len(self.columns.items), len(self._cells))}):
            self.columns.put(column, self._item(column))
        self._new.clear()

    def _add(self, lane: int, trip: Trip, task: int) -> None:
        if self.one_by_one:
            self.trips.append([lane, round(trip.sent, 6), round(trip.back, 6), task, trip.fate])
        self._count(lane, trip, task if trip.fate == "used" else LOST)
        if self.one_by_one and len(self.trips.items) > MOST_TRIPS:
            self.one_by_one = False
            self.trips.replace([])

    def _count(self, lane: int, trip: Trip, task: int) -> None:
        """Add a trip to the columns that it is in."""
        if trip.back <= 0.0:
            return
        self.column_width = self.column_width or trip.back / 8
        while trip.back >= MOST_COLUMNS * self.column_width:
            self._fold()
        width = self.column_width
        first, last = int(trip.sent / width), int(trip.back / width)
        self._cells += [defaultdict(float) for _ in range(len(self._cells), last + 1)]
        for column in range(first, last + 1):
            spent = min(trip.back, (column + 1) * width) - max(trip.sent, column * width)
            self._cells[column][lane, task] += max(0.0, spent)
        self._new |= set(range(first, last + 1))

    def _fold(self) -> None:
        """Make columns twice as wide."""
        self.column_width *= 2
        folded: list[Cells] = []
        for place, cells in enumerate(self._cells):
            if place % 2 == 0:
                folded.append(cells)
            else:
                for key, seconds in cells.items():
                    folded[-1][key] += seconds
        self._cells = folded
        self._new.clear()  # the columns before are others
        self.columns.replace([])

    def _item(self, column: int) -> list[int]:
        found = []
        for (lane, task), seconds in sorted(self._cells[column].items()):
            share = round(100 * seconds / (self.column_width * self._members[lane]))
            found += [lane, task, min(share, 100)] if share else []
        return found
