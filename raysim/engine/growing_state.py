"""A warning of user-defined state that grows in every local training.

Memory use and checkpoints grow with it, and a run that was estimated to fit ends late. Some state grows rightly:

- Replay memories and buffers fill. They hold no more than the data that has arrived.
- State by task grows when a stage begins. Those local trainings are not counted.
- A server half's state by client grows until all clients have taken part.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from raysim.api.method import Half
from raysim.system.shared_memory import nbytes_of

STREAK = 6  # successive local trainings or rounds in which an attribute grew
LEAST = 2**16  # bytes; less does no harm


@dataclass
class Streak:
    """The bytes of an attribute in successive local trainings in which it grew."""

    first: int
    last: int
    length: int = 0


class GrowingState:
    """Watches the attributes of some halves, and reports each that grows once."""

    def __init__(self) -> None:
        self._streaks: dict[tuple[str, str, str], Streak] = {}  # by owner, method and attribute
        self._reported: set[tuple[str, str]] = set()

    def grown(self, half: Half, owner: str, begins: bool, bound: int) -> Iterator[tuple[str, str]]:
        """Yield the attributes that have grown too often, each with a warning.

        Args:
            half: the half, after a local training or a round.
            owner: the client or server, such as "client 3".
            begins: whether a stage began, in which state by task may grow.
            bound: the bytes that a state may grow to.
        """
        for name, value in vars(half).items():
            if name in half.transient:
                continue
            size, key = nbytes_of(value), (owner, half.name, name)
            streak = self._streaks.setdefault(key, Streak(size, size))
            if not begins:
                grew = size > streak.last
                streak.first, streak.length = (streak.first, streak.length + 1) if grew else (size, 0)
            streak.last = size
            is_new = (half.name, name) not in self._reported
            if is_new and streak.length >= STREAK and size > max(bound, LEAST, 2 * streak.first):
                self._reported.add((half.name, name))
                yield name, self._describe(half, owner, name, streak)

    def _describe(self, half: Half, owner: str, name: str, streak: Streak) -> str:
        when = "local trainings" if half.side == "client" else "rounds"
        attribute = f"methods.{half.name}: its {half.side} half's attribute {name}"
        words = f"grew in each of the last {streak.length} {when} of {owner}, from {streak.first:,} to {streak.last:,}"
        return f"{attribute} {words} bytes; memory and checkpoints grow with it"
