"""A rehearsal: a few rounds of a run with one client and a few samples, really trained, in this process.

It shows what every kind of round sends, how many steps a client takes and what it keeps. The cost of the run follows
from the run's plan, which is known before (see cost.py).
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from raysim.api.messages import Broadcast, count_bytes
from raysim.config import Config
from raysim.config.experiment import Training
from raysim.config.schema import Resources
from raysim.config.timing import Clients, SynchronousSchedule
from raysim.engine.exchange import WAITING
from raysim.engine.orders import Operation, Order, Train
from raysim.engine.profile import Profile
from raysim.engine.replies import Reply
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.estimate.brevity import Brevity
from raysim.estimate.lines import Sizes, sizes_in
from raysim.estimate.saved_tensors import SavedTensors
from raysim.federation.availability import Attendance, Availability
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.models.flat import FlatModel
from raysim.system.custom_code import is_custom
from raysim.system.seeding import torch_untouched

ROUNDS = (2, 3, 2)  # by task; so that messages of every k-th round show as a difference between rounds of a kind
ENOUGH = 2  # rounds of a later task: its first one, and one like the others
FEW = 2  # samples of a batch, where nothing is timed
TRAINED = 4  # of a trained network: itself, its gradient, two moments
RATE = 1e-9  # learning rate, with which nothing diverges on a few samples


@dataclass(frozen=True)
class Messages:
    """What one order sends, in bytes."""

    operation: Operation
    sizes: Sizes
    """Those of the client."""
    down: Mapping[str, int]
    """The message, by method."""
    broadcasts: Mapping[str, tuple[int, bool]]
    """By name: its size, and whether it is another version than the last one. The model is not among them."""
    up: Mapping[str, int]
    """The reply, by method."""
    replaced: int = 0
    """How often `end_task` replaced the model since the order before it."""


@dataclass(frozen=True)
class Held:
    """The most bytes of a rehearsal so far."""

    kept: int
    """What the client-side parts of the methods kept from one order to the next."""
    table: int
    """The largest matrix [n, P], if that is more."""
    serving: int
    """The server's auxiliary networks, with gradients and two moments, and what a training step keeps."""
    beside: int
    """Such networks at a host: an initial one, and one with its gradient and two moments."""


@dataclass
class Round:
    """One round of a rehearsal."""

    is_later: bool
    """Whether it is of a later task than the first."""
    is_first: bool
    """Whether it is its task's first round."""
    is_last: bool
    is_final: bool = False
    """Whether it is the run's last round, after which methods may omit what serves the next task."""
    messages: list[Messages] = field(default_factory=list)
    """Of all orders, in turn."""
    at_end: list[Messages] = field(default_factory=list)
    """Of the orders of `end_task`, in the task's last round."""
    replaced: int = 0
    """How often `end_task` replaced the model after its last order."""
    sizes: Sizes | None = None
    """Those of the client; None if it did not train."""
    trained: int = 0
    """The samples that an epoch ran over."""
    steps: int = 0
    seconds: float = 0.0
    """Those beside the server halves' hooks."""
    serving: float = 0.0
    """The seconds of the server halves' hooks, without those of `end_task`."""
    ending: float = 0.0
    """The seconds of `end_task` at the server."""
    held: Held | None = None


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal showed."""

    batches: int
    """Of a round."""
    brevity: Brevity
    training: Training
    rounds: Sequence[Round]


def rehearse(
    config: Config,
    federation: Federation,
    model: FlatModel,
    rounds: Sequence[int],
    made: float = 1.0,
    clock: Callable[[], float] = time.process_time,
    patience: float = float("inf"),
    enough: int = ENOUGH,
) -> list[Round]:
    """Train a small run and return its rounds. Torch's global state and the model stay as they are.

    Args:
        config: the config of `in_small`.
        federation: its federation.
        model: the run's model.
        rounds: the number of rounds of each task.
        made: the share of what methods make at the server; see `Brevity`.
        clock: what rounds are timed with.
        patience: the seconds after which a later task has `enough` rounds, and no further task begins.
        enough: see there.
    """
    done: list[Round] = []
    with torch_untouched():
        runner, saved = Watcher(config, federation, made), SavedTensors()
        simulation = Simulation(config, federation, runner, model=copy.deepcopy(model))
        is_own = any(is_custom(type(half)) for half in simulation.exchange.halves.values())  # may use torch.func
        simulation.exchange.calls.profile = Watch(simulation.server.device, clock, None if is_own else saved)
        began = time.process_time()
        with TableWatch(model) as tables:
            for turn in (turn for count in rounds for turn in range(count)):
                if done and done[-1].is_later and turn in (0, enough) and time.process_time() - began > patience:
                    break
                done.append(_carry_out(simulation, runner, clock))
                table = tables.largest if tables.largest > runner.kept else 0
                serving = TRAINED * count_bytes(simulation.server.networks.state()) + saved.peak
                done[-1].held = Held(runner.kept, table, serving, (1 + TRAINED) * runner.beside)
    return done


def _carry_out(simulation: Simulation, runner: "Watcher", clock: Callable[[], float]) -> Round:
    """Carry out the next round, which is not evaluated, and return what was seen of it."""
    server, profile, began = simulation.server, simulation.exchange.calls.profile, clock()
    server.begin_round()
    progress, ends = server.progress, server.round in simulation.federation.availability.rows
    seen = Round(progress.task > 0, progress.is_first, ends)
    seen.is_final = server.round == simulation.federation.availability.rounds
    runner.round, runner.messages = seen, seen.messages
    simulation.schedule.update()
    seen.serving = _of_server(profile)
    runner.messages, runner.sent = seen.at_end, server.version
    if ends:
        simulation.exchange.drive_plans("end_task", server.present)
    seen.replaced = server.version - runner.sent
    seen.ending = _of_server(profile)
    seen.seconds = clock() - began - seen.serving - seen.ending
    return seen


def _of_server(profile: Profile) -> float:
    """Return the seconds of the server halves' hooks since the last call."""
    return sum(seconds for part, seconds in profile.take().items() if part != WAITING)


class Watch(Profile):
    """Times the server halves' hooks, and counts what autograd keeps in them unless `saved` is None."""

    def __init__(self, device: torch.device, clock: Callable[[], float], saved: SavedTensors | None) -> None:
        super().__init__(True, device, clock)
        self._saved = saved

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Return a context. Time in the context counts for this part."""
        kept = nullcontext() if self._saved is None or name == WAITING else self._saved.noted()
        with super().part(name), kept:
            yield


class Watcher(LocalRunner):
    """A runner that notes what each order sends, and what the client keeps after it."""

    def __init__(self, config: Config, federation: Federation, made: float) -> None:
        super().__init__(config, federation)
        self._made = made
        self.round = Round(False, False, False)
        self.messages = self.round.messages
        self.kept = 0
        self.beside = 0
        self.sent = 0  # the version of the model that the last order sent
        self._versions: dict[str, int] = {}

    def begin(self, order: Order, message: Any, broadcasts: Sequence[Broadcast]) -> Reply:
        """Carry out the order, and return the reply."""
        reply, client = super().begin(order, message, broadcasts), self.host.clients[0]
        states = [half.state() for half in client.halves.values()]
        self.kept = max(self.kept, count_bytes([states, client.networks]))
        beside = client.shared.networks.values()
        self.beside = sum(tensor.nbytes for module in beside for tensor in module.state_dict().values())
        sizes = sizes_in(client.stream, client.window, self._made)
        if isinstance(order.operation, Train):
            self.round.sizes = sizes
            self.round.trained, self.round.steps = client.trained, client.steps
        version = next(each.version for each in broadcasts if each.name == "model")
        replaced = version - self.sent if self.messages is self.round.at_end else 0
        self.sent = version
        others = {each.name: each for each in broadcasts if each.name != "model"}
        self.messages.append(
            Messages(
                order.operation,
                sizes,
                {method: count_bytes(part) for method, part in order.operation.messages(message).items()},
                {name: (count_bytes(b.value), self._versions.get(name) != b.version) for name, b in others.items()},
                dict(reply.bytes_by_method),
                replaced,
            )
        )
        self._versions |= {name: broadcast.version for name, broadcast in others.items()}
        return reply


class TableWatch(TorchFunctionMode):
    """Notes the bytes of the largest matrix [n, P] in the model's dtype; the estimate counts vectors."""

    def __init__(self, model: FlatModel) -> None:
        super().__init__()
        self.largest = 0
        self._like = model.dtype, len(model.parameters)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry an operation of torch's out."""
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.dim() == 2 and (made.dtype, made.shape[1]) == self._like:
            self.largest = max(self.largest, made.nbytes)
        return made


def rounds_of(config: Config) -> Sequence[int]:
    """Return the rounds of each portion of a rehearsal's data: of each task, or of each window of unknown tasks."""
    if config.scenario.windows is not None:
        return ROUNDS
    return ROUNDS[: config.scenario.tasks] if config.scenario.tasks > 1 else (max(ROUNDS),)


def in_small(
    config: Config,
    federation: Federation,
    batches: int,
    batch_size: int,
    rounds: Sequence[int],
    resources: Resources | None = None,
) -> tuple[Config, Federation]:
    """Return the config and the federation of a rehearsal: one client with this many batches of each task.

    It trains one epoch, or one step more than an epoch has if the config counts steps. This shows which of the two a
    method follows. It is on the CPU unless `resources` are given.
    """
    rows, ends, unlabelled = batches * batch_size, np.cumsum(rounds).tolist(), federation.unlabelled
    tasks = [number % len(federation.tasks) for number in range(len(rounds))]
    samples = [np.resize(federation.tasks[task].train, rows) for task in tasks]
    known = config.scenario.windows is None  # whether clients and the server know where tasks end
    stream = Stream(samples, tasks, stages=None if known else [0])
    if unlabelled is not None:
        second = [] if unlabelled.split is None else [np.resize(np.concatenate(unlabelled.streams[0].rows), rows)]
        unlabelled = replace(unlabelled, streams=[Stream(second) if second else stream])
    training = {
        "rounds_per_task": rounds[0],
        "local_epochs": 1 if config.training.local_epochs else None,
        "local_steps": batches + 1 if config.training.local_steps else None,
        "batch_size": batch_size,
        "optimizer": config.training.optimizer.model_copy(update={"lr": RATE}),
    }
    small = config.model_copy(
        update={
            "clients": Clients(count=1),
            "training": config.training.model_copy(update=training),
            "schedule": SynchronousSchedule(),
            "resources": resources or Resources(deterministic=config.resources.deterministic),
            "participation": config.participation.model_copy(update={"fraction": 1.0, "count": None}),
        }
    )
    times = Availability([stream], [Attendance([1, *(end + 1 for end in ends[:-1])])], ends if known else ends[-1:])
    return small, replace(
        federation, streams=[stream], availability=times, opener=None, unlabelled=unlabelled, forgetting={}
    )
