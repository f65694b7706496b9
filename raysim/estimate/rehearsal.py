"""A rehearsal: a few rounds of a run with one client and a few samples, really trained, in this process.

It shows what every kind of round sends, how many steps a client takes and what it keeps. The cost of the run follows
from the run's plan, which is known before (see cost.py).
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor
from torch.overrides import TorchFunctionMode

from raysim.api.messages import Broadcast, count_bytes
from raysim.config import Config
from raysim.config.schema import Resources
from raysim.config.timing import Clients, SynchronousSchedule
from raysim.engine.exchange import WAITING
from raysim.engine.orders import Operation, Order, Train
from raysim.engine.profile import Profile
from raysim.engine.replies import Reply
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.estimate.server_loops import ServerLoops
from raysim.federation.availability import Attendance, Availability
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.models.flat import FlatModel
from raysim.system.seeding import torch_untouched

ROUNDS = (3, 3, 2)  # by task; so that messages of every k-th round show as a difference between rounds of a kind
FEW = 2  # samples of a batch, where nothing is timed
TRAINED = 4  # of a trained network: itself, its gradient, two moments
RATE = 1e-9  # learning rate, with which nothing diverges on a few samples


@dataclass(frozen=True)
class Messages:
    """What one order sends, in bytes."""

    operation: Operation
    down: Mapping[str, int]
    """The message, by method."""
    broadcasts: Mapping[str, tuple[int, bool]]
    """By name: its size, and whether it is another version than the last one. The model is not among them."""
    up: Mapping[str, int]
    """The reply, by method."""
    replaced: int = 0
    """How often `end_task` replaced the model since the order before it."""


@dataclass(frozen=True)
class Sizes:
    """How many samples a client has in a window of its stream."""

    arrived: int
    """Those in the window."""
    finished: int
    """Those of the stages before."""
    so_far: int
    """Those up to the end of the window."""


def sizes_in(stream: Stream, window: int) -> Sizes:
    """Return a client's sizes in a window of its stream."""
    return Sizes(stream.size(window), len(stream.span(0, stream.stage(window))), stream.end(window))


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


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal showed."""

    rounds: Sequence[Round]
    kept: int
    """The most bytes that the client-side parts of the methods kept from one order to the next."""
    table: int
    """The bytes of the largest matrix [n, P], if that is more."""
    serving: int
    """The bytes of the server's auxiliary networks, with gradients and two moments, and of a training step."""
    beside: int
    """The bytes of such networks at a host: an initial one, and one with its gradient and two moments."""
    asked: int
    """The most rows that a server half asked for in a step; see `Server.rows`. 0 if none did."""


def rehearse(
    config: Config,
    federation: Federation,
    model: FlatModel,
    rounds: Sequence[int],
    clock: Callable[[], float] = time.process_time,
    patience: float = float("inf"),
    few: int | None = None,
) -> Rehearsal:
    """Train a small run and return what it showed. Torch's global state and the model stay as they are.

    Args:
        config: the config of `in_small`.
        federation: its federation.
        model: the run's model.
        rounds: the number of rounds of each task.
        clock: what rounds are timed with.
        patience: the seconds after which no further task begins.
        few: the most rows that methods make for a step; see `Client.rows`. None leaves them as they are, to be timed.
    """
    done: list[Round] = []
    with torch_untouched():
        runner = Watcher(config, federation)
        simulation = Simulation(config, federation, runner, model=copy.deepcopy(model))
        simulation.server.pacer = loops = ServerLoops(clock, few)
        for client in runner.host.clients.values():
            client.most_rows = few
        simulation.exchange.calls.profile = Profile(True, simulation.server.device, clock)
        began = time.perf_counter()
        with TableWatch(model) as watch:
            for count in rounds:
                if time.perf_counter() - began > patience:
                    break
                done += [_carry_out(simulation, runner, loops, clock) for _ in range(count)]
    serving = TRAINED * count_bytes(simulation.server.networks.state()) + loops.peak
    table = watch.largest if watch.largest > runner.kept else 0
    return Rehearsal(done, runner.kept, table, serving, (1 + TRAINED) * runner.beside, loops.asked)


def _carry_out(simulation: Simulation, runner: "Watcher", loops: ServerLoops, clock: Callable[[], float]) -> Round:
    """Carry out the next round, which is not evaluated, and return what was seen of it."""
    server, profile, began = simulation.server, simulation.exchange.calls.profile, clock()
    server.begin_round()
    progress, ends = server.progress, server.round in simulation.federation.availability.rows
    seen = Round(progress.task > 0, progress.began == server.round - 1, ends)
    seen.is_final = server.round == simulation.federation.availability.rounds
    runner.round, runner.messages = seen, seen.messages
    simulation.schedule.update()
    hooks = _of_server(profile)
    seen.serving = hooks + loops.take()
    runner.messages, runner.sent = seen.at_end, server.version
    if ends:
        simulation.exchange.drive_plans("end_task", server.present)
    seen.replaced = server.version - runner.sent
    at_end = _of_server(profile)
    seen.ending = at_end + loops.take()
    seen.seconds = clock() - began - hooks - at_end
    return seen


def _of_server(profile: Profile) -> float:
    """Return the seconds of the server halves' hooks since the last call."""
    return sum(seconds for part, seconds in profile.take().items() if part != WAITING)


class Watcher(LocalRunner):
    """A runner that notes what each order sends, and what the client keeps after it."""

    def __init__(self, config: Config, federation: Federation) -> None:
        super().__init__(config, federation)
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
        if isinstance(order.operation, Train):
            self.round.sizes = sizes_in(client.stream, client.window)
            self.round.trained, self.round.steps = client.trained, client.steps
        version = next(each.version for each in broadcasts if each.name == "model")
        replaced = version - self.sent if self.messages is self.round.at_end else 0
        self.sent = version
        others = {each.name: each for each in broadcasts if each.name != "model"}
        self.messages.append(
            Messages(
                order.operation,
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
    return ROUNDS if config.scenario.windows is not None else ROUNDS[: config.scenario.tasks]


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
    return small, replace(federation, streams=[stream], availability=times, opener=None, unlabelled=unlabelled)
