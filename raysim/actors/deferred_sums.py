"""Sums that stay at a host until it has computed its last client of a server update.

Sums are exact, so a sum has the same bits wherever it is made. FedBuff's coordinator receives one sum from each host
instead of one from each client. Everything else is replied at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raysim.engine.orders import Order, Reply


class HeldSums:
    """The sums that one host holds, by the server update that they become a part of."""

    def __init__(self) -> None:
        self._held: dict[int, Reply] = {}

    def answer(self, order: Order, reply: Reply) -> Reply:
        """Return the reply to an order.

        It has no sums if the host will receive another order for the same update. Otherwise it also has the sums that
        were held for the update.
        """
        if order.update is None:
            return reply
        if order.update in self._held:
            reply.merge(self._held.pop(order.update))
        if order.later:
            self._held[order.update] = reply.take_sums()
        return reply

    def give(self) -> dict[int, Reply]:
        """Return all sums by their update, and hold none of them any more."""
        given, self._held = self._held, {}
        return given


def merge_held(of_hosts: Iterable[Mapping[int, Reply]]) -> dict[int, Reply]:
    """Return the sums of all hosts by their update, given each host's."""
    merged: dict[int, Reply] = {}
    for given in of_hosts:
        for update, sums in given.items():
            merged.setdefault(update, Reply(sums.cohort)).merge(sums)
    return merged
