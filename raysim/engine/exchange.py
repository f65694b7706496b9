"""Messages between the server and its clients: orders out, replies in, plans driven, bytes counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from raysim.api.messages import Ask, Delta, Post
from raysim.api.method import Method, Plan, ServerHalf, halves_with_hook
from raysim.api.server import Server
from raysim.config import Config
from raysim.engine.compatibility import make_methods, name_methods
from raysim.engine.learning_rate import learning_rate
from raysim.engine.order import Order, Phase
from raysim.engine.reply import Reply
from raysim.engine.runner import Runner
from raysim.engine.traffic import Traffic
from raysim.system.errors import Diverged, RunError
from raysim.system.state import Kept


class Exchange(Kept):
    """What both kinds of schedule do: ask the methods' server halves, and carry what they say to the clients."""

    made_again: ClassVar = frozenset({"config", "server", "runner"})

    def __init__(self, config: Config, server: Server, runner: Runner) -> None:
        self.config = config
        self.server = server
        self.runner = runner
        self.halves = {name: method.Server(name, method) for name, method in make_methods(config).items()}
        self.traffic = Traffic()
        self.steps = 0

    def halves_with(self, hook: str) -> list[ServerHalf]:
        """Return the server halves that bring this hook, in the listed order."""
        return halves_with_hook(self.halves.values(), hook)

    def gather(self, chosen: Sequence[int]) -> None:
        """Make these clients the cohort, with the shares that `aggregation.weights` gives them.

        Raises:
            RunError: one of them has no data now.
        """
        server = self.server
        absent = sorted(set(chosen) - set(server.present))
        if absent:
            raise RunError(f"select chose the clients {absent}, allowed: those with data now, server.present")
        server.cohort = tuple(sorted(set(chosen)))
        server.shares = server.shares_of(server.cohort)

    def announce(self) -> tuple[dict[str, Any], list[Post]]:
        """Return what the methods' server halves say at the start of a training phase: mail by method, and posts."""
        said = {half.name: half.announce(self.server) for half in self.halves_with("announce")}
        return {name: mail for name, (mail, _) in said.items()}, [post for _, posts in said.values() for post in posts]

    def vectors(self) -> int:
        """Return how many vectors as long as the model's a client sends in a phase: its delta, and its methods' means.

        Virtual time takes it that as many come down to it. Terms that are kept by client are small, and left out.
        """
        methods: list[Method] = [half.knobs for half in self.halves.values()]
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

    def receive(self, ticket: Any) -> Reply:
        """Wait for an order's reply, and count it."""
        reply = self.wait_for(ticket)
        self.traffic.count_received(reply.bytes_up)
        self.steps += reply.steps
        return reply

    def wait_for(self, ticket: Any) -> Reply:
        """Wait for an order's reply, and leave it uncounted; a reply is a ticket too."""
        return ticket if isinstance(ticket, Reply) else self.runner.finish(ticket)

    def update_model(self, reply: Reply, mix: Callable[[Delta], Delta]) -> None:
        """Make the new model of the clients' mean delta, as `mix` scales it and the methods change it."""
        server = self.server
        delta = mix(reply.delta(server.parameters.dtype))
        for half in self.halves_with("update"):
            delta = half.update(server, delta, reply.of(half.name, half.knobs.replies, server.parameters.dtype))
        assert reply.integers is not None
        self._apply(delta, reply.integers[1])
        self._check_model()

    def drive_plans(self, hook: str, clients: Sequence[int]) -> None:
        """Drive the plans that the server halves make at this point, one after the other."""
        for half in self.halves_with(hook):
            self._drive(half, getattr(half, hook)(self.server), clients)

    def _apply(self, delta: Delta, integers: Tensor) -> None:
        """Add a delta to the model: a new version."""
        server = self.server
        server.parameters = server.parameters + delta.parameters
        server.buffers = server.buffers + delta.buffers
        server.integers = integers.to(torch.int64)
        server.version += 1

    def _check_model(self) -> None:
        """Refuse a model that is not finite, before anyone is sent it or a checkpoint keeps it. Raises Diverged."""
        server = self.server
        for what, part in (("parameters", server.parameters), ("buffers", server.buffers)):
            if not part.is_meta and not bool(part.isfinite().all()):  # without values: a dry run
                found = float(part.abs().max())
                raise Diverged(
                    f"the server diverged in round {server.round} ({name_methods(self.halves)}), the {what} of its new "
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
            reply = self.receive(self._begin(order, ask.posts))
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
            phase=Phase(server.round, usual, self._learning_rate()),
            windows={client: window for client, window in windows.items() if window != usual},
        )

    def _begin(self, order: Order, posts: Sequence[Post]) -> Any:
        everything = [self.server.model(), *posts]
        mail = order.mail if order.op == "train" else {order.op.partition(".")[0]: order.mail}
        self.traffic.count_sent(order.clients, mail, everything)
        return self.runner.begin(order, everything)

    def _learning_rate(self) -> float:
        server = self.server
        return learning_rate(self.config.training, server.round, server.task, server.task_began)
