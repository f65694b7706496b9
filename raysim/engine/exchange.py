"""Messages between the server and its clients: orders out, replies in, plans driven, bytes counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from raysim.api.client import Phase
from raysim.api.messages import Ask, Delta, Post
from raysim.api.method import Method, Plan, ServerHalf, names_of, overrides
from raysim.api.server import Server
from raysim.engine.host import Order
from raysim.engine.reply import Reply
from raysim.engine.traffic import Ledger
from raysim.evaluation.scoring import Chunk, Scores
from raysim.system.errors import Diverged


class Runner(Protocol):
    """Carries out orders on hosts: in this process, or on Ray.

    A host does what it is told in the order in which it was told, whoever waits for what.
    """

    def begin(self, order: Order, posts: Sequence[Post]) -> Any:
        """Have every client of the order do it; return a ticket, perhaps before they have."""

    def finish(self, ticket: Any) -> Reply:
        """Wait for an order's end, and return the merged reply."""

    def evaluate(self, parts: Sequence[Chunk], posts: Sequence[Post]) -> Scores:
        """Share the parts out among the hosts, and return the merged counts."""

    def snapshot(self) -> Sequence[Any]:
        """Return every host's records of its clients, or where they are. Nothing may be under way."""


class Exchange:
    """What both kinds of schedule do: ask the methods' server halves, and carry what they say to the clients."""

    def __init__(self, server: Server, runner: Runner) -> None:
        self.server = server
        self.runner = runner
        self.ledger = Ledger()
        self.steps = 0

    def halves(self, hook: str) -> list[ServerHalf]:
        """Return the server halves that bring this hook, in the listed order."""
        return [half for half in self.server.halves.values() if overrides(type(half), hook)]

    def announced(self) -> tuple[dict[str, Any], list[Post]]:
        """Return what the methods' server halves say at the start of a training phase: mail by method, and posts."""
        said = {half.name: half.announce(self.server) for half in self.halves("announce")}
        return {name: mail for name, (mail, _) in said.items()}, [post for _, posts in said.values() for post in posts]

    def vectors(self) -> int:
        """Return how many vectors as long as the model's a client sends in a phase: its delta, and its methods' means.

        Virtual time takes it that as many come down to it. Terms that are kept by client are small, and left out.
        """
        methods: list[Method] = [half.knobs for half in self.server.halves.values()]
        return 1 + sum(how != "by_client" for method in methods for how in method.replies.values())

    def train(
        self,
        clients: Sequence[int],
        mail: Any,
        posts: Sequence[Post],
        shares: Mapping[int, float],
        *,
        cohort: int,
        arrived: int | None,
        discount: float = 1.0,
    ) -> Any:
        """Have these clients, of a cohort of that size, train on the model of now; return the ticket. See Order."""
        order = replace(self._order("train", clients, mail, shares), cohort=cohort, arrived=arrived, discount=discount)
        return self._begin(order, posts)

    def received(self, ticket: Any) -> Reply:
        """Wait for an order's reply, and count it."""
        reply = self.settled(ticket)
        self.ledger.receive(reply.bytes_up)
        self.steps += reply.steps
        return reply

    def settled(self, ticket: Any) -> Reply:
        """Wait for an order's reply, and leave it uncounted; a reply is a ticket too."""
        return ticket if isinstance(ticket, Reply) else self.runner.finish(ticket)

    def updated(self, reply: Reply, mixed: Callable[[Delta], Delta]) -> None:
        """Make the new model of the clients' mean delta, as `mixed` scales it and the methods change it."""
        server = self.server
        delta = mixed(reply.delta(server.parameters.dtype))
        for half in self.halves("update"):
            delta = half.update(server, delta, reply.of(half.name, half.knobs.replies, server.parameters.dtype))
        assert reply.integers is not None
        server.apply(delta, reply.integers[1])
        self._check_model()

    def plans(self, hook: str, clients: Sequence[int]) -> None:
        """Drive the plans that the server halves make at this point, one after the other."""
        for half in self.halves(hook):
            self._drive(half, getattr(half, hook)(self.server), clients)

    def _check_model(self) -> None:
        """Refuse a model that is not finite, before anyone is sent it or a checkpoint keeps it. Raises Diverged."""
        server = self.server
        for what, part in (("parameters", server.parameters), ("buffers", server.buffers)):
            if not part.is_meta and not bool(part.isfinite().all()):  # without values: a rehearsal
                found = float(part.abs().max())
                raise Diverged(
                    f"the server diverged in round {server.round} ({names_of(server.halves)}), the {what} of its new "
                    f"model: found {found:g}, allowed: finite; smaller rates of its methods, or a smaller "
                    "training.optimizer.lr, may help"
                )

    def _drive(self, half: ServerHalf, plan: Plan, clients: Sequence[int]) -> None:
        answer: Mapping[str, Any] | None = None
        while True:
            try:
                ask: Ask = next(plan) if answer is None else plan.send(answer)
            except StopIteration:
                return
            server = self.server
            to = sorted(clients if ask.to == "cohort" else server.present if ask.to == "everyone" else ask.to)
            order = self._order(f"{half.name}.{ask.op}", to, ask.mail, server.shares_of(to))
            reply = self.received(self._begin(order, ask.posts))
            server.records |= reply.means()
            answer = reply.of(half.name, half.knobs.replies, server.parameters.dtype)

    def _order(self, op: str, clients: Sequence[int], mail: Any, shares: Mapping[int, float]) -> Order:
        server = self.server
        windows = {client: server.window(client) for client in clients}
        usual = next(iter(windows.values()), 0)
        return Order(
            op=op,
            clients=tuple(clients),
            mail=mail,
            shares=shares,
            cohort=len(clients),
            phase=Phase(server.round, usual, server.lr),
            windows={client: window for client, window in windows.items() if window != usual},
        )

    def _begin(self, order: Order, posts: Sequence[Post]) -> Any:
        everything = [self.server.model(), *posts]
        self.ledger.send(order.clients, order.mail, everything)
        return self.runner.begin(order, everything)
