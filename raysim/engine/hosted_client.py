"""A client as its host runs it: its phases, exchanges, memory and state."""

import copy
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from raysim.api.client import Client
from raysim.api.messages import Delta
from raysim.api.method import ClientHalf, halves_with_hook, overrides
from raysim.api.networks import Build, flatten, initial, load
from raysim.api.shared import Shared
from raysim.api.step import Step
from raysim.data.custom_stream import CustomStream
from raysim.data.pixels import Source
from raysim.engine.half_state import has_learned, new_half
from raysim.engine.hook_calls import HookCalls
from raysim.engine.local_training import choose_samples, epoch_of, run_local_loop
from raysim.engine.orders import RoundInfo
from raysim.federation.stream import Stream
from raysim.memory import Memory
from raysim.models.flat import FlatModel, Weights
from raysim.system.custom_code import is_custom
from raysim.system.device import to_device
from raysim.system.seeding import RandomGenerators, guard_globals

NOTHING = torch.zeros(0)
# What a request to forget may drop.
REMEMBERED, PERSONALIZED, OPTIMIZERS, STATES = (
    "samples of memories",
    "personalized models",
    "optimizers",
    "states of clients",
)


class HostedClient(Client):
    """One client with its methods' client halves.

    Checkpoints and moves to other hosts include all attributes that are not in `transient`.
    """

    transient: ClassVar = frozenset(
        {"id", "stream", "data", "shared", "model", "classes", "local_epochs", "deterministic", "arrived", "finished"}
        | {
            "share",
            "steps",
            "records",
            "begins_stage",
            "kept_out",
            "tuned",
            "received",
            "calls",
            "random_name",
            "_random",
            "_made",
        }
    )

    def __init__(
        self,
        number: int,
        stream: Stream,
        data: Source,
        memory: Memory | None,
        shared: Shared,
        halves: Mapping[str, ClientHalf],
        calls: HookCalls,
    ) -> None:
        super().__init__(number, stream, data, memory, shared)
        self.halves = dict(halves)
        self.calls = calls
        self.trained = 0  # the number of samples in an epoch of this phase
        self.optimizer: dict[str, Any] = {}  # the optimizer's attributes, if training.keep_optimizer
        self.records: dict[str, Tensor | float] = {}  # name -> the value passed to `record` in this phase
        self.networks: dict[str, tuple[Tensor, ...]] = {}  # the vectors of the client's auxiliary networks
        self.exchanges: dict[str, int] = {}  # method -> the number of exchanges since the last phase
        self.begins_stage = False  # whether the current phase is its stage's first
        self.begun = -1  # the stage of the last phase's window; -1 before the first phase
        # The personalized model's vectors, in the order of Weights. Empty before training, or if it is not evaluated.
        self.personalized: tuple[Tensor, ...] = ()
        self.tuned = object()  # another one for each new personalized model
        # For each position in the stream: whether the sample was offered to the memory.
        self.offered = torch.zeros(0 if memory is None else len(stream), dtype=torch.bool)
        self.left_out = torch.zeros(0, dtype=torch.int64)  # the positions that requests to forget named
        self._made: dict[str, FlatModel] = {}  # the networks of this phase or exchange
        self.random_name = shared.seed, number, 0, 0  # of the generators of this phase or exchange

    def begin_phase(self, info: RoundInfo, share: float, *, draws: bool = True) -> None:
        """Begin a phase: receive new data, and create new random generators.

        `draws` says whether torch may draw from the client's generators in this phase.
        """
        self.receive_data(info.window)
        self.phases += 1
        self.exchanges = {}
        self.round, self.lr, self.share = info.round, info.lr, share
        self.trained, self.steps = len(self.arrived), 0
        self.forget()
        if draws:
            self._random.select("model")
        self._receive()
        stage = self.stream.stage(info.window)
        self.begins_stage = stage != self.begun
        if self.begins_stage:
            self.finished = self.stream.span(max(self.begun, 0), stage)
            self.begun = stage
            for half in self.halves.values():
                self.calls(half, "begin_task", self)

    def begin_exchange(self, method: str, info: RoundInfo, share: float) -> None:
        """Begin an exchange outside a phase. Its random generators do not depend on other methods' exchanges."""
        self.exchanges[method] = self.exchanges.get(method, 0) + 1
        self.round, self.lr, self.share = info.round, info.lr, share
        self.forget(self.exchanges[method])
        with self.rng_scope("receive"):
            self._receive()

    def forget(self, exchange: int = 0) -> None:
        """Drop what belongs to one phase or exchange, such as recorded numbers. Called before and after each."""
        self.records, self._made = {}, {}
        self.calls.received.forget(self.id)
        self.received = NOTHING  # which would keep an older version of the model in memory
        self.random_name = self.shared.seed, self.id, self.phases, exchange
        self._random = RandomGenerators(*self.random_name)

    def receive_data(self, window: int) -> None:
        """Receive the data of a window. At a boundary, offer the memory the data of each stage that ended.

        Each stage's data come in an order that a generator of the next phase draws. An exchange before that phase may
        deliver the data. It draws the same order, so exchanges do not change the memory.
        """
        self.kept_out = self.shared.kept_out(self.stream, window)
        if window == self.window:
            if self._has_custom_half:
                self.arrived = self.stream.span(window, window + 1)  # a hook may have changed it in place
            return
        before, self.window = self.stream.stage(max(self.window, 0)), window
        self._see_window()
        if self.memory is None or self.memory.kind.fill != "boundary":
            return
        since = range(max(self.begun, 0), self.stream.stage(window) + 1)  # the windows since the last phase's stage
        stages = [number for number in since if self.stream.stage(number) == number]  # a stage is its first window
        for number, (stage, following) in enumerate(pairwise(stages)):
            if stage >= before:
                draws, ended = (
                    self.fixed_generator(self.phases + 1, number, "memory"),
                    self.stream.span(stage, following),
                )
                self._remember(ended[torch.from_numpy(draws.permutation(len(ended)))], draws)

    def pause(self) -> None:
        """Leave torch's generators to another client, until `go_on`."""
        self._random.select(None)

    def go_on(self) -> None:
        """Let torch draw from this client's generator again, at its last position."""
        self._random.select("model")

    @property
    def fills_on_arrival(self) -> bool:
        """Whether the memory is offered each step's samples."""
        return self.memory is not None and self.memory.kind.fill == "arrival"

    def local_training(self) -> Delta:
        """Run the local loop with all methods' hooks, and return the change of the model."""
        halves = [*self.halves.values()]
        positions = choose_samples(self, halves, self.calls)
        self.trained = len(positions)
        remember = self.offer if self.fills_on_arrival else None
        kept = self.optimizer if self.shared.training.keep_optimizer else None
        return run_local_loop(self, positions, halves, remember, kept, self.calls)

    def epoch(self, positions: Tensor | None = None) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Put the model into training mode, and yield one epoch's batches; see `Client.epoch`."""
        self.model.module.train()
        for step in epoch_of(self, self.arrived if positions is None else positions, self.steps, None):
            self.steps += 1
            yield step.x, step.y, step.x if step.draws is None else self.samples(step.positions)[0]

    def record(self, name: str, value: Tensor | float) -> None:
        """Record a number of this phase; see `Participant.record`."""
        self.records[name] = value

    def auxiliary_network(self, name: str, build: Build, weights: Weights | None = None) -> FlatModel:
        """Return the auxiliary network of this name; see `Client.auxiliary_network`."""
        if name not in self._made:
            built = self.shared.networks
            if name not in built:
                built[name] = initial(self.shared.seed, name, build)
            self._made[name] = network = flatten(name, copy.deepcopy(built[name]), self.model.device)
            if weights is None:
                load(name, network, self.networks.get(name, network.vectors))
                self.networks[name] = network.vectors
            else:
                load(name, network, weights)
        return self._made[name]

    def offer(self, step: Step) -> None:
        """Offer a step's samples to the memory. Each sample is offered once, after its first step."""
        fresh = ~self.offered[step.positions]
        if fresh.any():
            self.offered[step.positions] = True
            chosen = fresh.nonzero().view(-1)  # indices: a GPU would first have to count a mask's true entries
            logits = None
            if self.memory is not None and self.memory.kind.keeps_logits:
                logits = step.logits.detach().index_select(0, to_device(chosen, step.logits.device))
            augmentation = None if step.draws is None else step.draws[chosen]
            self._remember(step.positions[chosen], self.generator("memory"), augmentation, logits)

    def restore(self, state: Mapping[str, object]) -> None:
        """Restore a client's state, which was saved between two phases, perhaps by another host."""
        super().restore(state)
        self.tuned = object()
        if len(self.left_out):
            self.stream = self.stream.leaving_out(self.left_out)
        if self.window >= 0:
            self._see_window()

    def leave_out(self, positions: Tensor) -> tuple[dict[str, int], list[str]]:
        """Leave out samples from now on, and drop what is kept of those that arrived.

        A personalized model begins anew, as it was trained on them.

        Returns:
            How much of what was dropped, and the methods with another state, which stays.
        """
        self.left_out = torch.cat([self.left_out, positions])
        self.stream = self.stream.leaving_out(positions)
        if self.window < 0 or not bool((positions < self.stream.end(self.window)).any()):
            return {}, []
        self._see_window()
        changed = self._changed_halves()
        personal = [name for name in changed if _is_personal(type(self.halves[name]))]
        dropped = {
            REMEMBERED: self._forget_remembered(),
            PERSONALIZED: int(bool(self.personalized or personal)),
            OPTIMIZERS: int(bool(self.optimizer)),
        }
        for name in personal:
            self.halves[name] = new_half(self.halves[name])
        self.personalized, self.optimizer, self.tuned = (), {}, object()
        networks = {name.partition(".")[0] for name in self.networks}
        return dropped, sorted({*changed, *networks} - {*personal})

    def describe_kept(self) -> dict[str, int]:
        """Return how much the client keeps, as a client that is forgotten drops it."""
        personal = any(_is_personal(type(self.halves[name])) for name in self._changed_halves())
        return {
            REMEMBERED: 0 if self.memory is None else len(self.memory),
            PERSONALIZED: int(bool(self.personalized or personal)),
            OPTIMIZERS: int(bool(self.optimizer)),
            STATES: int(bool(self._changed_halves() or self.networks)),
        }

    def _forget_remembered(self) -> int:
        """Take out of the memory what is left out, and return how many samples those are."""
        if self.memory is None:
            return 0
        entries = self.memory.entries()
        stays = ~torch.isin(entries.positions, self.left_out)
        if bool(stays.all()):
            return 0
        rest = self.memory.entries(stays.nonzero().view(-1))
        rows, task = self.stream.locate(rest.positions)
        tasks = task.numpy() if isinstance(task, Tensor) else np.full(len(rest), task)
        draws = self.fixed_generator(self.phases, len(self.left_out), "forget")
        self.memory.refill(rest, self.read_labels(rows), tasks, draws)
        return len(entries) - len(rest)

    def _changed_halves(self) -> list[str]:
        """Return the methods that have another state here than at their start."""
        return [name for name, half in self.halves.items() if has_learned(half)]

    def _receive(self) -> None:
        """Have the methods put this client's local parameters into the received model."""
        self.received = self.from_server("model").parameters
        halves = halves_with_hook(self.halves.values(), "receive")
        for half in halves:
            self.calls(half, "receive", self)
        if halves:
            self.received = self.model.parameters.clone()
            if self._has_custom_half:
                self.calls.received.take_parameters(self.id, self.received)

    @property
    def _has_custom_half(self) -> bool:
        return any(is_custom(type(half)) for half in self.halves.values())

    def _see_window(self) -> None:
        """Select the current window's data. A user-defined stream holds these samples and those of the memory."""
        self.arrived = self.stream.span(self.window, self.window + 1)
        if isinstance(self.data, CustomStream):
            remembered = [] if self.memory is None else [self.memory.entries().positions]
            with guard_globals("scenario.boundaries.asynchronous.stream", None, instead="its arguments alone"):
                self.data.hold(torch.cat([self.arrived, *remembered]))

    def _remember(
        self,
        positions: Tensor,
        draws: np.random.Generator,
        augmentation: Tensor | None = None,
        logits: Tensor | None = None,
    ) -> None:
        """Offer samples to the memory, with their labels and tasks."""
        assert self.memory is not None
        rows, task = self.stream.locate(positions)
        tasks = task.numpy() if isinstance(task, Tensor) else np.full(len(positions), task)
        self.memory.offer(positions, self.read_labels(rows), tasks, draws, augmentation, logits)

    def read_labels(self, rows: Tensor) -> npt.NDArray[np.int64]:
        """Return the labels (int64 [n]) of these rows. Zeros if the targets are not labels."""
        targets = self.data.labels(self.data.held(rows)).numpy()
        return targets if targets.ndim == 1 and targets.dtype == np.int64 else np.zeros(len(rows), np.int64)


def _is_personal(half: type[ClientHalf]) -> bool:
    """Return whether a half's state is a part of a personalized model. It begins anew without one."""
    return overrides(half, "receive") or overrides(half, "personalize")
