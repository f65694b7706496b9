"""The run itself: rounds, task ends and evaluations. It knows no Ray: a runner carries its orders out."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from raysim.api.server import Server
from raysim.config import Config
from raysim.config.timing import AsynchronousSchedule
from raysim.engine.asynchronous import Asynchronous
from raysim.engine.events import Accuracies, Checkpoint, Event, Finished, RoundDone, Started
from raysim.engine.exchange import Exchange, Runner
from raysim.engine.synchronous import Synchronous
from raysim.engine.virtual_clock import Clock
from raysim.evaluation.per_client import Spread, summaries
from raysim.evaluation.scoring import accuracies, chunks
from raysim.federation.federation import Federation
from raysim.models.building import check_model
from raysim.system.state import decoded, encoded

__all__ = ["Runner", "Simulation"]


class Simulation:
    """One run, as an iterator of events. `stop` lets the round in progress end.

    Args:
        config: the resolved config.
        federation: its data.
        runner: carries orders out; where the run goes on from a checkpoint, its clients are as they were then.
        server: the checkpoint's record of the server; None is a run from the start.
    """

    def __init__(self, config: Config, federation: Federation, runner: Runner, server: bytes | None = None) -> None:
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
        self._saved = 0
        if server is not None:
            self._restore(server)

    def stop(self) -> None:
        """End the run after the round in progress."""
        self.stopping = True

    def events(self) -> Generator[Event, None, None]:
        """Run from the first round, or the one after the checkpoint's, to the last, or until stopped."""
        last, done = self.federation.calendar.rounds, self.server.round
        yield Started(self._evaluate() if not done else None, last, done)
        while self.server.round < last and not self.stopping:
            yield self._evaluated(self._timed_round())
            if self.server.round < last and self.server.round % self.config.checkpoint.every_rounds == 0:
                yield self._checkpoint()
        if self._saved < self.server.round < last:
            yield self._checkpoint()
        yield Finished(self._state(), interrupted=self.server.round < last, per_client=self._per_client())

    def _timed_round(self) -> RoundDone:
        """Do a round; what a task's end exchanges belongs to its last round, in bytes, seconds and records."""
        server, ledger = self.server, self.exchange.ledger
        began, up, down, steps = time.perf_counter(), ledger.up, ledger.down, self.exchange.steps
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
            steps=self.exchange.steps - steps,
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

    def _per_client(self) -> Mapping[str, Spread] | None:
        if not self.config.evaluation.per_client:
            return None
        return summaries(self.runner.evaluate(self.chunks, [self.server.model()]), self.federation)

    def _checkpoint(self) -> Checkpoint:
        """Keep everything; the schedule first, as it waits for what is under way."""
        record = {
            "schedule": self.schedule.state(),
            "server": self.server.state(),
            "ledger": self.exchange.ledger.state(),
            "virtual_time": self.virtual_time,
        }
        self._saved = self.server.round
        return Checkpoint(self.server.round, encoded(record), self.runner.snapshot())

    def _restore(self, server: bytes) -> None:
        record = decoded(server)
        self.server.restore(record["server"])
        self.schedule.restore(record["schedule"])
        self.exchange.ledger.restore(record["ledger"])
        self.virtual_time = record["virtual_time"]
        self._saved = self.server.round

    def _state(self) -> Mapping[str, Any]:
        self.model.load(self.server.model().value)
        return self.model.state_dict()


def _schedule(config: Config, exchange: Exchange) -> Synchronous | Asynchronous:
    clock = Clock(config)
    if isinstance(config.schedule, AsynchronousSchedule):
        return Asynchronous(exchange, clock, config.schedule)
    return Synchronous(exchange, clock)
