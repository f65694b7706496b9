"""The run itself: tasks, rounds, plans and evaluations. It knows no Ray: a runner carries its orders out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Protocol

from raysim.client import Phase
from raysim.config import Config
from raysim.events import Accuracies, Event, Finished, RoundDone, Started
from raysim.federation import Federation
from raysim.host import Order
from raysim.ledger import Ledger
from raysim.messages import Ask, Post
from raysim.method import Plan, ServerHalf, overrides
from raysim.models.building import check_model
from raysim.reply import Reply
from raysim.scoring import Chunk, Scores, accuracies, chunks
from raysim.server import Server


class Runner(Protocol):
    """Carries out orders on hosts: in this process, or on Ray."""

    def perform(self, order: Order, posts: Sequence[Post]) -> Reply:
        """Have every client of the order do it, and return the merged reply."""

    def evaluate(self, parts: Sequence[Chunk], posts: Sequence[Post]) -> Scores:
        """Share the parts out among the hosts, and return the merged counts."""


class Simulation:
    """One run, as an iterator of events. `stop` lets the round in progress end."""

    def __init__(self, config: Config, federation: Federation, runner: Runner) -> None:
        self.config = config
        self.federation = federation
        self.runner = runner
        self.model = check_model(config, federation.shape, federation.classes)
        self.server = Server(config, federation, self.model.weights())
        self.ledger = Ledger()
        self.chunks = chunks(federation)
        self.phase = Phase(0, 0, config.training.optimizer.lr)
        self.stopping = False

    def stop(self) -> None:
        """End the run after the round in progress."""
        self.stopping = True

    def events(self) -> Iterator[Event]:
        """Run from the first round to the last, or until stopped."""
        yield Started(self._evaluate())
        rounds = self.config.training.rounds_per_task
        tasks = len(self.federation.tasks)
        for task, round_of_task in product(range(tasks), range(rounds)):
            if self.stopping:
                break
            self.server.task = task
            last = round_of_task == rounds - 1
            yield self._evaluated(self._timed_round(round_of_task, last), last)
        yield Finished(self._state(), interrupted=self.server.round < rounds * tasks)

    def _timed_round(self, round_of_task: int, last: bool) -> RoundDone:
        """Do a round; what a task's end exchanges belongs to its last round, in bytes, seconds and records."""
        server, ledger = self.server, self.ledger
        began, up, down = time.perf_counter(), ledger.up, ledger.down
        server.round += 1
        server.records = {}
        means = self._round(round_of_task)
        if last:
            self._all("end_task", server.present)
        return RoundDone(
            round=server.round,
            tasks=[server.task + 1],
            cohort=list(server.cohort),
            loss=means.pop("loss", None),
            bytes_up=ledger.up - up,
            bytes_down=ledger.down - down,
            seconds=time.perf_counter() - began,
            staleness=[0] * len(server.cohort),
            virtual_time=None,
            records={**means, **server.records},
        )

    def _round(self, round_of_task: int) -> dict[str, float]:
        server = self.server
        chosen = next((h.select(server) for h in self._with("select")), None)
        server.gather(server.sample() if chosen is None else chosen)
        self.phase = Phase(server.round, server.task, server.lr(round_of_task))
        if not server.cohort:
            return {}
        self._all("prepare", server.cohort)
        announced = {half.name: half.announce(server) for half in self._with("announce")}
        mail = {name: said for name, (said, _) in announced.items()}
        reply = self._order("train", server.cohort, mail, [p for _, posts in announced.values() for p in posts])
        delta = reply.delta(server.parameters.dtype)
        for half in self._with("update"):
            terms = reply.of(half.name, half.knobs.replies, server.parameters.dtype)
            delta = half.update(server, delta, terms)
        assert reply.integers is not None
        server.apply(delta, reply.integers[1])
        self._all("conclude", server.cohort)
        return reply.means()

    def _order(self, op: str, clients: Sequence[int], mail: Any, posts: Sequence[Post]) -> Reply:
        arrived = self.server.arrived if op == "train" else None
        shares = self.server.shares_of(clients)
        order = Order(op, tuple(clients), mail, shares, len(clients), self.phase, arrived)
        everything = [self.server.model(), *posts]
        self.ledger.send(clients, mail, everything)
        reply = self.runner.perform(order, everything)
        self.ledger.receive(reply.bytes_up)
        return reply

    def _with(self, hook: str) -> list[ServerHalf]:
        return [half for half in self.server.halves.values() if overrides(type(half), hook)]

    def _all(self, hook: str, clients: Sequence[int]) -> None:
        """Drive the plans that the halves make at this point, one after the other."""
        for half in self._with(hook):
            self._drive(half, getattr(half, hook)(self.server), clients)

    def _drive(self, half: ServerHalf, plan: Plan, clients: Sequence[int]) -> None:
        reply: Mapping[str, Any] | None = None
        while True:
            try:
                ask: Ask = next(plan) if reply is None else plan.send(reply)
            except StopIteration:
                return
            to = clients if ask.to == "cohort" else self.server.present if ask.to == "everyone" else ask.to
            answer = self._order(f"{half.name}.{ask.op}", sorted(to), ask.mail, ask.posts)
            self.server.records |= answer.means()
            reply = answer.of(half.name, half.knobs.replies, self.server.parameters.dtype)

    def _evaluated(self, done: RoundDone, task_done: bool) -> RoundDone:
        every = self.config.evaluation.every_rounds
        if task_done or (every and done.round % every == 0):
            return replace(done, evaluation=self._evaluate(), task_done=task_done)
        return done

    def _evaluate(self) -> Accuracies:
        return accuracies(self.runner.evaluate(self.chunks, [self.server.model()]), self.federation)

    def _state(self) -> Mapping[str, Any]:
        self.model.load(self.server.model().value)
        return self.model.state_dict()
