"""Messages between the server and its clients: sending orders, receiving replies, driving plans, counting bytes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, ClassVar

import numpy as np
import torch

from raysim.api.messages import Broadcast, Delta, count_bytes
from raysim.api.method import Method, Plan, ServerHalf, halves_with_hook, overrides
from raysim.api.server import Server
from raysim.config import Config
from raysim.engine.compatibility import make_methods, name_methods
from raysim.engine.hook_checks import check_announced, check_ask, check_delta, place_of_hook
from raysim.engine.orders import Order, Phase, Reply
from raysim.engine.rates import learning_rate
from raysim.engine.runner import Runner
from raysim.federation.choice import check_chosen
from raysim.system.custom_code import is_own
from raysim.system.errors import Diverged
from raysim.system.seeding import guard_globals
from raysim.system.state import Stateful


class Traffic(Stateful):
    """Counter of the bytes of tensors that are sent and received, all clients together.

    A broadcast is counted at a client's first contact with its version, a message each time it is sent.
    `down_by_method` are the bytes since this process began, those of the model under "model".
    """

    transient: ClassVar = frozenset({"down_by_method"})

    def __init__(self) -> None:
        self.up = 0
        self.down = 0
        self.down_by_method: Counter[str] = Counter()
        self._held: dict[int, dict[str, int]] = {}
        self._by_client: dict[int, int] = {}

    def count_sent(self, clients: Sequence[int], message: Mapping[str, Any], broadcasts: Iterable[Broadcast]) -> None:
        """Count an order that is sent to these clients: messages by method, and broadcasts, named by method."""
        sizes = [
            (broadcast, broadcast.name.partition(".")[0], count_bytes(broadcast.value)) for broadcast in broadcasts
        ]
        letters = [(name, nbytes) for name, letter in message.items() if (nbytes := count_bytes(letter))]
        for client in clients:
            held, sent = self._held.setdefault(client, {}), list(letters)
            for broadcast, method, size in sizes:
                if held.get(broadcast.name) != broadcast.version:
                    held[broadcast.name] = broadcast.version
                    sent.append((method, size))
            total = 0
            for method, size in sent:
                self.down_by_method[method] += size
                total += size
            self.down += total
            self._by_client[client] = self._by_client.get(client, 0) + total

    def count_received(self, bytes_up: Mapping[int, int]) -> None:
        """Count the replies."""
        for client, nbytes in bytes_up.items():
            self.up += nbytes
            self._by_client[client] = self._by_client.get(client, 0) + nbytes

    def take_by_client(self) -> Mapping[int, int]:
        """Return the bytes of each client, up and down together, since the last call."""
        taken, self._by_client = self._by_client, {}
        return taken


def guard_hook(half: ServerHalf, hook: str) -> AbstractContextManager[None]:
    """Refuse a server half that draws in this hook outside its own random streams. Raises RunError."""
    return guard_globals(f"{half.name}: {hook} of its server half", "server")


class Exchange(Stateful):
    """The exchange of messages under both kinds of schedule, between the methods' server halves and the clients."""

    transient: ClassVar = frozenset({"config", "server", "runner", "_rate"})

    def __init__(self, config: Config, server: Server, runner: Runner) -> None:
        self.config = config
        self.server = server
        self.runner = runner
        methods = make_methods(config)
        server.local_bytes = sum(method.local_bytes(server.network) for method in methods.values())
        self.halves = {name: method.Server(name, method) for name, method in methods.items()}
        self.traffic = Traffic()
        self.steps = 0
        self._rate = 0, 0.0

    def halves_with(self, hook: str) -> list[ServerHalf]:
        """Return the server halves that override this hook, in the listed order."""
        return halves_with_hook(self.halves.values(), hook)

    def select(self) -> Sequence[int]:
        """Return the clients that are to take part in this round, drawn with the sampler or chosen by a method."""
        for half in self.halves_with("select"):
            with guard_hook(half, "select"):
                chosen = half.select(self.server)
            return check_chosen(chosen, self.server.present, f"methods.{half.name}", type(half).select)
        with guard_globals("participation.sampler", "server"):
            return self.server.sample()

    def gather(self, chosen: Sequence[int]) -> None:
        """Make these clients, ascending, the cohort, with the shares that `aggregation.weights` gives them."""
        server = self.server
        server.cohort = tuple(chosen)
        server.shares = server.shares_of(server.cohort)

    def announce(self) -> tuple[dict[str, Any], list[Broadcast]]:
        """Return what server halves send at the start of local training: messages by method, and broadcasts."""
        said = {}
        for half in self.halves_with("announce"):
            with guard_hook(half, "announce"):
                said[half.name] = check_announced(half, half.announce(self.server))
        return {name: message for name, (message, _) in said.items()}, [
            broadcast for _, broadcasts in said.values() for broadcast in broadcasts
        ]

    def expected_bytes(self) -> int:
        """Return the bytes that virtual time assumes of a phase, up and down: the update, and the methods' means.

        Each is as long as the model, and a client receives as many vectors as it sends. Terms that are kept by client
        are small and not counted. What a vector takes as a method encodes it is tried on one of zeros.
        """
        methods: dict[str, Method] = {half.name: half.method for half in self.halves.values()}
        replies = [(f"{name}.{term}", how) for name, of in methods.items() for term, how in of.replies.items()]
        vectors = ["update", *(name for name, how in replies if how != "by_client")]
        saved, zeros = 0, torch.zeros_like(self.server.parameters)
        for name, method in methods.items():
            if overrides(method.Client, "encode"):
                half = method.Client(name, method)
                sent = (half.encode(vector, zeros, np.random.default_rng(0)) for vector in vectors)
                saved = sum(zeros.nbytes - value.nbytes for value in sent)
        whole: int = self.server.model().value.nbytes
        return 2 * len(vectors) * whole - saved

    def count_arrived(self, clients: Iterable[tuple[int, int]]) -> int | None:
        """Return how many samples had reached these clients, each by its round; None if updates count equally."""
        uniform = self.config.aggregation.weights == "uniform"
        return None if uniform else sum(self.server.arrived(client, round) for client, round in clients)

    def order(
        self,
        op: str,
        clients: Sequence[int],
        message: Any,
        shares: Mapping[int, float],
        *,
        cohort: int | None = None,
        arrived: int | None = None,
        discount: float = 1.0,
        update: int | None = None,
        later: tuple[int, ...] = (),
    ) -> Order:
        """Return the order to do `op` now, by default for clients that make up a whole cohort. See Order.

        Raises:
            RunError: one of the clients has no data now.
        """
        server = self.server
        windows = {client: server.window(client) for client in clients}
        usual = next(iter(windows.values()), 0)
        if self._rate[0] != server.round:
            self._rate = server.round, learning_rate(self.config.training, server.progress)
        return Order(
            op=op,
            clients=tuple(clients),
            message=message,
            shares=shares,
            cohort=len(clients) if cohort is None else cohort,
            phase=Phase(server.round, usual, self._rate[1]),
            windows={client: window for client, window in windows.items() if window != usual},
            arrived=arrived,
            discount=discount,
            update=update,
            later=later,
        )

    def begin(self, order: Order, broadcasts: Sequence[Broadcast]) -> Any:
        """Send an order to its clients, with the current model; return the ticket."""
        everything = [self.server.model(), *broadcasts]
        message = order.message if order.op == "train" else {order.op.partition(".")[0]: order.message}
        self.traffic.count_sent(order.clients, message, everything)
        return self.runner.begin(order, everything)

    def receive(self, ticket: Any) -> Reply:
        """Wait for an order's reply, and count it."""
        reply = self.wait_for(ticket)
        self.traffic.count_received(reply.bytes_up)
        self.steps += reply.steps
        return reply

    def wait_for(self, ticket: Any) -> Reply:
        """Wait for an order's reply without counting it; a reply is also accepted as a ticket."""
        return ticket if isinstance(ticket, Reply) else self.runner.finish(ticket)

    def update_model(self, reply: Reply, delta: Delta) -> None:
        """Update the model by the clients' mean delta, as scaled by the schedule and changed by the methods."""
        server, found = self.server, [("", delta)]
        for half in self.halves_with("update"):
            terms = reply.of(half.name, half.method.replies, server.parameters.dtype)
            with guard_hook(half, "update"):
                delta = check_delta(half, "update", half.update(server, delta, terms), delta)
            found.append((place_of_hook(type(half), "update") if is_own(type(half)) else "", delta))
        assert reply.integers is not None
        server.parameters = server.parameters + delta.parameters
        server.buffers = server.buffers + delta.buffers
        server.integers = reply.integers[1].to(torch.int64)
        server.version += 1
        self._check_model(found)

    def drive_plans(self, hook: str, clients: Sequence[int]) -> None:
        """Carry out the plans that the server halves make in this hook, one after the other."""
        for half in self.halves_with(hook):
            with guard_hook(half, hook), closing(getattr(half, hook)(self.server)) as plan:
                self._drive(half, hook, plan, clients)

    def _check_model(self, deltas: Sequence[tuple[str, Delta]]) -> None:
        """Refuse a model that is not finite before it is sent to a client or kept in a checkpoint. Raises Diverged.

        `deltas` are what was to be added, hook by hook, each with the place of the hook if it is the user's own.
        """
        server = self.server
        for what, part in (("parameters", server.parameters), ("buffers", server.buffers)):
            if not part.is_meta and not bool(part.isfinite().all()):  # meta tensors, in a dry run, have no values
                found = float(part.abs().max())
                hooks = (place for place, delta in deltas if not bool(getattr(delta, what).isfinite().all()))
                by = "".join(f" returned by {place}" for place in [*hooks][:1] if place)
                raise Diverged(
                    f"the server diverged in round {server.round} ({name_methods(self.halves)}), the {what} of its new "
                    f"model{by}: found {found:g}, allowed: finite; smaller rates of its methods, or a smaller "
                    "training.optimizer.lr, may help"
                )

    def _drive(self, half: ServerHalf, hook: str, plan: Plan, clients: Sequence[int]) -> None:
        answer: Mapping[str, Any] | None = None
        while True:
            try:
                ask = check_ask(half, hook, next(plan) if answer is None else plan.send(answer))
            except StopIteration:
                return
            server = self.server
            to = sorted(clients if ask.to == "cohort" else server.present if ask.to == "everyone" else ask.to)
            order = self.order(f"{half.name}.{ask.op}", to, ask.message, server.shares_of(to))
            reply = self.receive(self.begin(order, ask.broadcasts))
            server.records |= reply.means()
            answer = reply.of(half.name, half.method.replies, server.parameters.dtype)
