"""A host: the place where some clients live, with one model instance and one view of the data for all of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from raysim.api.client import Client, Phase
from raysim.api.messages import Post, Term, Terms, on_device
from raysim.api.method import ClientHalf, names_of
from raysim.config import Config
from raysim.data.pixels import Source
from raysim.data.user_stream import UserStream
from raysim.engine.compatibility import memory_of, methods_of
from raysim.engine.local_training import with_hook
from raysim.engine.reply import Reply
from raysim.evaluation.scoring import Chunk, Scores, score
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.memory import Memory
from raysim.models.building import build_model
from raysim.models.flat import FlatModel
from raysim.system.device import to_device
from raysim.system.errors import RunError
from raysim.system.state import decoded, encoded


@dataclass(frozen=True)
class Order:
    """What a host is asked to do for some of its clients.

    `op` is "train" or "METHOD.OP"; `mail` maps methods to their mail for "train", and is the op's mail otherwise;
    `shares` are the clients' weights in the cohort, `cohort` the number of clients in it. `windows` are the windows of
    those that have another than the phase's. Where an update counts by the samples that it was trained on, `arrived` is
    what the whole cohort holds, an upper bound; `discount` is what an update is multiplied by for its age.
    """

    op: str
    clients: tuple[int, ...]
    mail: Any
    shares: Mapping[int, float]
    cohort: int
    phase: Phase
    windows: Mapping[int, int] = field(default_factory=dict)
    arrived: int | None = None
    discount: float = 1.0

    def phase_of(self, client: int) -> Phase:
        """Return the phase as this client has it."""
        return replace(self.phase, window=self.windows.get(client, self.phase.window))


class Host:
    """Owns clients and does what an order says, one client after the other.

    Args:
        config: the resolved config.
        federation: the data and the tasks; shared and read only.
        clients: the ids of the clients that live here.
        device: where the model and the data live.
    """

    def __init__(self, config: Config, federation: Federation, clients: Sequence[int], device: torch.device) -> None:
        self.config = config
        self.federation = federation
        self.model = FlatModel(build_model(config, federation.shape, federation.classes).to(device))
        self._samples = federation.source("train", device)
        self.test: Source | None = None
        self.posts: dict[str, Post] = {}
        self._memory = memory_of(config, methods_of(config))
        self.clients = {number: Client(number, federation.streams[number], self._halves(), self) for number in clients}

    def perform(self, order: Order, posts: Sequence[Post] = ()) -> Reply:
        """Carry out an order and reply with the sum over its clients. Raises Diverged."""
        self.receive(posts)
        order = replace(order, mail=on_device(order.mail, self.model.device))
        reply = Reply(order.cohort)
        for number in order.clients:
            client = self.clients[number]
            self.model.load(self.posts["model"].value)
            if order.op == "train":
                self._train(client, order, reply)
            else:
                self._op(client, order, reply)
            client.forget()
        return reply

    def evaluate(self, chunks: Sequence[Chunk], posts: Sequence[Post] = ()) -> Scores:
        """Count the right answers of the posted model on parts of the test sets."""
        self.receive(posts)
        if self.test is None:
            self.test = self.federation.source("test", self.model.device)
        self.model.load(self.posts["model"].value)
        return score(self.model.module, self.model.dtype, self.test, self.federation, chunks)

    def receive(self, posts: Sequence[Post]) -> None:
        """Keep what was posted, in place of older versions."""
        for post in posts:
            self.posts[post.name] = replace(post, value=on_device(post.value, self.model.device))

    def snapshot(self) -> dict[int, bytes]:
        """Return a record of every client here, as a checkpoint keeps it. Raises RunError."""
        return {number: encoded(client.state()) for number, client in self.clients.items()}

    def restore(self, records: Mapping[int, bytes]) -> None:
        """Make every client here what its record says, wherever that was made."""
        for number, client in self.clients.items():
            client.restore(decoded(records[number], self.model.device))

    def kept_out(self, stream: Stream, window: int) -> Tensor | None:
        """Return a mask (bool [classes]) of the classes that are not in the training softmax, or None."""
        admitted = self.federation.admitted(stream, window, self.config.training.logits)
        if admitted is None:
            return None
        mask = torch.ones(self.federation.classes, dtype=torch.bool)
        mask[list(admitted)] = False
        return to_device(mask, self.model.device)

    def data_of(self, client: int) -> Source | UserStream:
        """Return what a client's positions refer to: the train split, shared by all, or the user's own stream."""
        return self._samples if self.federation.opener is None else self.federation.opened(client, self.model.device)

    def make_memory(self) -> Memory | None:
        """Return an empty memory as the run's methods want it, if they want one."""
        return None if self._memory is None else Memory(self._memory)

    def _halves(self) -> dict[str, ClientHalf]:
        return {name: method.Client(name, method) for name, method in methods_of(self.config).items()}

    def _train(self, client: Client, order: Order, reply: Reply) -> None:
        share = order.shares[client.id]
        client.enter(order.phase_of(client.id), share)
        for name, half in client.halves.items():
            half.start(client, order.mail.get(name))
        owner = with_hook(client, "train")
        delta = owner[0].train(client) if owner else client.local_training()
        terms: dict[str, tuple[ClientHalf, Term]] = {}
        for half in with_hook(client, "finish"):
            delta, own = half.finish(client, delta)
            terms |= {f"{half.name}.{name}": (half, term) for name, term in own.items()}
        where = self._where(client, order)
        weight = share if order.arrived is None else client.trained / order.arrived
        reply.take_delta(client.id, delta, self.model.integers, weight * order.discount, where)
        self._take_terms(client, order, reply, terms)
        reply.steps += client.steps
        reply.take_records(client.id, client.records)

    def _op(self, client: Client, order: Order, reply: Reply) -> None:
        name, _, op = order.op.partition(".")
        half = client.halves[name]
        client.take_up(order.phase_of(client.id).window)
        client.enter_exchange(name, order.shares[client.id])
        with client.aside(name):
            own: Terms = getattr(half, op)(client, order.mail) or {}
        self._take_terms(client, order, reply, {f"{name}.{key}": (half, term) for key, term in own.items()})
        reply.take_records(client.id, client.records)

    def _take_terms(
        self, client: Client, order: Order, reply: Reply, terms: Mapping[str, tuple[ClientHalf, Term]]
    ) -> None:
        for full, (half, term) in terms.items():
            name = full.removeprefix(half.name + ".")
            if name not in half.knobs.replies:
                raise RunError(
                    f"{half.name} sends {name}, which its `replies` do not declare as mean, sum or by_client"
                )
            how = half.knobs.replies[name]
            reply.take_term(client.id, full, term, how, order.shares[client.id], self._where(client, order))

    def _where(self, client: Client, order: Order) -> str:
        method = names_of(client.halves) if order.op == "train" else order.op
        return f"client {client.id} diverged in round {order.phase.round} ({method})"


def torch_settings(device: torch.device, deterministic: bool) -> None:
    """Set what the determinism law needs: one thread per client computation, and on a GPU deterministic algorithms."""
    torch.set_num_threads(1)
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; deterministic products
        torch.use_deterministic_algorithms(deterministic)
        torch.backends.cuda.matmul.allow_tf32 = not deterministic
        torch.backends.cudnn.allow_tf32 = not deterministic
        torch.backends.cudnn.benchmark = not deterministic
