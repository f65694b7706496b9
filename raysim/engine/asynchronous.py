"""Server updates under an asynchronous schedule.

FedBuff adds a buffer of deltas to the server's model. FedAsync mixes one client's model into it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum
from typing import Any, ClassVar

from raysim.api.messages import Broadcast, Delta
from raysim.config.timing import AsynchronousSchedule as Schedule
from raysim.engine.attendance import plan_updates
from raysim.engine.events import Dispatched
from raysim.engine.exchange import Exchange
from raysim.engine.orders import Collect, Phase
from raysim.engine.replies import Reply
from raysim.engine.synchronous import RoundOutcome
from raysim.engine.virtual_time import Dispatch, Update, discount
from raysim.federation.availability import Availability
from raysim.federation.forgetting import ForgetRequest
from raysim.system.state import Stateful


@dataclass(frozen=True)
class _Cohort:
    """Dispatches with client updates that the server applies together."""

    numbers: tuple[int, ...]  # the dispatches' numbers, ascending
    clients: tuple[int, ...]  # the client of each dispatch
    weight: int  # the sum of the dispatches' weights, see `_size`
    arrived: int | None  # see Order.arrived


class AsynchronousUpdates(Stateful):
    """Clients compute in parallel. The server applies their updates in the order of the timetable."""

    transient: ClassVar = frozenset(
        {"_exchange", "_server", "_schedule", "_timetable", "_tickets", "_sent", "_cohorts", "_away", "_availability"}
    )

    def __init__(self, exchange: Exchange, schedule: Schedule, availability: Availability) -> None:
        self._exchange = exchange
        self._server = exchange.server
        self._schedule = schedule
        methods = {half.name: half.method for half in exchange.halves.values()}
        self._availability = availability
        self._timetable = plan_updates(exchange.config, availability, exchange.server, methods)
        self._tickets: dict[int, Any] = {}  # dispatch number -> the runner's handle for the order, or its reply
        self._sent: dict[int, Delta] = {}  # number of a dispatch that trains -> the parts of its model for `_mix`
        self._cohorts: dict[int | None, _Cohort] = {}  # server update -> the dispatches that it uses
        self._away: list[Dispatch] = []  # the dispatches that return after the current virtual time
        self._time = 0.0  # virtual seconds

    def update(self) -> RoundOutcome:
        """Carry out the current round: send the model to the next clients, then use the client updates that are due."""
        server, exchange = self._server, self._exchange
        update = self._timetable[server.round - 1]
        phase = exchange.choose_phase()
        message, broadcasts = exchange.announce(phase)
        sent = [server.broadcast(), *broadcasts]
        exchange.traffic.count_sent([dispatch.client for dispatch in update.dispatched], message, sent)
        for dispatch in update.dispatched:
            self._send(dispatch, phase, message, sent)
        for dispatch in update.discarded:
            exchange.receive(self._tickets.pop(dispatch.number))
            self._sent.pop(dispatch.number, None)
        reply = Reply(len(update.arrivals))
        for dispatch in update.arrivals:
            reply.merge(exchange.receive(self._tickets.pop(dispatch.number)).rekey_records(dispatch.number))
        assert reply.updates == len(update.arrivals), "the sums contain other updates than those that are due"
        server.cohort = tuple(sorted({dispatch.client for dispatch in update.arrivals}))
        server.shares = self._shares(update)
        if update.arrivals:
            trained = [dispatch for dispatch in update.arrivals if dispatch.number in self._sent]
            exchange.update_model(reply, self._mix(trained, reply.delta(server.parameters.dtype)) if trained else None)
        for dispatch in update.arrivals:
            self._sent.pop(dispatch.number, None)
        self._cohorts.pop(update.number, None)
        exchange.traffic.take_by_client()
        return self._outcome(update, reply.means())

    def end_task(self) -> float:
        """Carry out the plans at a task's end. They take no virtual time, as clients train meanwhile."""
        self._exchange.drive_plans("end_task", self._server.present)
        return 0.0

    def wait_for_transfers(self) -> float:
        """Return 0: other messages take no virtual time, as clients train meanwhile."""
        return 0.0

    def count_outdated(self, request: ForgetRequest, earlier: Sequence[ForgetRequest]) -> int:
        """Return how many updates under way are of samples that a request of this round names.

        An update counts for the first request that does so. `earlier` are the round's earlier requests.
        """
        round, availability = self._server.round, self._availability
        under_way = [
            dispatch
            for update in self._timetable[:round]
            for dispatch in update.dispatched
            if dispatch.number in self._tickets
            and self._outdates(request, dispatch)
            and not any(self._outdates(each, dispatch) for each in earlier)
        ]
        return sum(availability.outdated_after(each.client, each.version + 1) == round for each in under_way)

    def _outdates(self, request: ForgetRequest, dispatch: Dispatch) -> bool:
        """Return whether a request names a sample that the client of a dispatch had."""
        positions = request.positions.get(dispatch.client)
        had = self._availability.received(dispatch.client, dispatch.version + 1)
        return positions is not None and bool(positions[0] < had)

    def state(self) -> dict[str, Any]:
        """Wait until no client computes, and return the state, including replies that are not applied yet.

        Virtual time does not advance. Several clients of one host may contribute to one server update. The host keeps
        their sum until all of them are done. Here, the sum is merged into the reply of the update's first dispatch.
        """
        self._tickets = {number: self._exchange.wait_for(ticket) for number, ticket in self._tickets.items()}
        for update, sums in self._exchange.runner.give_sums().items():
            first = min(dispatch.number for dispatch in self._timetable[update - 1].arrivals)
            self._tickets[first].merge(sums)
        return {
            **super().state(),
            "replies": {number: reply.state() for number, reply in self._tickets.items()},
            "sent": {number: (model.parameters, model.buffers) for number, model in self._sent.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a state. The server must have been restored before, to the same round."""
        self._tickets = {number: Reply.restored(reply) for number, reply in state["replies"].items()}
        self._sent = {number: Delta(*model) for number, model in state["sent"].items()}
        super().restore({key: value for key, value in state.items() if key not in ("replies", "sent")})
        past = self._timetable[: self._server.round]
        self._away = [d for update in past for d in update.dispatched if d.back > self._time]

    def _send(
        self, dispatch: Dispatch, phase: Phase, message: Mapping[str, Any], broadcasts: Sequence[Broadcast]
    ) -> None:
        """Send the current model. A client that drops out or returns after the run's end computes nothing."""
        server, exchange, client = self._server, self._exchange, dispatch.client
        if dispatch.update is None and not dispatch.discarded:
            return
        cohort = self._cohort_of(dispatch)
        order = replace(
            exchange.order(phase, [client], {client: self._weight(dispatch) / cohort.weight}, cohort.arrived),
            cohort_size=len(cohort.numbers),
            discount=self._discount(dispatch),
            update=dispatch.update,
            later=cohort.clients[bisect_right(cohort.numbers, dispatch.number) :],
        )
        self._tickets[dispatch.number] = exchange.runner.begin(order, message, broadcasts)
        if isinstance(phase, Collect):
            return
        mixes_models = self._schedule.mixing == "models"
        parameters = server.parameters if mixes_models else server.parameters.new_empty(0)
        self._sent[dispatch.number] = Delta(parameters, server.buffers)

    def _cohort_of(self, dispatch: Dispatch) -> _Cohort:
        """Return the cohort of a dispatch."""
        cohort = self._cohorts.get(dispatch.update)
        if cohort is None:
            peers = [dispatch] if dispatch.update is None else self._timetable[dispatch.update - 1].arrivals
            arrived = self._exchange.count_arrived((peer.client, peer.version + 1) for peer in peers)
            ordered = sorted(peers, key=lambda peer: peer.number)
            cohort = _Cohort(
                tuple(peer.number for peer in ordered),
                tuple(peer.client for peer in ordered),
                sum(self._weight(peer) for peer in peers),
                arrived,
            )
            if dispatch.update is not None:
                self._cohorts[dispatch.update] = cohort
        return cohort

    def _shares(self, update: Update) -> dict[int, float]:
        """Return the cohort's weights, which sum to 1. `aggregation.weights` decides whether sample counts matter."""
        sizes: Counter[int] = Counter()  # an update may have a client twice
        for dispatch in update.arrivals:
            sizes[dispatch.client] += self._weight(dispatch)
        total = sizes.total()
        return {client: sizes[client] / total for client in sorted(sizes)}

    def _weight(self, dispatch: Dispatch) -> int:
        """Return a dispatch's weight: 1 if weights are uniform, otherwise how many samples the client had then."""
        uniform = self._exchange.config.aggregation.weights == "uniform"
        return 1 if uniform else self._server.size(dispatch.client, dispatch.version + 1)

    def _discount(self, dispatch: Dispatch) -> float:
        """Return the factor by which the client's update is scaled for its staleness."""
        return 1.0 if dispatch.update is None else discount(dispatch.staleness, self._schedule.staleness)

    def _mix(self, trained: Sequence[Dispatch], mean: Delta) -> Delta:
        """Return the change of the server's model, given the mean delta of the clients that trained and have arrived.

        FedBuff, with weights n_i (see `_weight`) and discounts s_i: rate * sum_i n_i s_i / sum_i n_i * mean. The given
        mean has the weights n_i s_i. With K uniform weights this is the paper's rate / K * sum_i s_i delta_i. (A method
        with the hook `samples` may change the n_i of the mean.)

        FedAsync: rate * s * (client's model - current model). The client's model is the received model plus the delta.

        Both treat the float buffers, such as BatchNorm's statistics, as FedAsync treats parameters. The
        server's buffers move toward the mean of the clients' buffers, with a rate of at most 1.
        """
        sizes = [self._weight(dispatch) for dispatch in trained]
        discounted = [self._discount(d) * size for d, size in zip(trained, sizes, strict=True)]
        rate = self._schedule.rate * (fsum(discounted) / fsum(sizes))
        server, sent = self._server, [self._sent[dispatch.number] for dispatch in trained]
        # Sums of stale changes could make a variance negative. So the buffers are always mixed as models.
        total, change = fsum(discounted), mean.buffers
        for weight, model in zip(discounted, sent, strict=True):
            change = change + weight / total * (model.buffers - server.buffers)
        buffers = min(rate, 1.0) * change
        if self._schedule.mixing == "deltas":
            return Delta(rate * mean.parameters, buffers)
        return Delta(rate * (mean.parameters + (sent[0].parameters - server.parameters)), buffers)

    def _outcome(self, update: Update, means: dict[str, float]) -> RoundOutcome:
        began, self._time = self._time, update.time
        self._away = [d for d in [*self._away, *update.dispatched] if d.back > began]
        active = [dispatch for dispatch in self._away if dispatch.sent < update.time]
        busy = fsum(min(dispatch.back, update.time) - max(dispatch.sent, began) for dispatch in active)
        seconds = update.time - began
        clients = {*self._server.present, *(dispatch.client for dispatch in active)}  # also those that left meanwhile
        slots = min(self._schedule.concurrency, len(clients))
        return RoundOutcome(
            cohort=[dispatch.client for dispatch in update.arrivals],
            staleness=[dispatch.staleness for dispatch in update.arrivals],
            seconds=seconds,
            idle=1 - busy / (seconds * slots) if seconds and slots else None,
            tasks=sorted({t for d in update.arrivals for t in self._server.tasks(d.client, d.version + 1)}),
            means=means,
            dispatches=[Dispatched(d.client, d.sent - began, d.back - began, d.fate) for d in update.dispatched],
        )
