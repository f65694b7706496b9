"""Lists for readers elsewhere, who receive only the items that changed since they last asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

_editions = count()  # a number stands for one edition of one feed


@dataclass(frozen=True)
class Seen:
    """What a reader has of a feed: its edition, and the last change in it."""

    edition: int = -1
    change: int = 0


class Feed:
    """A list of JSON values. A new edition replaces all of them."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._changes: list[int] = []  # by item: the number of its last change
        self._change = 0
        self._edition = next(_editions)

    def put(self, place: int, item: Any) -> None:
        """Set an item, or append it if `place` is the length."""
        if place == len(self.items):
            self.items.append(item)
            self._changes.append(0)
        elif self.items[place] == item:
            return
        self._change += 1
        self.items[place], self._changes[place] = item, self._change

    def append(self, item: Any) -> None:
        """Add an item."""
        self.put(len(self.items), item)

    def replace(self, items: Sequence[Any]) -> None:
        """Begin a new edition with these items."""
        self._edition = next(_editions)
        self._change += 1
        self.items = [*items]
        self._changes = [self._change] * len(self.items)

    def since(self, seen: Seen) -> tuple[dict[str, Any] | None, Seen]:
        """Return what a reader lacks, or None, and what it then has.

        `items` are pairs of a place and an item. If it is `fresh`, they replace all that the reader has.
        """
        now = Seen(self._edition, self._change)
        if seen == now:
            return None, now
        fresh = seen.edition != now.edition
        changed = [
            [place, item]
            for place, (item, change) in enumerate(zip(self.items, self._changes, strict=True))
            if fresh or change > seen.change
        ]
        return {"fresh": fresh, "items": changed}, now
