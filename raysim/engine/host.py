"""A host: the owner of some clients, which share one model instance and one copy of the data."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from raysim.api.messages import Broadcast
from raysim.api.method import Method
from raysim.config import Config
from raysim.engine.collection import Collection
from raysim.engine.compatibility import make_methods
from raysim.engine.hook_calls import HookCalls
from raysim.engine.host_evaluation import HostEvaluation
from raysim.engine.hosted_client import HostedClient
from raysim.engine.input_files import find_on_this_node
from raysim.engine.new_clients import NewClients
from raysim.engine.orders import Collect, LeaveOut, LeftOut, Order, OwnMessages, Train
from raysim.engine.phases import Phases
from raysim.engine.profile import Profile
from raysim.engine.replies import Reply
from raysim.engine.trainer_choice import choose_trainer
from raysim.engine.work import Work
from raysim.evaluation.scoring import Chunk, Scores
from raysim.federation.federation import Federation
from raysim.models.building import build_model
from raysim.models.flat import FlatModel
from raysim.models.inputs import two_samples
from raysim.models.layers import find_head
from raysim.system.custom_code import is_custom
from raysim.system.device import to_device
from raysim.system.errors import RunError, describe_error, locate_errors
from raysim.system.pinned import check_files
from raysim.system.seeding import guard_globals, torch_restored
from raysim.system.state import decode, encode, map_tensors


class ClientHost:
    """Owner of clients. It carries out orders, with the trainer that the config asks for.

    Args:
        config: the resolved config.
        federation: the data and the tasks; shared and read only.
        clients: the ids of this host's clients.
        device: the device of the model and the data.
    """

    def __init__(self, config: Config, federation: Federation, clients: Sequence[int], device: torch.device) -> None:
        self.federation = federation
        self.broadcasts: dict[str, Broadcast] = {}  # name -> the newest version
        self.seconds: dict[int, float] = {}  # client of the last order -> the seconds that this client took
        self._methods = make_methods(config)
        self._files = find_on_this_node(config, [file for file in federation.files if file.used_by_clients])
        self.model = _build_model(config, federation, self._methods, device)
        self._calls = HookCalls(self.model, Profile(config.logging.profile, device))
        self._calls.watch(self._methods)
        self._new = NewClients(config, federation, self._methods, self.model, self.broadcasts, self._calls)
        self._phases = phases = Phases(config, federation, self._methods, self._new.shared, self._calls)
        self._trainer = choose_trainer(config, self._methods, phases, self.model, self._calls)
        self._evaluation = HostEvaluation(config, federation, self.model)
        self.clients = {number: self._new.make(number) for number in clients}

    def perform(self, order: Order, message: Any, broadcasts: Sequence[Broadcast] = ()) -> Reply:
        """Carry out an order, and return the reply, reduced over the order's clients. Raises RunError."""
        self.receive(broadcasts)
        message = self._move(message)
        custom = {name for name, method in self._methods.items() if is_custom(method.Client)}
        # A client's own message is watched in its exchange: all at once would be compared after each client's hooks.
        parts = {} if isinstance(message, OwnMessages) else order.operation.messages(message)
        self._calls.received.take_messages({name: part for name, part in parts.items() if name in custom})
        work = Work(order, message, Collection(order.cohort_size, single=len(order.clients) == 1))
        methods = order.operation.describe(self._methods)
        who = f"round {order.round_info.round}: a client half ({methods}), the model or the data stream"
        # Restore torch's generators: in a local run, a plan may be suspended inside `rng_scope` while this order runs.
        profile = self._calls.profile.part("client: everything else")
        with self._files_unchanged(), guard_globals(who, "client"), torch_restored(), profile:
            self.seconds = {}
            for clients in self._trainer.divide([self.clients[number] for number in order.clients], work):
                began = time.perf_counter()
                self.serve(clients, work)
                seconds = (time.perf_counter() - began) / len(clients)
                self.seconds |= {client.id: seconds for client in clients}
            reply = work.collected.settle()
        reply.profile = self._calls.profile.take()
        return reply

    def serve(self, clients: Sequence[HostedClient], work: Work) -> None:
        """Have a group of clients carry out the order, and add their parts to the reply."""
        operation = work.order.operation
        names = f"client{'s' * (len(clients) > 1)} {', '.join(str(client.id) for client in clients)}"
        with locate_errors(f"{names}, round {work.order.round_info.round}"):
            if isinstance(operation, Train):
                self._trainer.train(clients, work)
            elif isinstance(operation, Collect):
                for client in clients:
                    self._phases.collect(client, operation, work)
            elif isinstance(operation, LeaveOut):
                for client in clients:
                    self._leave_out(client, work)
            else:
                self._trainer.exchange(clients, operation, work)

    def _leave_out(self, client: HostedClient, work: Work) -> None:
        """Have a client follow a request to forget. One that takes no further part begins anew, and is not asked."""
        asked: LeftOut = work.message_of(client)
        positions, reply = asked.positions.cpu(), work.collected.reply
        if asked.leaves:
            reply.add_dropped(client.describe_kept(), {})
            positions = torch.cat([client.left_out, positions])
            client = self.clients[client.id] = self._new.make(client.id)
        dropped, stays = client.leave_out(positions)
        reply.add_dropped(dropped, dict.fromkeys(stays, 1))

    def evaluate(self, chunks: Sequence[Chunk], broadcasts: Sequence[Broadcast] = ()) -> Scores:
        """Count the correct predictions of the broadcast model on parts of the test sets."""
        self.receive(broadcasts)
        with self._files_unchanged():
            return self._evaluation.test_model(chunks, self.broadcasts)

    def evaluate_clients(self, chunks: Sequence[Chunk], broadcasts: Sequence[Broadcast] = ()) -> dict[int, Scores]:
        """Count the correct predictions of each client's personalized model; see `HostEvaluation.test_clients`."""
        self.receive(broadcasts)
        with self._files_unchanged():
            return self._evaluation.test_clients(chunks, self.broadcasts["model"], self.clients)

    @contextmanager
    def _files_unchanged(self) -> Iterator[None]:
        """Check before and after work that the files that are mapped here have the content that the run began with.

        What was computed with other content gets into no model. A file that has become shorter is noticed before its
        missing pages are read.

        Raises:
            RunError: one has other content, or cannot be read.
        """
        self._files = check_files(self._files)
        try:
            yield
        finally:  # other content may be the reason of an error
            self._files = check_files(self._files)

    def receive(self, broadcasts: Sequence[Broadcast]) -> None:
        """Store broadcasts, replacing older versions."""
        for broadcast in broadcasts:
            self.broadcasts[broadcast.name] = received = replace(broadcast, value=self._move(broadcast.value))
            if any(is_custom(method.Client) for method in self._methods.values()):
                self._calls.received.take_broadcast(received)

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
                self.clients[number] = self._new.make(number)
            try:
                self.clients[number].restore(decode(state, self.model.device))
            except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
                words = f"the saved state of client {number} does not fit this run ({describe_error(error)})"
                raise RunError(f"{words}; if it is from a checkpoint, delete the newest checkpoint") from error

    def _move(self, message: Any) -> Any:
        """Return a message with its tensors on this host's device."""
        return map_tensors(lambda tensor: to_device(tensor, self.model.device), message)


def _build_model(
    config: Config, federation: Federation, methods: Mapping[str, Method], device: torch.device
) -> FlatModel:
    """Return a host's model, with the names of its head if something needs them."""
    module = build_model(config, federation.shape, federation.classes, federation.vocabulary)
    x = two_samples(module, federation.shape, federation.vocabulary)
    needs_head = config.training.logits == "task" or any(method.head_parts() for method in methods.values())
    head = find_head(module, x) if needs_head else ()
    model = FlatModel(module.to(device))
    model.head = head
    return model
