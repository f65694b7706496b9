"""Sums that stay at a host until all of its clients for one server update are done.

Under FedBuff, the coordinator then receives one sum from each host, not one from each client. Sums are exact, so they
have the same bits wherever they are added. All other parts of a reply are sent at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raysim.engine.orders import Order
from raysim.engine.replies import Reply


class HeldSums:
    """The sums that one host holds, by server update."""

    def __init__(self) -> None:
        self._held: dict[int, Reply] = {}

    def answer(self, order: Order, reply: Reply) -> Reply:
        """Return the reply to an order.

        If the host will receive another order for the same update, hold the reply's sums. Otherwise add the held sums
        to the reply.
        """
        if order.update is None:
            return reply
        if order.update in self._held:
            reply.merge(self._held.pop(order.update))
        if order.later:
            self._held[order.update] = reply.take_sums()
        return reply

    def give(self) -> dict[int, Reply]:
        """Return all sums by their update, and stop holding them."""
        given, self._held = self._held, {}
        return given


def merge_held(of_hosts: Iterable[Mapping[int, Reply]]) -> dict[int, Reply]:
    """Merge the sums of several hosts, and return them by their update."""
    merged: dict[int, Reply] = {}
    for given in of_hosts:
        for update, sums in given.items():
            merged.setdefault(update, Reply(sums.cohort_size)).merge(sums)
    return merged
