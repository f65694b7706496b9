"""A round under a synchronous schedule: the server waits for all clients of the cohort."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from raysim.engine.attendance import Participants, choose_participants
from raysim.engine.events import Dispatched
from raysim.engine.exchange import Exchange
from raysim.engine.orders import Train
from raysim.engine.virtual_time import Clock
from raysim.system.state import Stateful


@dataclass(frozen=True)
class RoundOutcome:
    """What one server update did."""

    cohort: Sequence[int]  # the clients whose updates were applied
    staleness: Sequence[int]  # for each client of the cohort: the age of its update, in server updates
    seconds: float  # the virtual duration
    idle: float | None = None  # the fraction of the virtual duration for which participating clients waited
    tasks: Sequence[int] = ()  # the tasks (from 0) of the samples on which the clients trained, ascending
    means: dict[str, float] = field(default_factory=dict)  # name -> the mean of the numbers that clients recorded
    dispatches: Sequence[Dispatched] = ()  # the clients' trips, in virtual seconds from the round's start


class SynchronousRounds(Stateful):
    """Rounds in which the server waits for the whole cohort: select, train, average."""

    transient: ClassVar = frozenset({"_exchange", "_server", "_clock"})

    def __init__(self, exchange: Exchange, clock: Clock) -> None:
        self._exchange = exchange
        self._server = exchange.server
        self._clock = clock

    def update(self) -> RoundOutcome:
        """Carry out the server's current round."""
        server, exchange = self._server, self._exchange
        participants = choose_participants(exchange.config, server, exchange.halves.values(), exchange.calls)
        server.cohort = participants.cohort
        server.shares = server.shares_of(server.cohort)
        exchange.traffic.count_sent(participants.dropped, {}, [server.broadcast()])
        if not server.cohort:
            return self._outcome(participants, {})
        exchange.drive_plans("prepare", server.cohort)
        phase = exchange.choose_phase()
        message, broadcasts = exchange.announce(phase)
        arrived = exchange.count_arrived((client, server.round) for client in server.cohort)
        order = exchange.order(phase, server.cohort, server.shares, arrived)
        reply = exchange.receive(exchange.begin(order, message, broadcasts))
        trained = isinstance(phase, Train)
        exchange.update_model(reply, reply.delta(server.parameters.dtype) if trained else None)
        exchange.drive_plans("conclude", server.cohort)
        return self._outcome(participants, reply.means())

    def end_task(self) -> float:
        """Carry out the plans at a task's end. Return the virtual seconds of the slowest client's transfers."""
        self._exchange.drive_plans("end_task", self._server.present)
        return self.wait_for_transfers()

    def wait_for_transfers(self) -> float:
        """Return the virtual seconds of the slowest client's transfers that no round or task's end has counted."""
        nbytes = self._exchange.traffic.take_by_client()
        return max(map(self._clock.travel, nbytes.values()), default=0.0)

    def _outcome(self, participants: Participants, means: dict[str, float]) -> RoundOutcome:
        """Return the outcome. The server waits for a dropped client as long as its training would have taken."""
        server, clock, chosen = self._server, self._clock, participants.chosen
        nbytes = self._exchange.traffic.take_by_client()
        away = {k: clock.training(k, server.size(k)) + clock.travel(nbytes.get(k, 0)) for k in chosen}
        asked = [clock.travel(nbytes[k]) for k in nbytes if k not in away]  # plans may request from all clients
        seconds = max([*away.values(), *asked], default=0.0)
        busy = sum(away[k] for k in server.cohort)
        return RoundOutcome(
            cohort=server.cohort,
            staleness=[0] * len(server.cohort),
            seconds=seconds,
            idle=1 - busy / (seconds * len(server.cohort)) if seconds and server.cohort else None,
            tasks=sorted({task for k in server.cohort for task in server.tasks(k)}),
            means=means,
            dispatches=[Dispatched(k, 0.0, away[k], "used" if k in server.cohort else "dropped") for k in chosen],
        )
