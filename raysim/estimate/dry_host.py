"""A host of clients that compute nothing: what they would send is counted, what their halves hold is kept."""

import traceback
from collections import Counter
from collections.abc import Hashable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from raysim.api.messages import Reduction, Term, count_bytes
from raysim.api.method import ClientHalf
from raysim.config import Config
from raysim.engine.exact_sum import ExactSum
from raysim.engine.host import ClientHost
from raysim.engine.hosted_client import HostedClient
from raysim.engine.orders import Order, Reply
from raysim.estimate.dry_client import DryClient, DryModel, WorstCase
from raysim.federation.federation import Federation
from raysim.memory import Memory
from raysim.models.flat import FlatModel


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

    def sent_by(self, client: int) -> Reply:
        """Return the same reply of another client."""
        return replace(
            self,
            by_client={name: dict.fromkeys([client], *terms.values()) for name, terms in self.by_client.items()},
            bytes_up=dict.fromkeys([client], sum(self.bytes_up.values())),
        )

    def _add(self, name: str, grid: Any, value: Tensor, weight: float, what: str) -> None:
        self.sums.setdefault(name, EmptySum(grid, like=self._copy(value, what)))

    def _copy(self, value: Tensor, what: str) -> Tensor:
        return value.detach().to(self.device)


Outcome = tuple[DryReply, Mapping[str, Any], bool]
"""A client's reply, the states of its halves after it, and whether it went through its local loop."""


class DryHost(ClientHost):
    """Has all clients of a run do all that an order says, but for the computing.

    `sent` counts the bytes of terms by method; `beginnings` the batches of an epoch over clients' first phases of a
    later stage; `kept` are the most bytes that one client's halves held from one order to the next; `unknown` are the
    methods whose client halves look at values, and are replaced by the worst case.

    A phase or exchange in which a method takes several gradients by itself is taken to depend on sizes only, and done
    once for all clients and rounds that have the same ones.
    """

    def __init__(self, config: Config, federation: Federation, device: torch.device) -> None:
        self.sent: Counter[str] = Counter()
        self.beginnings = 0
        self.kept = 0
        self.unknown: list[str] = []
        self._outcomes: dict[Hashable, Outcome] = {}
        super().__init__(config, federation, range(config.clients.count), device)

    def lay_out(self, module: nn.Module) -> FlatModel:
        """Return a model that computes nothing."""
        return DryModel(module, self.federation.classes)

    def make_client(self, number: int) -> HostedClient:
        """Return a client at its beginning; its memory fills as any other does, and asks for no labels."""
        kind = self._memory
        if kind is not None and kind.policy != "importance":
            kind = replace(kind, policy="sliding_window")
        memory = None if kind is None else Memory(kind)
        halves = {name: method.Client(name, method) for name, method in self._methods.items()}
        return DryClient(number, self.federation.streams[number], self._samples, memory, self._shared, halves)

    def serve(self, client: HostedClient, order: Order, reply: Reply) -> None:
        """See ClientHost; where a half fails, which looks at values, the worst case takes its place."""
        try:
            super().serve(client, order, reply)
        except Exception as error:
            half = _find_half(error)
            if half is None or half.name in self.unknown:
                raise
            self.unknown.append(half.name)
            self._outcomes.clear()
            for other in self.clients.values():
                other.halves[half.name] = WorstCase(half.name, half.knobs)
            self.serve(client, order, reply)

    def carry_out(self, client: HostedClient, order: Order, reply: Reply) -> None:
        """See ClientHost."""
        assert isinstance(client, DryClient)
        assert isinstance(self.model, DryModel)
        key = self._sizes(client, order)
        if key in self._outcomes:
            part, states, loops = self._outcomes[key]
            if loops:
                client.local_training()
            for name, state in deepcopy(states).items():
                client.halves[name].restore(state)
        else:
            gradients, before = self.model.gradients, client.loops
            part = DryReply(order.cohort, device=self.model.device)
            super().carry_out(client, order, part)
            states = {name: half.state() for name, half in client.halves.items()}
            self.kept = max(self.kept, count_bytes(states))
            if self.model.gradients > gradients + 1:
                self._outcomes[key] = part, deepcopy(states), client.loops > before
        if order.op == "train" and client.resumes:
            self.beginnings += part.steps // client.local_epochs
        self.sent.update(part.items)
        reply.merge(part.sent_by(client.id))

    def _sizes(self, client: DryClient, order: Order) -> Hashable:
        """Return all that a phase or exchange may depend on, but for values: a tensor without them prints its shape."""
        samples = len(client.arrived), len(client.finished), client.stream.end(client.window), len(client.memory or ())
        states = [half.state() for half in client.halves.values()]
        return order.op, samples, repr((order.mail, states)), count_bytes({n: p.value for n, p in self.posts.items()})


def _find_half(error: BaseException) -> ClientHalf | None:
    """Return the client half in whose code an error was raised."""
    found = (frame.f_locals.get("self") for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((half for half in found if isinstance(half, ClientHalf)), None)
