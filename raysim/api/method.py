"""A method is one file with two halves: what each client does, and what the server does.

A method's fields are its YAML keys. There is one client half per client, beside that client's data, and one server half
in the simulation. A hook that a half does not override is never called; the implementation here is the default
behaviour. The first word of a hook's docstring says how the hooks of several methods are combined:

    chained    in the listed order, each is given what the one before it returned
    summed     the results are added
    EXCLUSIVE  refused at start if two methods override it

>>> from dataclasses import dataclass
>>> @dataclass(frozen=True, kw_only=True)
... class Shrink(Method):
...     '''Shrink: every client halves what it sends. A toy.'''
...     factor: float = 0.5
...     class Client(ClientHalf):
...         method: "Shrink"
...         def finish(self, client, delta):
...             return Delta(delta.parameters * self.method.factor, delta.buffers), {}
>>> overrides(Shrink.Client, "finish"), overrides(Shrink.Client, "penalty")
(True, False)
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from pydantic import ConfigDict
from torch import Tensor

from raysim.api.client import Client
from raysim.api.encoded import Encoded
from raysim.api.messages import Broadcast, Delta, Reduction, Request, Terms
from raysim.api.server import Server
from raysim.api.setting import Setting
from raysim.api.step import Step
from raysim.memory import MemoryUse
from raysim.models.flat import FlatModel, Weights
from raysim.system.errors import RunError
from raysim.system.state import ALLOWED, Stateful, find_foreign

Plan = Generator[Request, Mapping[str, Any], None]
AnyHalf = TypeVar("AnyHalf", bound="Half")
Need = Literal[
    "boundaries",
    "server_boundaries",
    "barrier",
    "plain_sgd",
    "undecayed_sgd",
    "unclipped",
    "earlier_logits",
    "unlabelled",
    "one_head",
    "classes",
]


class Half(Stateful):
    """Base of both halves, with the method's method. Other attributes are its state, which a checkpoint keeps."""

    transient: ClassVar = frozenset({"name", "method"})
    side: ClassVar[str]
    method: Any

    def __init__(self, name: str, method: Method) -> None:
        self.name = name
        self.method = method

    def state(self) -> dict[str, Any]:
        """Return the state of this half. Raises RunError: an attribute is of a type that a checkpoint cannot hold."""
        state = super().state()
        for key, value in state.items():
            foreign = find_foreign(value)
            if foreign is not None:
                raise RunError(
                    f"{self.name}: its {self.side} half's attribute {key} holds a {foreign}, which a checkpoint cannot "
                    f"keep, allowed: {ALLOWED}"
                )
        return state


class ClientHalf(Half):
    """The client's side of a method. Any public method beyond these hooks is an op that the server half can ask for."""

    side: ClassVar = "client"
    features: ClassVar[bool] = False  # whether step.features is wanted; head_parts is then 1 or 2

    def receive(self, client: Client) -> None:
        """Chained: put into `client.model` what stays at this client, before it trains on, or answers at, a new model.

        What has become of it is what the client was sent, `client.received`.
        """

    def begin_task(self, client: Client) -> None:
        """Take in `client.finished`, what arrived since the last call; at the first phase after the data changed."""

    def start(self, client: Client, message: Any) -> None:
        """Begin a training phase; `message` is what this method's server half announced."""

    def samples(self, client: Client) -> Tensor:
        """EXCLUSIVE: return the positions (int64) in the client's stream that an epoch runs over."""
        return client.arrived

    def batches(self, client: Client) -> Iterable[tuple[Tensor, Tensor]] | None:
        """EXCLUSIVE: return an epoch's batches, x [n, ...] and y [n], that are not of the stream; None if they are.

        Called for every epoch. A label of -100 is none. The update counts by the client's data of the stream, still.
        """
        return None

    def batch(self, step: Step) -> None:
        """Chained: add rows to step.x and step.y before the forward pass."""

    def task_loss(self, step: Step) -> Tensor:
        """EXCLUSIVE: return the loss on the data, in place of the objective's."""
        return step.client.loss(step.logits, step.y)

    def penalty(self, step: Step) -> Tensor:
        """Summed into the loss: return a scalar that autograd can follow."""
        return step.loss.new_zeros(())

    def gradient(self, step: Step, gradient: Tensor) -> Tensor:
        """Chained: return the gradient [P] to use; changing the given one in place is allowed."""
        return gradient

    def train(self, client: Client) -> Delta:
        """EXCLUSIVE: run the whole local loop; put the number of its gradient steps into client.steps."""
        return client.local_training()

    def observe(self, step: Step) -> None:
        """Observe a step after it was taken."""

    def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
        """Chained: return the delta that is sent as the update, and the terms that are sent with it."""
        return delta, {}

    def personalize(self, client: Client, own: Weights) -> Weights:
        """Chained: return the client's own model, by default what it had after its training.

        Called at the end of every phase, where evaluation.model is local. It may be of tensors that are the half's.
        """
        return own

    def encode(self, name: str, vector: Tensor, draws: np.random.Generator) -> Tensor | Encoded:
        """EXCLUSIVE: return a vector [P] as it is sent, or the vector itself; `draws` are this client's for it.

        Called after `finish` with the update, as "update", and with every term as long as it that is summed, as
        "METHOD.TERM".
        """
        return vector


class ServerHalf(Half):
    """The server's side of a method."""

    side: ClassVar = "server"

    def select(self, server: Server) -> Sequence[int]:
        """EXCLUSIVE: return the ids of the clients that take part, out of server.present."""
        return server.sample()

    def prepare(self, server: Server) -> Plan:
        """Exchange messages with the cohort before it trains."""
        yield from ()

    def announce(self, server: Server) -> tuple[Any, Sequence[Broadcast]]:
        """Return the message for this method's client halves, and what it broadcasts."""
        return None, ()

    def evaluated(self, server: Server) -> Weights | None:
        """EXCLUSIVE: return what is evaluated, and written at the end, in place of the model; None for the model.

        Called after a task's `end_task`. The model itself is what clients are sent.
        """
        return None

    def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
        """Chained: return what is added to the model, given the cohort's mean delta and this method's reduced terms."""
        return delta

    def conclude(self, server: Server) -> Plan:
        """Exchange messages with the same cohort after the new model is made."""
        yield from ()

    def end_task(self, server: Server) -> Plan:
        """Exchange messages with all clients present at a task boundary, after the task's last round."""
        yield from ()


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method's method, with its halves as nested classes."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    needs: ClassVar[frozenset[Need]] = frozenset()
    """The needs of this method; a run that does not meet them is refused at start."""
    instead: ClassVar[Mapping[Need, str]] = {}
    """By need: the KEY=VALUE of this method with which it does not have the need."""
    neutral: ClassVar[Mapping[str, object] | None] = None
    """The hyperparameters at which the method does not change a single bit of a run, or None if there are none."""
    frugal: ClassVar[Mapping[str, object]] = {}
    """The hyperparameters at which the method uses least memory, named if a run does not fit into memory."""
    memory: ClassVar[MemoryUse | None] = None
    """Its requirements of the clients' replay memories, if it needs them."""
    replies: ClassVar[Mapping[str, Reduction]] = {}
    """How each term that the client half sends is reduced."""

    Client: ClassVar[type[ClientHalf]] = ClientHalf
    Server: ClassVar[type[ServerHalf]] = ServerHalf

    def waits(self) -> bool:
        """Return whether a round of this method waits for the whole cohort, which only a synchronous schedule has."""
        return any(overrides(self.Server, hook) for hook in ("prepare", "conclude"))

    def head_parts(self) -> int:
        """Return how many of `model.head` are used: 1, its weight, or 2, its bias too; else a model is refused."""
        return 0

    def local_bytes(self, model: FlatModel) -> int:
        """Return how many bytes of the model are never sent, in neither direction, as each client has its own."""
        return 0

    def unfit(self, model: FlatModel) -> str | None:
        """Return why these hyperparameters do not suit such a model, and what would work; None if nothing is wrong."""
        return None

    def refusal(self, setting: Setting) -> str | None:
        """Return why these hyperparameters do not suit such a run, and what would work; None if nothing is wrong."""
        return None


def overrides(half: type[Half], hook: str) -> bool:
    """Return whether a half's class overrides a hook."""
    origin = ClientHalf if issubclass(half, ClientHalf) else ServerHalf
    return getattr(half, hook) is not getattr(origin, hook)


def halves_with_hook(halves: Iterable[AnyHalf], hook: str) -> list[AnyHalf]:
    """Return the halves that override this hook, in the listed order."""
    return [half for half in halves if overrides(type(half), hook)]


EXCLUSIVE = {ClientHalf: ("samples", "batches", "task_loss", "train", "encode"), ServerHalf: ("select", "evaluated")}
INSIDE_THE_LOOP = ("samples", "batches", "batch", "task_loss", "penalty", "gradient", "observe")
