"""A run without its training: the server does all that it would do, with clients that know only how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from raysim.api.messages import Post
from raysim.api.method import Method, overrides
from raysim.config import Config
from raysim.engine.compatibility import make_methods
from raysim.engine.events import RoundDone
from raysim.engine.exact_sum import WIDE, ExactSum
from raysim.engine.exchange import Traffic
from raysim.engine.orders import Order, Reply
from raysim.engine.simulation import Simulation
from raysim.estimate.dry_client import Understudy, role_in
from raysim.evaluation.scoring import Chunk, Scores, zero_scores
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel
from raysim.system.errors import convert_to_run_error

NOWHERE = torch.device("meta")  # tensors that have a shape and no values
MODEL = "model"


@dataclass(frozen=True)
class Rehearsal:
    """What a run would come to, all clients together.

    `up` and `down` are bytes by method, "model" being the model and its updates. `beginnings` counts the batches of an
    epoch over clients' first phases of a later stage, `evaluations` those of all test sets. `unsaid_terms` are the
    methods that do not say what their clients send, so that `up` is an upper bound; `unsaid_epochs` those that do not
    say what an epoch runs over, so that `steps` is a guess.
    """

    rounds: int
    updates: int
    steps: int
    beginnings: int
    evaluations: int
    up: Mapping[str, int]
    down: Mapping[str, int]
    unsaid_terms: Sequence[str]
    unsaid_epochs: Sequence[str]

    @property
    def bytes_up(self) -> int:
        """Bytes from the clients to the server."""
        return sum(self.up.values())

    @property
    def bytes_down(self) -> int:
        """Bytes from the server to the clients."""
        return sum(self.down.values())


def rehearse(config: Config, federation: Federation, model: FlatModel) -> Rehearsal:
    """Go through all rounds of a run, with its real server, schedule and ledger.

    Who takes part when hangs on nothing that is computed, and methods' server halves see vectors without values; what a
    client sends is what its method says (Method.sends).

    Raises:
        RunError: a server half looks at values, so that nobody can know before.
    """
    rounds = federation.availability.rounds
    never = config.checkpoint.model_copy(update={"every_rounds": rounds})
    cast = _Cast(config, federation, model)
    simulation = Simulation(config.model_copy(update={"checkpoint": never}), federation, cast)
    server, traffic = simulation.server, _Itemised(make_methods(config))
    simulation.exchange.traffic = traffic
    server.parameters, server.buffers, server.integers = (
        part.to(NOWHERE) for part in (server.parameters, server.buffers, server.integers)
    )
    vars(server)["record"] = _unheard  # a record of what has no value
    updates = 0
    with convert_to_run_error("what is sent depends on what is computed, which nobody knows before"):
        for event in simulation.events():
            if isinstance(event, RoundDone):
                updates += len(event.cohort)
                if event.round == rounds:
                    break  # the final model is nobody's
    methods = make_methods(config).items()
    return Rehearsal(
        rounds=server.round,
        updates=updates,
        steps=simulation.exchange.steps,
        beginnings=cast.beginnings,
        evaluations=cast.evaluations,
        up=cast.sent,
        down=traffic.items,
        unsaid_terms=[name for name, m in methods if m.replies and type(m).sends is Method.sends],
        unsaid_epochs=[name for name, m in methods if overrides(m.Client, "samples") and type(m).epoch is Method.epoch],
    )


def _unheard(name: str, value: object) -> None:
    pass


class _Itemised(Traffic):
    """Counts by method too: a post carries its method's name, and mail to a training phase is a mapping from them."""

    def __init__(self, methods: Iterable[str]) -> None:
        super().__init__()
        self.items: Counter[str] = Counter()
        self._methods = set(methods)

    def count_sent(self, clients: Sequence[int], mail: Any, posts: Iterable[Post]) -> None:
        """Count an order on its way to these clients, item by item."""
        letters = mail if isinstance(mail, Mapping) and mail.keys() <= self._methods else {"other": mail}
        for name, letter in letters.items():
            self._count(name, clients, letter, ())
        for post in posts:
            self._count(post.name.partition(".")[0], clients, None, [post])

    def _count(self, name: str, clients: Sequence[int], mail: Any, posts: Sequence[Post]) -> None:
        before = self.down
        super().count_sent(clients, mail, posts)
        if self.down > before:
            self.items[name] += self.down - before


@dataclass
class _Shape(ExactSum):
    """The sum of vectors that nobody computed: it has their length."""

    numbers: int = field(default=0)

    def merge(self, other: ExactSum) -> None:
        """Stay as it is."""

    def mean(self) -> Tensor:
        """Return a vector without values."""
        return torch.empty(self.numbers, dtype=torch.float64, device=NOWHERE)

    def total(self, count: int) -> Tensor:
        """Return a vector without values."""
        return self.mean()


class _Cast:
    """A runner whose clients send what they would send, and compute nothing.

    `sent` counts bytes by method; `beginnings` and `evaluations` see Rehearsal.
    """

    def __init__(self, config: Config, federation: Federation, model: FlatModel) -> None:
        self.sent: Counter[str] = Counter()
        self.beginnings = 0
        self.evaluations = 0
        self._model = model
        self._federation = federation
        role = role_in(config, model)
        self._methods = role.methods
        self._senders = [name for name, method in role.methods.items() if method.replies]
        self._clients = [Understudy(stream, role) for stream in federation.streams]

    def begin(self, order: Order, posts: Sequence[Post]) -> Reply:
        """Have every client of the order do it, at once."""
        reply = Reply(order.cohort)
        for number in order.clients:
            window = order.windows.get(number, order.phase.window)
            if order.op == "train":
                self._train(number, window, reply)
            else:
                name, _, op = order.op.partition(".")
                self._clients[number].take_up(window)
                self._take_terms(number, name, op, reply)
        return reply

    def finish(self, ticket: Reply) -> Reply:
        """Return what `begin` came to."""
        return ticket

    def evaluate(self, parts: Sequence[Chunk], posts: Sequence[Post]) -> Scores:
        """Find no answer right."""
        self.evaluations += 1
        return zero_scores(self._federation)

    def snapshot(self) -> Sequence[Any]:
        """Return nothing: the clients have nothing to keep."""
        return ()

    def _train(self, number: int, window: int, reply: Reply) -> None:
        client, model = self._clients[number], self._model
        client.enter(window)
        for name in self._senders:
            self._take_terms(number, name, "start", reply)
        batches = client.train()
        reply.steps += batches * client.role.local_epochs
        self.beginnings += batches if client.begins and client.finished else 0
        for name in self._senders:
            self._take_terms(number, name, "finish", reply)
        for name, vector in (("parameters", model.parameters), ("buffers", model.buffers)):
            reply.sums.setdefault(name, _Shape(WIDE, numbers=len(vector)))
        reply.integers = reply.integers or (number, model.integers.to(NOWHERE))
        self._count(number, MODEL, model.parameters.nbytes + model.buffers.nbytes + model.integers.nbytes, reply)

    def _take_terms(self, number: int, name: str, hook: str, reply: Reply) -> None:
        method = self._methods[name]
        for term, numbers in method.sends(self._clients[number], hook).items():
            full = f"{name}.{term}"
            if method.replies[term] == "by_client":
                value = torch.empty(numbers, dtype=self._model.dtype, device=NOWHERE)
                reply.by_client.setdefault(full, {})[number] = value
            else:
                reply.sums.setdefault(full, _Shape(WIDE, numbers=numbers))
            self._count(number, name, numbers * self._model.dtype.itemsize, reply)

    def _count(self, number: int, name: str, nbytes: int, reply: Reply) -> None:
        self.sent[name] += nbytes
        reply.bytes_up[number] = reply.bytes_up.get(number, 0) + nbytes
