"""The simulation of a run: rounds, task ends and evaluations. A runner carries out its orders."""

import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.config.timing import AsynchronousSchedule
from raysim.engine.asynchronous import AsynchronousUpdates
from raysim.engine.compatibility import check_fit_of_data, make_methods
from raysim.engine.events import Accuracies, Caution, Checkpoint, Dispatched, Event, Finished, RoundDone, Started
from raysim.engine.exchange import Exchange, guard_hook
from raysim.engine.forgetting import RequestsToForget, follow_requests
from raysim.engine.host_evaluation import EVALUATED
from raysim.engine.hosted_server import HostedServer
from raysim.engine.input_files import find_on_this_node, pin_files_of, pin_weights
from raysim.engine.runner import LocalRunner, Runner
from raysim.engine.synchronous import SynchronousRounds
from raysim.engine.virtual_time import Clock
from raysim.evaluation.scoring import (
    ClientSummary,
    Scores,
    Spread,
    accuracies,
    by_protocol,
    chunks_for,
    depends_on_tasks_so_far,
    mean_client_accuracies,
    summarise_clients,
)
from raysim.federation.features import cache_features
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import check_model
from raysim.models.flat import FlatModel, Weights
from raysim.system.custom_code import is_custom
from raysim.system.device import describe_machine
from raysim.system.errors import RunError, describe_error, locate_errors
from raysim.system.pinned import check_files
from raysim.system.shared_memory import separate
from raysim.system.state import Stateful, decode, encode

UNFIT = "the checkpoint's state of the server does not fit this run; delete the newest checkpoint"


def load_parts(config: Config) -> tuple[Federation, FlatModel]:
    """Return a run's data and its initial model. Check that they suit each other.

    Raises:
        ConfigError: the data are missing, or the data or the model do not suit the scenario.
    """
    federation = follow_requests(config, build_federation(config))
    files = pin_weights(config)  # before they are read
    model = check_model(config, federation.shape, federation.classes, federation.vocabulary)
    check_fit_of_data(config, model, federation)
    files += pin_files_of(make_methods(config).items())
    return cache_features(config, replace(federation, files=files)), model


def simulate_here(
    config: Config,
    federation: Federation,
    server: bytes | None,
    clients: Mapping[int, bytes] | None,
    model: FlatModel | None = None,
) -> "Simulation":
    """Return a simulation that computes all clients in this process.

    Args:
        config, federation, server, model: as in `Simulation`.
        clients: the checkpoint's states of the clients.
    """
    return Simulation(config, federation, LocalRunner(config, federation, clients), server, model)


class Simulation(Stateful):
    """One run, as an iterator of events. `stop` ends it after the round in progress.

    Args:
        config: the resolved config.
        federation: the run's data.
        runner: the runner. If the run resumes from a checkpoint, its clients are already restored.
        server: the checkpoint's state of the server. None starts the run from its beginning.
        model: the initial model, on the CPU. None builds it here.
    """

    transient: ClassVar = frozenset(
        {
            "config",
            "federation",
            "runner",
            "model",
            "chunks",
            "stopping",
            "_saved",
            "_saving",
            "_last_scores",
            "_counts_memories",
            "_files",
            "_to_forget",
        }
    )

    def __init__(
        self,
        config: Config,
        federation: Federation,
        runner: Runner,
        server: bytes | None = None,
        model: FlatModel | None = None,
    ) -> None:
        self.config = config
        self.federation = federation
        self.runner = runner
        self._files = find_on_this_node(config, federation.files)
        self.model = model or check_model(config, federation.shape, federation.classes, federation.vocabulary)
        self.server = HostedServer(config, federation, self.model)
        self.exchange = Exchange(config, self.server, runner)
        self.schedule: SynchronousRounds | AsynchronousUpdates = SynchronousRounds(self.exchange, Clock(config))
        if isinstance(config.schedule, AsynchronousSchedule):
            self.schedule = AsynchronousUpdates(self.exchange, config.schedule, federation.availability)
        self._to_forget = RequestsToForget(config, federation, self.exchange, self.schedule, self._tested)
        self.chunks = chunks_for(self.model, federation)  # parts of the test sets
        remembers = any(half.method.memory is not None for half in self.exchange.halves.values())
        self._counts_memories = config.logging.memory and remembers
        self.virtual_time = 0.0  # virtual seconds since the run's start
        # What the last scores are of, as (version, round, tasks so far), and these scores.
        self._last_scores: tuple[tuple[int, int, int | None], Scores] | None = None
        self._saving = False  # whether a checkpoint follows the round in progress
        self.stopping = threading.Event()  # any thread may set it; a caller may replace it by another event
        if server is not None:
            self._restore(server)
        self._saved = self.server.round  # the round of the last checkpoint

    def _restore(self, saved: bytes) -> None:
        """Restore the checkpoint's state of the server. Raises RunError if it does not fit this run."""
        state, expected = decode(saved), [vector.shape for vector in self.model.vectors]
        try:
            self.restore(state)
            if (methods := [*state["exchange"]["halves"]]) != [*self.exchange.halves]:
                raise ValueError(f"it has the methods {methods}")
            server = self.server
            shapes = [vector.shape for vector in (server.parameters, server.buffers, server.integers)]
            if shapes != expected:
                raise ValueError(f"its vectors have the shapes {shapes}, the model's {expected}")
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise RunError(f"{UNFIT} ({describe_error(error)})") from error

    def stop(self) -> None:
        """End the run after the round in progress."""
        self.stopping.set()

    def save(self) -> None:
        """Have a checkpoint follow the round in progress."""
        self._saving = True

    def heard(self) -> None:
        """Continue after an event. Only a run in an actor waits for this call; see `RemoteRun.heard`."""

    def events(self) -> Generator[Event, None, None]:
        """Run the remaining rounds, until the last one or until stopped, and yield events."""
        last, done = self.federation.availability.rounds, self.server.round
        untrained = self._evaluate()[0] if not done else None
        machines = {describe_machine(self.server.device), *self.runner.machines.values()}
        yield Started(untrained, last, done, machine="; ".join(sorted(machines)))
        while self.server.round < last and not self.stopping.is_set():
            yield self._round()
            yield from map(Caution, self.exchange.take_warnings())
            due = self._saving or self.server.round % self.config.checkpoint.every_rounds == 0
            if due and self.server.round < last:
                yield self._checkpoint()
        if self._saved < self.server.round < last:
            yield self._checkpoint()
        self.model.load(self._model_to_test().value)
        per_client = self._per_client()
        self._files = check_files(self._files)
        yield Finished(self.model.state_dict(), interrupted=self.server.round < last, per_client=per_client)

    def _round(self) -> RoundDone:
        """Carry out a round, with its evaluation if one is due, and return its event."""
        profile = self.exchange.calls.profile
        with profile.part("server: everything else"):
            done = self._follow_requests(self._timed_round())
        with profile.part("server: evaluation"):
            done = self._add_evaluation(done)
        return replace(done, profile=profile.take()) if self.config.logging.profile else done

    def _timed_round(self) -> RoundDone:
        """Carry out a round. A task's last round includes the `end_task` exchanges."""
        server, traffic = self.server, self.exchange.traffic
        began, up, down, steps = time.perf_counter(), traffic.up, traffic.down, self.exchange.steps
        server.begin_round()
        with locate_errors(f"server, round {server.round}"):
            outcome = self.schedule.update()
            ending = self.schedule.end_task() if self._ends_row() else 0.0
            self.exchange.watch_state(self._ends_row() or server.round == server.progress.began + 1)
        dispatches = self._in_time(outcome.dispatches)
        self.virtual_time += outcome.seconds + ending
        loss = outcome.means.pop("loss", None)
        return RoundDone(
            round=server.round,
            tasks=[task + 1 for task in outcome.tasks] or [server.task + 1],
            cohort=list(outcome.cohort),
            loss=loss,
            bytes_up=traffic.up - up,
            bytes_down=traffic.down - down,
            steps=self.exchange.steps - steps,
            seconds=time.perf_counter() - began,
            staleness=list(outcome.staleness),
            virtual_time=self.virtual_time,
            idle_share=outcome.idle,
            records={**outcome.means, **server.records},
            pictures=server.pictures,
            so_far=self._so_far,
            dispatches=dispatches,
        )

    def _follow_requests(self, done: RoundDone) -> RoundDone:
        """Carry out the requests to forget that act after the round, and return its event with them."""
        requests = self.federation.forgetting.get(done.round, ())
        if not requests:
            return done
        server = self.server
        with locate_errors(f"server, round {server.round}, a request to forget"):
            forgotten = [self._to_forget.follow(request) for request in requests]
        self.virtual_time += self.schedule.wait_for_transfers()
        return replace(
            done,
            bytes_up=done.bytes_up + sum(each["bytes_up"] for each in forgotten),
            bytes_down=done.bytes_down + sum(each["bytes_down"] for each in forgotten),
            seconds=done.seconds + sum(each["seconds"] for each in forgotten),
            virtual_time=self.virtual_time,
            records={**done.records, **server.records},
            forgotten=forgotten,
        )

    @property
    def _so_far(self) -> int:
        """The last task (from 1) that clients may have seen."""
        return self.server.task + 1 if self.config.in_step else len(self.federation.tasks)

    def _in_time(self, dispatches: Sequence[Dispatched]) -> list[Dispatched] | None:
        """Return the dispatches with times since the run's start, not the round's. None unless `logging.dispatches`."""
        if not self.config.logging.dispatches:
            return None
        now = self.virtual_time
        return [Dispatched(client, now + sent, now + back, fate) for client, sent, back, fate in dispatches]

    def _ends_row(self) -> bool:
        """Return whether a row of the accuracy matrix is measured after this round."""
        return self.server.round in self.federation.availability.rows

    def _add_evaluation(self, done: RoundDone) -> RoundDone:
        """Return the event of a round, with an evaluation if one is due."""
        every = self.config.evaluation.every_rounds
        if self._ends_row() or (every and done.round % every == 0):
            evaluation, spread = self._evaluate()
            memory = self.runner.count_remembered().tolist() if self._counts_memories else None
            return replace(done, evaluation=evaluation, spread=spread, task_done=self._ends_row(), memory=memory)
        return done

    def _evaluate(self) -> tuple[Accuracies, Mapping[str, Spread] | None]:
        """Return each protocol's accuracies, and their spread over clients if `evaluation.model` is local."""
        if not self.config.evaluation.averages_clients:
            return accuracies(self._scores(), self.federation), None
        return mean_client_accuracies(self._scores(), self.federation)

    def _per_client(self) -> Mapping[str, ClientSummary] | None:
        """Return the summary's entry on the clients' accuracies, if the config asks for it."""
        if not self.config.evaluation.reports_clients:
            return None
        return summarise_clients(self._scores(), self.federation)

    def _scores(self) -> Scores:
        """Return the scores of the current model, or of the personalized models. A version is tested only once."""
        local = self.config.evaluation.model == "local"
        # Personalized models, and what a method evaluates, may change in any round. The server's model changes only
        # with its version.
        by_round = local or bool(self.exchange.halves_with("evaluated"))
        so_far = self._so_far if depends_on_tasks_so_far(self.model.module, self.federation) else None
        now = (self.server.version, self.server.round if by_round else 0, so_far)
        if self._last_scores is None or self._last_scores[0] != now:
            chunks = [replace(chunk, so_far=so_far) for chunk in self.chunks]
            if local:
                scores = by_protocol(self.runner.evaluate_clients(chunks, [self.server.broadcast()]))
            else:
                scores = self.runner.evaluate(chunks, [self._model_to_test()])
            self._last_scores = now, scores
        return self._last_scores[1]

    def _model_to_test(self) -> Broadcast:
        """Return the model, or the weights that a method evaluates instead."""
        for half in self.exchange.halves_with("evaluated"):
            with locate_errors(f"server, round {self.server.round}"), guard_hook(half, "evaluated"):
                weights = self.exchange.calls(half, "evaluated", self.server)
            # A copy, as the half may change its own tensors in a later round.
            value = weights and separate(weights) if is_custom(type(half)) else weights
            return Broadcast(EVALUATED, self.server.round, value or self.server.broadcast().value)
        return self.server.broadcast()

    def _tested(self) -> tuple[Weights, int | None]:
        """Return the weights to test, and `so_far` as in `Chunk`."""
        depends = depends_on_tasks_so_far(self.model.module, self.federation)
        weights: Weights = self._model_to_test().value
        return weights, self._so_far if depends else None

    def _checkpoint(self) -> Checkpoint:
        self._saved, self._saving = self.server.round, False
        self._files = check_files(self._files)
        return Checkpoint(self.server.round, encode(self.state()), self.runner.snapshot())
