"""How fast this machine would compute a run: its model, batches and methods, rehearsed with a few full batches."""

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.engine.runner import LocalRunner
from raysim.estimate.brevity import Brevity, shorten
from raysim.estimate.cost import Cost
from raysim.estimate.rehearsal import FEW, Round, in_small, rehearse, rounds_of
from raysim.evaluation.scoring import Chunk
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel
from raysim.system.device import choose_device
from raysim.system.seeding import torch_untouched

ROUNDS = 2  # of each of up to three tasks; in the third memories are there, and whatever is imported late is
LEAST, MOST = 2, 16  # batches of a round
TESTED = 100  # samples
PATIENCE = 2.0  # seconds that training should take, and after which no further task is begun
LONG = 1.0  # seconds of the evaluation of TESTED samples, above which few are evaluated
BACKWARD = 3  # a step against a forward pass on as many samples
TRIED = 10_000  # times that the reference work is done
REFERENCE = 0.077  # seconds that it takes the machine of the following ones, which are fitted to real runs
ROUND = 0.0005  # of a round in one process beside its clients' steps: the server's part, and its record
ROUND_ON_RAY, CALL = 0.0026, 0.0026  # of a round, and of each call to a host, which two cores share with the rest


@dataclass(frozen=True)
class Pace:
    """Seconds of one core, and seconds that pass in addition.

    Seconds of one core:

    - of a gradient step, with all that the methods do in addition;
    - of what the methods do once before a client's first local training of a task, for each batch of its epoch;
    - of the evaluation of a sample.

    Seconds that pass in addition: of a round, with --local and on Ray, and of a call to a host there.

    Seconds of the server halves: `serving` of a round of each kind of `Cost.kinds`, `ending` of `end_task` of each kind
    of `Cost.ends`.
    """

    step: float
    beginning: float
    sample: float
    round: float
    round_on_ray: float
    call: float
    serving: Mapping[tuple[bool, bool], float] = field(default_factory=dict)
    ending: Mapping[tuple[bool, bool], float] = field(default_factory=dict)

    def seconds_of_server(self, cost: Cost) -> tuple[float, float]:
        """Return the seconds of the server halves in all rounds, and in `end_task` of all tasks.

        A kind that the rehearsal lacks is like one of the first task, or like the end of a task before the last one.
        """
        rounds = sum(
            count * self.serving.get((later, first), self.serving.get((False, first), 0.0))
            for (later, first), count in cost.kinds.items()
        )
        like = [kind for kind in ((True, False), (False, False), (False, True)) if kind in self.ending][:1]
        usual = self.ending[like[0]] if like else 0.0
        return rounds, sum(count * self.ending.get(kind, usual) for kind, count in cost.ends.items())


def pace(config: Config, federation: Federation, model: FlatModel) -> Pace:
    """Measure a rehearsal of the run: one client with a few batches of each task, without Ray.

    If a full batch takes long, batches have fewer samples, and take as much less.
    """
    largest = max(stream.size(window) for stream in federation.streams for window in range(stream.windows))
    size, clock, rounds = min(config.training.batch_size, largest), _clock(config), [ROUNDS] * len(rounds_of(config))
    with torch_untouched():
        sample = _seconds_per_sample(*in_small(config, federation, LEAST, size, rounds, config.resources), model)
        affordable = PATIENCE / (sum(rounds) * BACKWARD * sample)
        rows = min(size, max(int(affordable / LEAST), FEW))
        batches = min(max(int(affordable / rows), LEAST), MOST)

        def seen_with(batches: int, least: int) -> tuple[Sequence[Round], Brevity]:
            short, brevity = shorten(config, share=rows / size, least=least)
            small = in_small(short, federation, batches, rows, rounds, config.resources)
            return rehearse(*small, model, rounds, clock=clock, patience=PATIENCE), brevity

        seen, brevity = seen_with(batches, 1)
        more, longer = (seen, brevity) if brevity.work == 1 else seen_with(1, 2)
    seconds = [done.seconds / max(done.steps, 1) * size / rows for done in seen]
    first, later = seconds[-ROUNDS:]
    beginning = max(first - later, 0.0) if len(seconds) > ROUNDS else 0.0
    slowness = _seconds_of_reference() / REFERENCE
    round_here, round_on_ray, call = (slowness * seconds for seconds in (ROUND, ROUND_ON_RAY, CALL))
    works = brevity.work, longer.work
    serving = {(a.is_later, a.is_first): _whole(a.serving, b.serving, *works) for a, b in zip(seen, more, strict=False)}
    ending = {
        (a.is_later, a.is_final): _whole(a.ending, b.ending, *works)
        for a, b in zip(seen, more, strict=False)
        if a.is_last
    }
    return Pace(min(first, later), beginning, sample, round_here, round_on_ray, call, serving, ending)


def _whole(seconds: float, longer: float, work: float, more: float) -> float:
    """Return the seconds of all work, on the line through those of two shares of it."""
    if more <= work:
        return seconds / work
    return seconds + max(longer - seconds, 0.0) * (1 - work) / (more - work)


def _seconds_of_reference() -> float:
    """Return the seconds of work like that of rounds and messages: small objects, bytes and tensors of Python's."""
    began = time.process_time()
    for number in range(TRIED):
        told = pickle.loads(pickle.dumps({client: (number, float(client), str(client)) for client in range(10)}))
        torch.zeros(100).add_(len(told)).tolist()
    return time.process_time() - began


def _seconds_per_sample(config: Config, federation: Federation, model: FlatModel) -> float:
    """Return the seconds that the evaluation of a sample takes: of TESTED samples, or of few where these take long."""
    clock, runner = _clock(config), LocalRunner(config, federation)
    broadcast = Broadcast("model", 0, model.weights())
    few, many = (min(len(federation.tasks[0].test), count) for count in (FEW, TESTED))

    def evaluate(samples: int) -> float:
        began = clock()
        runner.evaluate([Chunk(0, 0, samples)], [broadcast])
        return (clock() - began) / samples

    evaluate(few)  # the first time pays for what happens once
    each = evaluate(few)
    return evaluate(many) if each * many < LONG else each


def _clock(config: Config) -> Callable[[], float]:
    """Return what to take times with: a core's own seconds, whatever else the machine does.

    On a GPU, and on several cores for the server, these are a wall clock's.
    """
    if choose_device(max(config.resources.gpus_per_actor, config.resources.server_gpus)).type == "cuda":
        return _seconds_of_gpu
    return time.perf_counter if config.resources.server_cpus > 1 else time.process_time


def _seconds_of_gpu() -> float:
    """Return the current seconds, after the work that the GPU has been given."""
    torch.cuda.synchronize()
    return time.perf_counter()
