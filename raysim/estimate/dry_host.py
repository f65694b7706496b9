"""A host of clients that compute nothing: what they would send is counted, what their halves hold is kept."""

import traceback
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from raysim.api.encoded import Encoded, decoded
from raysim.api.messages import Broadcast, Reduction, Term, count_bytes
from raysim.api.method import ClientHalf, overrides
from raysim.config import Config
from raysim.engine.exact_sum import ExactSum
from raysim.engine.host import ClientHost
from raysim.engine.orders import Order, Reply
from raysim.estimate.dry_client import DryClient, DryModel, WorstCase
from raysim.federation.federation import Federation
from raysim.memory import Memory
from raysim.models.flat import FlatModel
from raysim.system.state import map_tensors

META = torch.device("meta")  # its tensors have a shape and no values
COUNTED = {"phases", "exchanges", "round", "lr", "trained", "resumes", "offered", "of_an_epoch"}  # no part of a kind


@dataclass
class EmptySum(ExactSum):
    """The sum of tensors like this one, whose values nobody adds up."""

    like: Tensor = field(default_factory=lambda: torch.zeros(0))

    def merge(self, other: ExactSum) -> None:
        """Stay as it is."""

    def mean(self) -> Tensor:
        """Return a tensor of that shape, float64."""
        return self.like.double()

    def total(self, count: int) -> Tensor:
        """Return a tensor of that shape, float64."""
        return self.mean()


@dataclass
class DryReply(Reply):
    """One client's reply, of which only shapes and bytes are read; `items` are the bytes of its terms by method."""

    items: Counter[str] = field(default_factory=Counter)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def take_term(self, client: int, name: str, term: Term, how: Reduction, share: float, where: str) -> None:
        """Count the term by its method too."""
        self.items[name.partition(".")[0]] += count_bytes(term)
        super().take_term(client, name, term, how, share, where)

    def take_records(self, client: int, records: Mapping[str, Tensor | float]) -> None:
        """Read no number."""

    def sent_by(self, clients: Sequence[int]) -> Reply:
        """Return the replies of these clients, each of which is the same as this one."""
        return replace(
            self,
            by_client={name: dict.fromkeys(clients, *terms.values()) for name, terms in self.by_client.items()},
            bytes_up=dict.fromkeys(clients, sum(self.bytes_up.values())),
            steps=len(clients) * self.steps,
        )

    def _add(self, name: str, grid: Any, made: Sequence[tuple[str, Tensor | Encoded]], weight: float) -> None:
        what, value = made[-1]
        self.sums.setdefault(name, EmptySum(grid, like=self._copy(decoded(value), what)))

    def _copy(self, value: Tensor, what: str) -> Tensor:
        return value.detach().to(self.device)


Kind = tuple[Hashable, ...]
"""What is equal for clients that differ in nothing that a method of raysim's looks at."""


class DryHost(ClientHost):
    """Has all clients of a run do all that an order says, but for the computing.

    `sent` counts the bytes of terms by method; `beginnings` the batches of an epoch over clients' first phases of a
    later stage; `kept` are the most bytes that one client's halves held from one order to the next; `unknown` are the
    methods whose client halves look at values, and are replaced by the worst case.

    Clients of one kind get as many samples at the same times, and have as much in their memories and halves. What
    raysim's own methods do depends on nothing else, so one client carries an order out for all of its kind, and for
    later orders like it. A method of the user's own may look at more: there each client is of a kind of its own, and
    carries every order out.
    """

    def __init__(self, config: Config, federation: Federation, device: torch.device) -> None:
        self.sent: Counter[str] = Counter()
        self.beginnings = 0
        self.kept = 0
        self.unknown: list[str] = []
        self._alike = not any(":" in name for name in config.methods)
        self._outcomes: dict[Hashable, tuple[DryReply, DryClient, Kind]] = {}
        super().__init__(config, federation, range(config.clients.count), device)
        # batches that are not of its stream depend on a client's number, memories by class on its labels
        self._apart = any(
            overrides(method.Client, "batches") or (method.memory is not None and method.memory.by_class)
            for method in self._methods.values()
        )
        streams = enumerate(federation.streams)
        self._kinds: list[Kind] = [
            (stream.outline, number if self._apart else -1) if self._alike else (number,) for number, stream in streams
        ]

    def lay_out(self, module: nn.Module) -> FlatModel:
        """Return a model that computes nothing."""
        return DryModel(module, self.federation.output_shape)

    def make_client(self, number: int) -> DryClient:
        """Return a client at its beginning; its memory fills as any other does, and asks for no labels."""
        kind = self._memory
        if kind is not None and kind.policy != "importance":
            kind = replace(kind, policy="sliding_window", keys={})
        memory = None if kind is None else Memory(kind)
        halves = {name: method.Client(name, method) for name, method in self._methods.items()}
        client = DryClient(number, self.federation.streams[number], self._samples, memory, self._shared, halves)
        client.known = self.federation.dataset.train.y if self.federation.opener is None else None
        return client

    def perform(self, order: Order, broadcasts: Sequence[Broadcast] = ()) -> Reply:
        """Carry out an order, once for all clients of a kind; their replies and states after it are shared."""
        self.receive(broadcasts)
        order = replace(order, message=self._move(order.message))
        said = (
            order.op,
            _describe(order.message),
            count_bytes({name: broadcast.value for name, broadcast in self.broadcasts.items()}),
        )
        alike: dict[Hashable, list[int]] = {}
        for number in order.clients:
            window = order.windows.get(number, order.phase.window)
            alike.setdefault((self._kinds[number], window, said), []).append(number)
        reply = Reply(order.cohort)
        for key, numbers in alike.items():
            part, after, kind = self._outcomes.get(key) or self._try(numbers[0], order, key)
            for number in numbers:
                self.clients[number], self._kinds[number] = after, kind
            if order.op == "train" and after.resumes:
                self.beginnings += len(numbers) * after.of_an_epoch
            self.sent.update({name: len(numbers) * nbytes for name, nbytes in part.items.items()})
            reply.merge(part.sent_by(numbers))
        return reply

    def _try(self, number: int, order: Order, key: Hashable) -> tuple[DryReply, DryClient, Kind]:
        """Return what an order comes to at a client: its reply, the client as it is then, and its kind.

        Where a half of the user's own fails, which looks at values, the worst case takes its place.
        """
        client, reply = self.clients[number], DryReply(order.cohort, device=self.model.device)
        if self._alike:  # others share it
            client, before = self.make_client(number), client.state()
            client.restore(map_tensors(lambda tensor: tensor.detach().clone(), before))
        self.model.load(self.broadcasts["model"].value)
        try:
            self.serve(client, order, reply)
        except Exception as error:
            half = _find_half(error)
            if half is None or half.name in self.unknown:
                raise
            self.unknown.append(half.name)
            for other in self.clients.values():
                other.halves[half.name] = WorstCase(half.name, half.method)
            return self._try(number, order, key)
        assert isinstance(client, DryClient)
        if not self._alike:
            return reply, client, self._kinds[number]
        state = client.state()
        self.kept = max(self.kept, count_bytes(state["halves"]))
        held = {name: value for name, value in state.items() if name not in COUNTED}
        own = number if self._apart else -1
        kind = (client.stream.outline, own, int(client.offered.sum()), _describe(held))
        self._outcomes[key] = reply, client, kind
        return reply, client, kind


def _describe(value: Any) -> str:
    """Return a value as text, with its tensors' shapes in place of their numbers."""
    return repr(map_tensors(lambda tensor: tensor.to(META), value))


def _find_half(error: BaseException) -> ClientHalf | None:
    """Return the client half in whose code an error was raised."""
    found = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((half for half in found if isinstance(half, ClientHalf)), None)
