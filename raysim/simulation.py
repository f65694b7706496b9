"""The run itself: rounds, task ends and evaluations. It knows no Ray: a runner carries its orders out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from raysim.asynchronous import Asynchronous
from raysim.clock import Clock
from raysim.config import Config
from raysim.config.time import Asynchronous as AsynchronousSchedule
from raysim.events import Accuracies, Event, Finished, RoundDone, Started
from raysim.exchange import Exchange, Runner
from raysim.federation import Federation
from raysim.models.building import check_model
from raysim.scoring import accuracies, chunks
from raysim.server import Server
from raysim.synchronous import Synchronous

__all__ = ["Runner", "Simulation"]


class Simulation:
    """One run, as an iterator of events. `stop` lets the round in progress end."""

    def __init__(self, config: Config, federation: Federation, runner: Runner) -> None:
        self.config = config
        self.federation = federation
        self.runner = runner
        self.model = check_model(config, federation.shape, federation.classes)
        self.server = Server(config, federation, self.model.weights())
        self.exchange = Exchange(self.server, runner)
        self.schedule = _schedule(config, self.exchange)
        self.chunks = chunks(federation)
        self.virtual_time = 0.0
        self.stopping = False

    def stop(self) -> None:
        """End the run after the round in progress."""
        self.stopping = True

    def events(self) -> Iterator[Event]:
        """Run from the first round to the last, or until stopped."""
        last = self.federation.calendar.rounds
        yield Started(self._evaluate(), last)
        while self.server.round < last and not self.stopping:
            yield self._evaluated(self._timed_round())
        yield Finished(self._state(), interrupted=self.server.round < last)

    def _timed_round(self) -> RoundDone:
        """Do a round; what a task's end exchanges belongs to its last round, in bytes, seconds and records."""
        server, ledger = self.server, self.exchange.ledger
        began, up, down = time.perf_counter(), ledger.up, ledger.down
        server.round += 1
        server.records = {}
        outcome = self.schedule.update()
        if self._ends_row():
            self.exchange.plans("end_task", server.present)
        self.virtual_time += outcome.seconds
        loss = outcome.means.pop("loss", None)
        return RoundDone(
            round=server.round,
            tasks=[task + 1 for task in outcome.tasks] or [server.task + 1],
            cohort=list(outcome.cohort),
            loss=loss,
            bytes_up=ledger.up - up,
            bytes_down=ledger.down - down,
            seconds=time.perf_counter() - began,
            staleness=list(outcome.staleness),
            virtual_time=self.virtual_time,
            idle_share=outcome.idle,
            records={**outcome.means, **server.records},
            so_far=server.task + 1 if self.config.in_step else len(self.federation.tasks),
        )

    def _ends_row(self) -> bool:
        """Whether a row of the accuracy matrix ends with this round: a task, where all clients have the same."""
        return self.server.round in self.federation.calendar.rows

    def _evaluated(self, done: RoundDone) -> RoundDone:
        every = self.config.evaluation.every_rounds
        if self._ends_row() or (every and done.round % every == 0):
            return replace(done, evaluation=self._evaluate(), task_done=self._ends_row())
        return done

    def _evaluate(self) -> Accuracies:
        return accuracies(self.runner.evaluate(self.chunks, [self.server.model()]), self.federation)

    def _state(self) -> Mapping[str, Any]:
        self.model.load(self.server.model().value)
        return self.model.state_dict()


def _schedule(config: Config, exchange: Exchange) -> Synchronous | Asynchronous:
    clock = Clock(config)
    if isinstance(config.schedule, AsynchronousSchedule):
        return Asynchronous(exchange, clock, config.schedule)
    return Synchronous(exchange, clock)
