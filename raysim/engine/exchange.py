"""Messages between the server and its clients: sending orders, receiving replies, driving plans, counting bytes."""

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch

from raysim.api.forgetting import ForgettingServer
from raysim.api.messages import Broadcast, Delta, Request, count_bytes
from raysim.api.method import Method, Plan, ServerHalf, halves_with_hook
from raysim.config import Config
from raysim.engine.compatibility import make_methods, unsent_bytes
from raysim.engine.growing_state import GrowingState
from raysim.engine.hook_calls import HookCalls
from raysim.engine.hook_checks import (
    check_request,
    name_methods,
    place_of_hook,
    wrong_result,
)
from raysim.engine.hosted_server import HostedServer
from raysim.engine.orders import (
    Call,
    Collect,
    LeaveOut,
    LeftOut,
    Operation,
    Order,
    OwnMessages,
    Phase,
    RoundInfo,
    Train,
)
from raysim.engine.profile import Profile
from raysim.engine.rates import learning_rate
from raysim.engine.replies import Reply
from raysim.engine.runner import Runner
from raysim.federation.choice import check_chosen
from raysim.federation.forgetting import ForgetRequest
from raysim.system.custom_code import is_custom
from raysim.system.errors import Diverged
from raysim.system.seeding import guard_globals
from raysim.system.shared_memory import first_difference, nodes, separate
from raysim.system.state import Stateful

WAITING = "server: waiting for clients"


class Traffic(Stateful):
    """Bytes of the tensors that the methods send, over all clients.

    A message counts every time. A broadcast counts once per client and version.
    """

    transient: ClassVar = frozenset({"down_by_method"})

    def __init__(self) -> None:
        self.up = 0  # bytes from clients to the server
        self.down = 0  # bytes from the server to clients
        self.down_by_method: Counter[str] = Counter()  # bytes since this process started; "model" is one of the keys
        self._versions: dict[int, dict[str, int]] = {}  # client -> broadcast -> the version that the client has
        self._by_client: dict[int, int] = {}  # client -> bytes in both directions since the last take_by_client

    def count_sent(self, clients: Sequence[int], message: Mapping[str, Any], broadcasts: Iterable[Broadcast]) -> None:
        """Count the bytes sent to each client: messages by method, and broadcasts that the client does not have yet."""
        broadcast_sizes = [(each, each.name.partition(".")[0], count_bytes(each.value)) for each in broadcasts]
        message_sizes = [(method, nbytes) for method, part in message.items() if (nbytes := count_bytes(part))]
        for client in clients:
            versions, sent = self._versions.setdefault(client, {}), list(message_sizes)
            for broadcast, method, size in broadcast_sizes:
                if versions.get(broadcast.name) != broadcast.version:
                    versions[broadcast.name] = int(broadcast.version)  # NumPy's are in no checkpoint
                    sent.append((method, size))
            total = 0
            for method, size in sent:
                self.down_by_method[method] += size
                total += size
            self.down += total
            self._by_client[client] = self._by_client.get(client, 0) + total

    def count_received(self, bytes_up: Mapping[int, int]) -> None:
        """Count the bytes that each client sent."""
        for client, nbytes in bytes_up.items():
            self.up += nbytes
            self._by_client[client] = self._by_client.get(client, 0) + nbytes

    def take_by_client(self) -> Mapping[int, int]:
        """Return each client's bytes, in both directions, since the last call."""
        taken, self._by_client = self._by_client, {}
        return taken


def guard_hook(half: ServerHalf, hook: str) -> AbstractContextManager[None]:
    """Raise RunError if the hook uses a global random generator (torch, NumPy or random)."""
    return guard_globals(f"{half.name}: {hook} of its server half", "server")


def expected_bytes(server: HostedServer, methods: Mapping[str, Method]) -> int:
    """Return the bytes that virtual time assumes for one client's round, in both directions.

    A client sends its update and one vector [P] for each term that is averaged or summed. It receives as many vectors.
    Terms with the reductions "total" and "by_client" have other sizes and are not counted. Encoded sizes are estimated
    by encoding zeros. Nothing is counted if the methods do not send the model.
    """
    terms = [(f"{name}.{term}", how) for name, method in methods.items() for term, how in method.replies.items()]
    vectors = ["update", *(name for name, how in terms if how in ("mean", "sum"))]
    model_bytes: int = server.broadcast().value.nbytes
    both_ways = 2 * len(vectors) * model_bytes
    halves = halves_with_hook((method.Client(name, method) for name, method in methods.items()), "encode")
    if not halves:
        return both_ways
    zeros = torch.zeros_like(server.parameters)
    encoded = (halves[0].encode(vector, zeros, np.random.default_rng(0)) for vector in vectors)
    return both_ways - sum(zeros.nbytes - value.nbytes for value in encoded)


class Exchange(Stateful):
    """Sends messages between the methods' server halves and the clients, under both kinds of schedule."""

    transient: ClassVar = frozenset({"config", "server", "runner", "calls", "_rate", "_sent", "_growing", "_warnings"})

    def __init__(self, config: Config, server: HostedServer, runner: Runner) -> None:
        self.config = config
        self.server = server
        self.runner = runner
        methods = make_methods(config)
        server.local_bytes = unsent_bytes(methods, server.network)
        self.halves = {name: method.Server(name, method) for name, method in methods.items()}
        profile = Profile(config.logging.profile, server.device)
        self.calls = HookCalls(server.network, profile, config.resources.server_cpus, server)
        self.calls.watch(methods)
        self.traffic = Traffic()
        self.steps = 0  # gradient steps of all clients so far
        self._rate = 0, 0.0  # the round of the last order, and the round's learning rate
        self._growing = GrowingState()
        self._warnings: dict[str, str] = {}  # "METHOD.ATTRIBUTE" -> a warning; empty if it was taken
        self._has_custom_code = any(is_custom(m.Client) or is_custom(m.Server) for m in methods.values())
        self._sent: dict[str, Broadcast] = {}  # copies of the newest broadcasts by name, if there is custom code

    def halves_with(self, hook: str) -> list[ServerHalf]:
        """Return the server halves that override this hook, in the order in which the config lists the methods."""
        return halves_with_hook(self.halves.values(), hook)

    def choose_phase(self) -> Phase:
        """Return what the clients of this round do: train, or only send what the half that says so collects."""
        for half in self.halves_with("trains"):
            with guard_hook(half, "trains"):
                if not self.calls(half, "trains", self.server):
                    return Collect(half.name)
        return Train()

    def announce(self, phase: Phase) -> tuple[dict[str, Any], list[Broadcast]]:
        """Return the messages, by method, and the broadcasts that server halves send at the start of a phase."""
        messages: dict[str, Any] = {}
        broadcasts: list[Broadcast] = []
        for half in self.halves_with("announce"):
            if isinstance(phase, Collect) and half.name != phase.method:
                continue
            with guard_hook(half, "announce"):
                message, announced = self.calls(half, "announce", self.server)
            messages[half.name], announced = self._separated(half, "announce", message, announced)
            broadcasts += announced
        return messages, broadcasts

    def _separated(
        self, half: ServerHalf, hook: str, message: Any, broadcasts: Sequence[Broadcast]
    ) -> tuple[Any, Sequence[Broadcast]]:
        """Return what a half sends. With custom code these are copies, which the half cannot change later.

        Raises:
            WrongResult: a custom half sends autograd's graph, or another value under a version that hosts may have.
        """
        if not self._has_custom_code:
            return message, broadcasts
        if is_custom(type(half)):
            _refuse_graph(half, hook, "a message", message)
            for sent in broadcasts:
                _refuse_graph(half, hook, f"the broadcast {sent.name}", sent.value)
        return separate(message), [self._version(half, hook, sent) for sent in broadcasts]

    def _version(self, half: ServerHalf, hook: str, sent: Broadcast) -> Broadcast:
        """Return a copy of a broadcast. Raises WrongResult: its version had another value before."""
        earlier = self._sent.get(sent.name)
        if earlier is None or earlier.version != sent.version:
            self._sent[sent.name] = replace(sent, value=separate(sent.value))
        elif is_custom(type(half)) and first_difference(sent.value, earlier.value) is not None:
            found = f"another value for version {sent.version} of the broadcast {sent.name}"
            raise wrong_result(half, hook, found, "a new version with each new value", "sent")
        return self._sent[sent.name]

    def count_arrived(self, clients: Iterable[tuple[int, int]]) -> int | None:
        """Return the sum of `server.arrived` over these (client, round) pairs. None with uniform weights."""
        uniform = self.config.aggregation.weights == "uniform"
        return None if uniform else sum(self.server.arrived(client, round) for client, round in clients)

    def order(
        self,
        operation: Operation,
        clients: Sequence[int],
        shares: Mapping[int, float],
        arrived: int | None = None,
    ) -> Order:
        """Return an order for the current round; see Order for the arguments.

        Its `cohort_size` is the number of these clients. Asynchronous schedules replace this number.

        Raises:
            RunError: one of the clients has no data in this round.
        """
        server = self.server
        windows = {client: server.window(client) for client in clients}
        common = next(iter(windows.values()), 0)
        if self._rate[0] != server.round:
            guard: AbstractContextManager[None] = nullcontext()
            if is_custom(self.config.training.lr_decay.function()):
                guard = guard_globals("training.lr_decay", None, instead="the run's progress alone")
            with guard:
                self._rate = server.round, learning_rate(self.config.training, server.progress)
        return Order(
            operation=operation,
            clients=tuple(clients),
            shares=shares,
            cohort_size=len(clients),
            round_info=RoundInfo(server.round, common, self._rate[1]),
            windows={client: window for client, window in windows.items() if window != common},
            arrived=arrived,
        )

    def begin(self, order: Order, message: Any, broadcasts: Sequence[Broadcast]) -> Any:
        """Send an order to its clients, with the current model. Return a ticket, the runner's handle for the order."""
        with_model = [self.server.broadcast(), *broadcasts]
        if isinstance(message, OwnMessages):
            for client in order.clients:
                own = order.operation.messages(message.by_client[client])
                self.traffic.count_sent([client], own, with_model)
        else:
            self.traffic.count_sent(order.clients, order.operation.messages(message), with_model)
        with self.calls.profile.part(WAITING):
            return self.runner.begin(order, message, with_model)

    def receive(self, ticket: Any) -> Reply:
        """Wait for an order's reply, and count its bytes and steps."""
        reply = self.wait_for(ticket)
        self.traffic.count_received(reply.bytes_up)
        self.steps += reply.steps
        return reply

    def wait_for(self, ticket: Any) -> Reply:
        """Wait for an order's reply without counting it. After a resume, the restored reply replaces the ticket."""
        with self.calls.profile.part(WAITING):
            reply = ticket if isinstance(ticket, Reply) else self.runner.finish(ticket)
        self.calls.profile.add(reply.profile)
        reply.profile = {}
        self._warnings = reply.warnings | self._warnings
        return reply

    def watch_state(self, begins: bool) -> None:
        """Note a warning if a custom half's state grows; `begins` as in `GrowingState.grown`.

        It may hold two models for each client, as clients take part for the first time in many rounds.
        """
        bound = 2 * (self.config.clients.count + 1) * self.server.network.weights().nbytes
        for half in self.halves.values():
            if is_custom(type(half)):
                found = self._growing.grown(half, "the server", begins, bound)
                self._warnings = {f"{half.name}.{name}": text for name, text in found} | self._warnings

    def take_warnings(self) -> list[str]:
        """Return the warnings since the last call, each once."""
        taken = [text for text in self._warnings.values() if text]
        self._warnings = dict.fromkeys(self._warnings, "")
        return taken

    def update_model(self, reply: Reply, mean: Delta | None) -> None:
        """Pass the mean delta, scaled by the schedule, through the `update` hooks. Add the result to the model.

        If no client trained, it is None: the half that said so gets its terms, and the model stays.
        """
        server = self.server
        delta = mean or Delta(torch.zeros_like(server.parameters), torch.zeros_like(server.buffers))
        deltas = [("", delta)]
        for half in self.halves_with("update"):
            if mean is None and half not in self.halves_with("trains"):
                continue
            terms = reply.of(half.name, half.method.replies, server.parameters.dtype)
            with guard_hook(half, "update"):
                delta = self.calls(half, "update", server, delta, terms)
            stays = mean is None or not half.method.sends_model
            if stays and (delta.parameters.any() or delta.buffers.any()):
                why = "no client trained" if mean is None else "sends_model is False"
                allowed = f"the delta that it receives, as {why}; see the hook evaluated"
                raise wrong_result(half, "update", "a change of the model", allowed)
            deltas.append((place_of_hook(type(half), "update") if is_custom(type(half)) else "", delta))
        if mean is None:
            return
        assert reply.integers is not None
        server.parameters = server.parameters + delta.parameters
        server.buffers = server.buffers + delta.buffers
        server.integers = reply.integers[1].to(torch.int64)
        server.version += 1
        self._check_model(deltas)

    def drive_plans(self, hook: str, clients: Sequence[int]) -> None:
        """Carry out this hook's plans, in the order in which the config lists the methods."""
        for half in self.halves_with(hook):
            with guard_hook(half, hook):
                plan = self.calls(half, hook, self.server)
                if plan is not None:
                    with closing(plan):
                        self._drive(half, hook, plan, clients)
                    self.calls.check(half, hook)

    def leave_out(self, request: ForgetRequest) -> Reply:
        """Have the clients leave out what a request names. Return their reply. The model is not sent for that."""
        asked = {k: LeftOut(positions, k in request.clients) for k, positions in request.asked().items()}
        order = Order(
            LeaveOut(), tuple(asked), dict.fromkeys(asked, 0.0), len(asked), RoundInfo(self.server.round, 0, 0.0)
        )
        for client, message in asked.items():
            self.traffic.count_sent([client], LeaveOut().messages(message), ())
        return self.wait_for(self.runner.begin(order, OwnMessages(asked), ())) if asked else Reply(0)

    def forget(self, asked: Mapping[int, torch.Tensor]) -> None:
        """Carry out the plans that forget these samples: client -> positions in its stream."""
        for half in self.halves.values():
            if isinstance(half, ForgettingServer):
                with guard_hook(half, "forget"):
                    with closing(self.calls(half, "forget", self.server, asked)) as plan:
                        self._drive(half, "forget", plan, self.server.present)
                    self.calls.check(half, "forget")

    def _check_model(self, deltas: Sequence[tuple[str, Delta]]) -> None:
        """Refuse a model that is not finite before it reaches a client or a checkpoint. Raises Diverged.

        `deltas` are (place, delta) pairs: the mean delta, then the result of each `update` hook. The place is empty
        except for user-defined hooks.
        """
        server = self.server
        for what, part in (("parameters", server.parameters), ("buffers", server.buffers)):
            if not bool(part.isfinite().all()):
                largest = float(part.abs().max())
                hooks = (place for place, delta in deltas if not bool(getattr(delta, what).isfinite().all()))
                by = "".join(f", first in the delta from {place}" for place in [*hooks][:1] if place)
                raise Diverged(
                    f"the server diverged in round {server.round} ({name_methods(self.halves)}): found {largest:g} in "
                    f"the {what} of its new model{by}, allowed: finite; a smaller training.optimizer.lr, or smaller "
                    "learning rates of the methods, may help"
                )

    def _drive(self, half: ServerHalf, hook: str, plan: Plan, clients: Sequence[int]) -> None:
        """Carry out a plan: send each request that it yields, and pass the reduced reply back to the plan."""
        server = self.server
        terms: Mapping[str, Any] | None = None
        while True:
            try:
                with self.calls.inside(half, hook):
                    yielded = next(plan) if terms is None else plan.send(terms)
                request = check_request(half, hook, yielded)
            except StopIteration:
                return
            own = request.messages
            message, broadcasts = self._separated(
                half, hook, request.message if own is None else own, request.broadcasts
            )
            receivers = self._receivers(half, hook, request, clients)
            if own is not None:
                by_client = {operator.index(client): each for client, each in message.items()}
                message = OwnMessages(by_client).part(receivers)
            shares = server.shares_of(receivers)
            order = self.order(Call(half.name, request.op), receivers, shares)
            reply = self.receive(self.begin(order, message, broadcasts))
            server.records |= reply.means()
            terms = reply.of(half.name, half.method.replies, server.parameters.dtype)

    def _receivers(self, half: ServerHalf, hook: str, request: Request, cohort: Sequence[int]) -> list[int]:
        """Return the clients of a request, ascending. Raises WrongResult: one is not there, or `to` has others."""
        present, chooser, own, to = self.server.present, getattr(type(half), hook), request.messages, request.to
        named = {"cohort": cohort, "everyone": present}
        addressed = None if own is None else sorted(check_chosen(own, present, "Request.messages", chooser))
        if to is None:
            return sorted(cohort) if addressed is None else addressed
        receivers = named.get(to, ()) if isinstance(to, str) else to
        receivers = sorted(check_chosen(receivers, present, "Request.to", chooser))
        if addressed is not None and addressed != receivers:
            found = f"a Request with messages for the clients {addressed!r:.60} and to={to!r:.60}"
            raise wrong_result(half, hook, found, "the same clients in both, or messages alone", "yielded")
        return receivers


def _refuse_graph(half: ServerHalf, hook: str, what: str, value: Any) -> None:
    """Refuse a value with tensors that require a gradient: it would reach clients in a local run only."""
    for path, node in nodes(value):
        if isinstance(node, torch.Tensor) and node.requires_grad:
            raise wrong_result(half, hook, f"{what} with autograd's graph{path and f' in {path}'}", "detach() of it")
