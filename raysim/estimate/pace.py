"""How fast this machine would compute a run: its model, batches and methods, really trained on a few batches."""

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.engine.events import RoundDone
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.estimate.miniature import make_miniature
from raysim.evaluation.scoring import Chunk, Scores, zero_scores
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.models.flat import FlatModel
from raysim.system.seeding import torch_untouched

TASKS, ROUNDS = 3, 2  # of the miniature: in the third task memories are there, and whatever is imported late is
TESTED = 100  # samples
LEAST, MOST = 2, 16  # batches of a round
PATIENCE = 5.0  # seconds that training should take, and after which no further task is begun
BACKWARD = 3  # a step against a forward pass on as many samples
TRIED = 10_000  # times that the reference work is done
REFERENCE = 0.077  # seconds that it takes the machine of the following ones, which are fitted to real runs
ROUND = 0.0005  # of a round in one process beside its clients' steps: the server's part, and its record
ROUND_ON_RAY, CALL = 0.0026, 0.0026  # of a round, and of each call to a host, which two cores share with the rest


@dataclass(frozen=True)
class Pace:
    """Seconds of one core: of a gradient step with all that the methods do beside it; of what they do once before a
    client's first phase of a task, for each batch of that phase's epoch; of the evaluation of a sample. Seconds that
    pass beside these: of a round, with --local and on Ray, and of a call to a host there.
    """

    step: float
    beginning: float
    sample: float
    round: float
    round_on_ray: float
    call: float


def pace(config: Config, federation: Federation, model: FlatModel) -> Pace:
    """Measure a miniature of the run: one client with a few batches of up to three tasks, without Ray.

    The model is that of the run, which has no other use for it.
    """
    with torch_untouched():
        sample = _seconds_per_sample(*_miniature(config, federation, LEAST), model)
        step = BACKWARD * config.training.batch_size * sample
        batches = min(max(int(PATIENCE / (TASKS * ROUNDS * step)), LEAST), MOST)
        seconds = _seconds_per_step(*_miniature(config, federation, batches), model)
    first, later = seconds[-ROUNDS:]
    beginning = max(first - later, 0.0) if len(seconds) > ROUNDS else 0.0
    slowness = _seconds_of_reference() / REFERENCE
    overhead = [slowness * seconds for seconds in (ROUND, ROUND_ON_RAY, CALL)]
    return Pace(min(first, later), beginning, sample, *overhead)


def _seconds_of_reference() -> float:
    """Return the seconds of work like that of rounds and messages: small objects, bytes and tensors of Python's."""
    began = time.process_time()
    for number in range(TRIED):
        told = pickle.loads(pickle.dumps({client: (number, float(client), str(client)) for client in range(10)}))
        torch.zeros(100).add_(len(told)).tolist()
    return time.process_time() - began


def _seconds_per_step(config: Config, federation: Federation, model: FlatModel) -> list[float]:
    """Return the seconds per step of each round of a miniature, in whole tasks."""
    clock, seconds = _clock(config), []
    began, then = time.perf_counter(), clock()
    for event in Simulation(config, federation, _Unevaluated(config, federation), model=model).events():
        now = clock()
        if isinstance(event, RoundDone):
            seconds.append((now - then) / max(event.steps, 1))
            if event.task_done and time.perf_counter() - began > PATIENCE:
                break
        then = now
    return seconds


def _seconds_per_sample(config: Config, federation: Federation, model: FlatModel) -> float:
    """Return the seconds that the evaluation of a sample takes, the second time."""
    clock, runner = _clock(config), LocalRunner(config, federation)
    broadcast = Broadcast("model", 0, model.weights())
    tested = len(federation.tasks[0].test)
    runner.evaluate([Chunk(0, 0, tested)], [broadcast])
    began = clock()
    runner.evaluate([Chunk(0, 0, tested)], [broadcast])
    return (clock() - began) / tested


def _clock(config: Config) -> Callable[[], float]:
    """Return what to take times with: a core's own seconds, whatever else the machine does; on a GPU a wall's."""
    return time.perf_counter if config.resources.gpus_per_actor else time.process_time


class _Unevaluated(LocalRunner):
    """Trains, and takes every answer for wrong."""

    def evaluate(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Scores:
        """Compute nothing."""
        return zero_scores(self.host.federation)

    def evaluate_clients(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> dict[int, Scores]:
        """Compute nothing."""
        return dict.fromkeys(self.host.clients, zero_scores(self.host.federation))


def _miniature(config: Config, federation: Federation, batches: int) -> tuple[Config, Federation]:
    """Return a run of one client, which has so many batches of each task, one epoch of them in each round."""
    largest = max(stream.size(window) for stream in federation.streams for window in range(stream.windows))
    rows = min(batches * config.training.batch_size, largest)
    tasks = [federation.tasks[number % len(federation.tasks)] for number in range(TASKS)]
    tasks = [replace(task, train=task.train[:rows], test=task.test[:TESTED]) for task in tasks]
    return make_miniature(config, federation, tasks, Stream([task.train for task in tasks]), ROUNDS)
