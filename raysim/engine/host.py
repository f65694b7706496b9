"""A host: the owner of some clients, which share one model instance and one copy of the data."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch import Tensor

from raysim.api.encoded import Encoded
from raysim.api.messages import Broadcast, Delta, Terms
from raysim.api.method import ClientHalf, halves_with_hook, overrides
from raysim.api.shared import Shared
from raysim.config import Config
from raysim.data.pixels import Source
from raysim.engine import hook_checks
from raysim.engine.compatibility import make_methods, sends_model, unsent_bytes
from raysim.engine.hook_calls import HookCalls
from raysim.engine.hosted_client import HostedClient
from raysim.engine.memory_choice import choose_memory
from raysim.engine.op import Op
from raysim.engine.orders import Call, Order, Reply, Train
from raysim.engine.profile import Profile
from raysim.engine.vectorised.block import ClientBlock, stack
from raysim.engine.vectorised.support import make_block
from raysim.evaluation.scoring import Chunk, Scores, score
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.memory import Memory
from raysim.models.building import build_model
from raysim.models.flat import FlatModel, Weights
from raysim.models.graphs import Graphs
from raysim.models.inputs import two_samples
from raysim.models.layers import find_head
from raysim.models.task_heads import is_task_aware, select_head, tell_task
from raysim.system.custom_code import is_custom
from raysim.system.device import to_device
from raysim.system.errors import RunError, describe_error, locate_errors
from raysim.system.seeding import guard_globals, torch_restored
from raysim.system.state import decode, encode, map_tensors

EVALUATED = "evaluated model"  # the broadcast with the weights that a method evaluates instead of the model


class ClientHost:
    """Owner of clients. It carries out orders, one client after the other.

    Args:
        config: the resolved config.
        federation: the data and the tasks; shared and read only.
        clients: the ids of this host's clients.
        device: the device of the model and the data.
    """

    def __init__(self, config: Config, federation: Federation, clients: Sequence[int], device: torch.device) -> None:
        self.federation = federation
        self._methods = make_methods(config)
        module = build_model(config, federation.shape, federation.classes, federation.vocabulary)
        x = two_samples(module, federation.shape, federation.vocabulary)
        finds = config.training.logits == "task" or any(m.head_parts() for m in self._methods.values())
        head = find_head(module, x) if finds else ()
        self.model = FlatModel(module.to(device))
        self.model.head = head
        self._calls = HookCalls(self.model, Profile(config.logging.profile, device))
        graphs = config.resources.cuda_graphs and device.type == "cuda"
        self._block = make_block(config, self._methods, self.model, self._calls, graphs)
        if graphs and self._block is None:
            self.model.forward = Graphs(self.model)
        self.broadcasts: dict[str, Broadcast] = {}  # name -> the newest version
        self.seconds: dict[int, float] = {}  # client of the last order -> the seconds that this client took
        self._custom_code = hook_checks.describe_custom_code(config, self._methods.values())
        self._logits = config.training.logits
        self._depends_on_task = config.heads > 1 or is_task_aware(module)
        self._knows_task = config.scenario.windows is None
        self._top_k = config.evaluation.top_k
        self._samples = federation.source("train", device)
        self._test: Source | None = None  # the test split, once it is needed
        self._memory = choose_memory(config, self._methods)
        self._evaluates_clients = config.evaluation.model == "local"
        # The scores of the last evaluate_clients. A key is (client, phases, tasks so far). For the server's
        # model, it is (-1, version, tasks so far).
        self._scored: dict[tuple[int, int, int | None], Scores] = {}
        self._local_bytes = unsent_bytes(self._methods, self.model)
        self._sends_model = sends_model(self._methods)
        self._hooks_move_model = self._overridden("receive", "start", "begin_task")  # perhaps
        hooked = self._hooks_move_model or self._overridden("finish", "encode") or self._evaluates_clients
        # Whether the updates of a block are summed as rows: no hook runs for a single client before or after the block.
        self._sums_rows = self._block is not None and self._sends_model and not (hooked or self._local_bytes)
        self._shared = Shared(
            model=self.model,
            broadcasts=self.broadcasts,
            seed=config.seed,
            training=config.training,
            deterministic=config.resources.deterministic,
            classes=federation.classes,
            kept_out=self._kept_out,
            unlabelled=federation.unlabelled_source(self._samples),
            unlabelled_streams=() if federation.unlabelled is None else federation.unlabelled.streams,
            objective=federation.objective,
        )
        self.clients = {number: self.make_client(number) for number in clients}

    def perform(self, order: Order, message: Any, broadcasts: Sequence[Broadcast] = ()) -> Reply:
        """Carry out an order, and return the reply, reduced over the order's clients. Raises RunError."""
        self.receive(broadcasts)
        message = self._move(message)
        reply = Reply(order.cohort_size, single=len(order.clients) == 1)
        method = order.operation.describe(self._methods)
        who = f"round {order.round_info.round}: a client half ({method}), the model or the data stream"
        # Restore torch's generators: in a local run, a plan may be suspended inside `rng_scope` while this order runs.
        with guard_globals(who, "client"), torch_restored(), self._calls.profile.part("client: everything else"):
            self.seconds = {}
            for clients in self._in_blocks(order):
                began = time.perf_counter()
                self.serve(clients, order, message, reply)
                seconds = (time.perf_counter() - began) / len(clients)
                self.seconds |= {client.id: seconds for client in clients}
            reply.settle()
        reply.profile = self._calls.profile.take()
        return reply

    def _in_blocks(self, order: Order) -> Iterator[list[HostedClient]]:
        """Yield the order's clients one by one, or in blocks of similar numbers of samples if they train together."""
        clients = [self.clients[number] for number in order.clients]
        if self._block is not None:
            clients.sort(key=lambda client: client.stream.size(order.round_info_of(client.id).window))
        width = 1 if self._block is None else self._block.width
        for first in range(0, len(clients), width):
            yield clients[first : first + width]

    def serve(self, clients: Sequence[HostedClient], order: Order, message: Any, reply: Reply) -> None:
        """Have one client carry out the order, or a block of clients, and add their parts to the reply."""
        names = f"client{'s' * (len(clients) > 1)} {', '.join(str(client.id) for client in clients)}"
        with locate_errors(f"{names}, round {order.round_info.round}"):
            if self._block is not None:
                serve = self._train_together if isinstance(order.operation, Train) else self._exchange_together
                serve(self._block, clients, order, message, reply)
            elif isinstance(order.operation, Train):
                self._train(clients[0], order, message, reply)
            else:
                self._exchange(clients[0], order, message, reply)

    def _begin(self, client: HostedClient, order: Order, message: Any) -> None:
        """Begin a client's phase or exchange. The server's model must be loaded."""
        info = order.round_info_of(client.id)
        if self._depends_on_task:
            self._tell_task(client.stream, info.window)
        if isinstance(order.operation, Train):
            client.begin_phase(info, order.shares[client.id], draws=not self._sums_rows)
            for half in client.halves.values():
                self._calls(half, "start", client, message.get(half.name))
        else:
            client.receive_data(info.window)
            client.begin_exchange(order.operation.method, info, order.shares[client.id])

    def evaluate(self, chunks: Sequence[Chunk], broadcasts: Sequence[Broadcast] = ()) -> Scores:
        """Count the correct predictions of the broadcast model on parts of the test sets."""
        self.receive(broadcasts)
        model = self.broadcasts.get(EVALUATED) or self.broadcasts["model"]
        self.model.load(model.value)
        with locate_errors(f"evaluation of the model after {model.version} updates"):
            return self._score(chunks)

    def evaluate_clients(self, chunks: Sequence[Chunk], broadcasts: Sequence[Broadcast] = ()) -> dict[int, Scores]:
        """Count the correct predictions of each client's personalized model.

        A client that has never trained is tested with the server's model. Scores are reused while a model is unchanged:
        a personalized model until the client's next phase, and the server's model until its next version.
        """
        self.receive(broadcasts)
        sent = self.broadcasts["model"]
        earlier, self._scored = self._scored, {}
        by_client: dict[int, Scores] = {}
        so_far = chunks[0].so_far
        for number, client in self.clients.items():
            weights = client.personalized
            key = (number, client.phases, so_far) if weights else (-1, sent.version, so_far)
            if key not in earlier:
                self.model.load(Weights(*weights) if weights else sent.value)
                with locate_errors(f"evaluation of client {number}'s personalized model"):
                    earlier[key] = self._score(chunks)
            self._scored[key] = by_client[number] = earlier[key]
        return by_client

    def receive(self, broadcasts: Sequence[Broadcast]) -> None:
        """Store broadcasts, replacing older versions."""
        for broadcast in broadcasts:
            self.broadcasts[broadcast.name] = received = replace(broadcast, value=self._move(broadcast.value))
            if any(is_custom(method.Client) for method in self._methods.values()):
                self._calls.keep(received)

    def _move(self, message: Any) -> Any:
        """Return a message with its tensors on this host's device."""
        return map_tensors(lambda tensor: to_device(tensor, self.model.device), message)

    def snapshot(self) -> dict[int, bytes]:
        """Return the saved state of every client of this host, for a checkpoint. Raises RunError."""
        return {number: encode(client.state()) for number, client in self.clients.items()}

    def give(self, clients: Sequence[int]) -> dict[int, bytes]:
        """Remove clients that move to another host, and return their saved states. Raises RunError."""
        return {number: encode(self.clients.pop(number).state()) for number in clients}

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Restore clients from states, which another host may have saved. Clients that are not here yet are added."""
        for number, state in states.items():
            if number not in self.clients:
                self.clients[number] = self.make_client(number)
            try:
                self.clients[number].restore(decode(state, self.model.device))
            except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                words = f"the saved state of client {number} does not fit this run ({describe_error(error)})"
                raise RunError(f"{words}; if it is from a checkpoint, delete the newest checkpoint") from error

    def make_client(self, number: int) -> HostedClient:
        """Return a client in its initial state."""
        federation, device = self.federation, self.model.device
        data = self._samples if federation.opener is None else federation.open_stream(number, device)
        memory = None if self._memory is None else Memory(self._memory)
        with locate_errors(f"client {number}, at its start"):
            halves = {name: method.Client(name, method) for name, method in self._methods.items()}
        return HostedClient(number, federation.streams[number], data, memory, self._shared, halves, self._calls)

    def _score(self, chunks: Sequence[Chunk]) -> Scores:
        """Count the correct predictions of the loaded model on parts of the test sets."""
        if self._test is None:
            self._test = self.federation.source("test", self.model.device)
        with guard_globals("the model, the objective or the test samples, in an evaluation", None, instead="no draws"):
            return score(self.model.module, self.model.dtype, self._test, self.federation, chunks, self._top_k)

    def _tell_task(self, stream: Stream, window: int) -> None:
        """Tell the model the task of a window, and select its head. Clients may not know it."""
        task, so_far = stream.task_of_stage(window) if self._knows_task else (None, len(self.federation.tasks))
        select_head(self.model.module, task or 0)  # there is one head if clients do not know the task
        tell_task(self.model.module, task, so_far)

    def _kept_out(self, stream: Stream, window: int) -> Tensor | None:
        """Return a mask (bool [classes]) of the classes that are not in the training softmax, or None."""
        admitted = self.federation.admitted(stream, window, self._logits)
        if admitted is None:
            return None
        mask = torch.ones(self.federation.classes, dtype=torch.bool)
        mask[list(admitted)] = False
        return to_device(mask, self.model.device)

    def _train(self, client: HostedClient, order: Order, message: Any, reply: Reply) -> None:
        """Train one client, and add its update and terms to the reply."""
        self.model.load(self.broadcasts["model"].value)
        self._begin(client, order, message)
        halves = [*client.halves.values()]
        owner = halves_with_hook(halves, "train")
        like = Delta(self.model.parameters, self.model.buffers)
        delta = (
            hook_checks.check_delta(owner[0], "train", self._calls(owner[0], "train", client), like)
            if owner
            else client.local_training()
        )
        self._end_phase(client, order, reply, delta)

    def _train_together(
        self, block: ClientBlock, clients: Sequence[HostedClient], order: Order, message: Any, reply: Reply
    ) -> None:
        """Train the clients of a block, and add their updates and terms to the reply."""
        state = stack([weights for _, weights in self._begin_all(clients, order, message)])
        buffers = state.buffers.clone()
        block.train(clients, state, order.cohort_size)
        if self._sums_rows and len(order.clients) > 1:
            delta = Delta(state.parameters.sub_(self.broadcasts["model"].value.parameters), state.buffers - buffers)
            weights, where = zip(*((self._weight(c, order), self._where(c, order)) for c in clients), strict=True)
            reply.take_deltas([c.id for c in clients], delta, state.integers, weights, where, self._custom_code)
            for client in clients:
                reply.steps += client.steps
                self._end(client, reply)
            return
        for client, start, *vectors in zip(clients, buffers, *state.vectors, strict=True):
            self.model.load(Weights(*vectors))
            client.go_on()
            delta = Delta(self.model.parameters - client.received, self.model.buffers - start)
            self._end_phase(client, order, reply, delta)

    def _begin_all(
        self, clients: Sequence[HostedClient], order: Order, message: Any
    ) -> Iterator[tuple[HostedClient, Weights]]:
        """Begin the phases or exchanges of a block's clients. Yield each with the weights with which it begins."""
        sent: Weights = self.broadcasts["model"].value
        for number, client in enumerate(clients):
            if number == 0 or self._hooks_move_model or not isinstance(order.operation, Train):
                self.model.load(sent)
            self._begin(client, order, message)
            yield client, self.model.copy() if self._hooks_move_model else sent
            if not self._sums_rows:
                client.pause()

    def _end_phase(self, client: HostedClient, order: Order, reply: Reply, delta: Delta) -> None:
        """Add a client's update, given the change of its model, and its terms to the reply."""
        where, halves = self._where(client, order), [*client.halves.values()]
        weights = self.model.copy() if self._evaluates_clients else None
        sent: list[tuple[ClientHalf, Terms]] = []
        # Each delta is paired with a text that names the user-defined code that returned it, for error messages.
        deltas = [(self._custom_code, delta)]
        for half in halves_with_hook(halves, "finish"):
            delta, terms = hook_checks.check_finished(half, self._calls(half, "finish", client, delta), delta)
            sent.append((half, terms))
            if is_custom(type(half)):
                deltas.append((f" returned by {hook_checks.place_of_hook(type(half), 'finish')}", delta))
        if not self._sends_model:
            delta = Delta(torch.zeros_like(delta.parameters), torch.zeros_like(delta.buffers))
            deltas = [("", delta)]
        deltas[-1] = deltas[-1][0], delta
        if weights is not None:
            for half in halves_with_hook(halves, "personalize"):
                weights = self._calls(half, "personalize", client, weights)
            client.personalized = tuple(vector.clone() for vector in weights.vectors)  # a half may change its tensors
            reply.watch(weights.parameters, f"{where}, in its personalized model")
        encoded, weight = self._encode(client, "update", delta.parameters), self._weight(client, order)
        integers = (self.model if self._sends_model else self.broadcasts["model"].value).integers
        reply.take_delta(client.id, delta, integers, weight, where, deltas, encoded, self._local_bytes)
        self._take_terms(client, order, reply, sent)
        reply.steps += client.steps
        self._end(client, reply)

    def _exchange(self, client: HostedClient, order: Order, message: Any, reply: Reply) -> None:
        """Call a half's op, and add the terms that it returns to the reply."""
        self.model.load(self.broadcasts["model"].value)
        self._begin(client, order, message)
        assert isinstance(order.operation, Call)
        op = Op(self._calls, client, order.operation, message)
        while op.wanted is not None:
            with client.rng_scope(op.half.name):
                gradient = self.model.gradient_on(*op.wanted, client.loss)
            op.answer(gradient)
        self._end_exchange(client, order, reply, op)

    def _exchange_together(
        self, block: ClientBlock, clients: Sequence[HostedClient], order: Order, message: Any, reply: Reply
    ) -> None:
        """Call a half's op for the clients of a block. The gradients that they request are computed together."""
        assert isinstance(order.operation, Call)
        ops: list[Op] = []
        weights: list[Weights] = []
        for client, _ in self._begin_all(clients, order, message):
            ops.append(Op(self._calls, client, order.operation, message))
            weights.append(self.model.copy())
        for number in count():
            wanted = {i: op.wanted for i, op in enumerate(ops) if op.wanted is not None}
            if not wanted:
                break
            purpose = ops[0].half.name, number
            found = block.gradients(clients, stack(weights), wanted, purpose, order.cohort_size)
            for i, gradient in found.items():
                self.model.load(weights[i])
                ops[i].answer(gradient)
                weights[i] = self.model.copy()
        for client, op in zip(clients, ops, strict=True):
            self._end_exchange(client, order, reply, op)

    def _end_exchange(self, client: HostedClient, order: Order, reply: Reply, op: Op) -> None:
        """Add a client's terms to the reply."""
        with client.rng_scope("encode"):
            self._take_terms(client, order, reply, [(op.half, op.terms)])
        self._end(client, reply)

    def _end(self, client: HostedClient, reply: Reply) -> None:
        """End a client's phase or exchange."""
        self._calls.check_phase(client.halves.values())
        reply.take_records(client.id, client.records)
        client.forget()

    def _take_terms(
        self, client: HostedClient, order: Order, reply: Reply, sent: Sequence[tuple[ClientHalf, Terms]]
    ) -> None:
        """Add one client's terms to the reply. Encode them if a method overrides `encode`."""
        share, where = order.shares[client.id], self._where(client, order)
        for half, terms in sent:
            by = (
                f", in the terms from {hook_checks.place_of_hook(type(half), order.operation.returns_in)}"
                if is_custom(type(half))
                else ""
            )
            for name, term in terms.items():
                how, full_name = half.method.replies[name], f"{half.name}.{name}"
                if how != "by_client":
                    term = replace(term, value=self._encode(client, full_name, term.value))
                reply.take_term(client.id, full_name, term, how, share, where + by)

    def _encode(self, client: HostedClient, name: str, value: Tensor | Encoded) -> Tensor | Encoded:
        """Encode a vector [P] if a method overrides `encode`. Return any other value unchanged."""
        owner = halves_with_hook(client.halves.values(), "encode")
        if not owner or isinstance(value, Encoded) or value.shape != self.model.parameters.shape:
            return value
        encoded = self._calls(owner[0], "encode", name, value, client.generator(f"{owner[0].name}: {name}"))
        return hook_checks.check_encoded(owner[0], encoded, value)

    def _weight(self, client: HostedClient, order: Order) -> float:
        """Return the weight of a client's update."""
        share = order.shares[client.id] if order.arrived is None else client.trained / order.arrived
        return share * order.discount

    def _overridden(self, *hooks: str) -> bool:
        """Return whether a client half overrides one of these hooks."""
        return any(overrides(method.Client, hook) for method in self._methods.values() for hook in hooks)

    def _where(self, client: HostedClient, order: Order) -> str:
        """Return the prefix of the error message for a non-finite value from this client."""
        return (
            f"client {client.id} diverged in round {order.round_info.round} ({order.operation.describe(client.halves)})"
        )
