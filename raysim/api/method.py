"""A method: its client side, its server side, and the hooks that they may override.

A method's fields are its YAML keys. Every client has its own client side. The simulation has one server side. The code
here shows the effect of a hook that is not overridden. If several methods override a hook, all are called, in the
order in which the config lists the methods. The first word of some docstrings says how their results combine:

    Chained    each method receives what the previous one returned, or the object that the previous one changed
    Summed     the results are added
    EXCLUSIVE  at most one method may override the hook; a run with two is refused
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from torch import Tensor

from raysim.api.client import Client
from raysim.api.encoded import Encoded
from raysim.api.messages import Broadcast, Delta, Reduction, Request, Terms
from raysim.api.server import Server
from raysim.api.setting import Need, Setting
from raysim.api.step import Step
from raysim.memory import MemoryUse
from raysim.models.flat import FlatModel, Weights
from raysim.system.errors import RunError
from raysim.system.state import Stateful, describe_foreign, keeps_itself, state_of

Plan = Generator[Request, Mapping[str, Any], None]
"""A generator that yields requests. Each `yield` returns the reduced reply: each term's reduced value, by name."""
AnyHalf = TypeVar("AnyHalf", bound="Half")


class Half(Stateful):
    """Base of both sides. All attributes except `name` and `method` are state, and are saved in checkpoints."""

    transient: ClassVar = frozenset({"name", "method"})
    side: ClassVar[str]
    method: Any
    """The method, with its hyperparameters."""

    def __init__(self, name: str, method: Method) -> None:
        self.name = name
        self.method = method

    def state(self) -> dict[str, Any]:
        """Return the state of this side.

        Raises:
            RunError: a checkpoint cannot hold an attribute's type.

        >>> list(half.state())
        ['old']
        """
        self.check_state()
        return super().state()

    def check_state(self, by: str = "") -> None:
        """Check that a checkpoint can hold this side. The error has the text `by` after the attribute's name.

        Raises:
            RunError: an attribute has a type that a checkpoint cannot hold.

        >>> half.check_state()
        """
        kept = {key: value for key, value in vars(self).items() if key not in self.transient}
        for key, value in kept.items():
            if keeps_itself(value) and not hasattr(type(self)(self.name, self.method), key):
                why: str | None = f"a {type(value).__name__}; make it in __init__, or no checkpoint can restore it"
            else:
                why = describe_foreign(state_of(value))
            if why:
                raise RunError(f"{self.name}: its {self.side} side's attribute {key}{by} holds {why}")


class ClientHalf(Half):
    """The client's side of a method.

    Public functions other than hooks are ops, which `Request(op)` asks for: terms, None, or `GradientRequests`.

    >>> class Client(ClientHalf):
    ...     def count(self, client, message):
    ...         return {"count": Term(torch.tensor(float(len(client.arrived))))}
    >>> Client("mine", half.method).count(client, None)["count"].value
    tensor(12.)
    """

    side: ClassVar = "client"
    features: ClassVar[bool] = False
    """Whether the side reads `step.features`. If so, `Method.head_parts` must return 1 or 2."""
    vectorises: ClassVar[bool] = False
    """Whether the hooks of this class run under torch.vmap, as "Clients that train together" in the guide explains."""
    local_steps: ClassVar[bool] = False
    """Whether the side's `train` follows `training.local_steps`. If not, that key is refused with the method."""

    def receive(self, client: Client) -> None:
        """Chained: put the client's parameters into `client.model` before a phase or exchange; see `received`.

        >>> def receive(self, client):
        ...     client.model.parameters[-24:] = self.old[-24:]
        """

    def begin_task(self, client: Client) -> None:
        """Learn from the stages that have just ended. `client.finished` has the positions of their samples.

        Called at the start of each stage's first phase. Needs a run that notifies clients of boundaries.

        >>> def begin_task(self, client):
        ...     self.old = client.model.parameters.clone()
        """

    def start(self, client: Client, message: Any) -> None:
        """Begin local training. `message` is what this method's server side announced, or None.

        >>> def start(self, client, message):
        ...     self.strength = message["strength"]
        """

    def samples(self, client: Client) -> Tensor:
        """EXCLUSIVE: return the positions (int64 [n], in the client's stream) that an epoch runs over.

        >>> def samples(self, client):
        ...     return client.arrived[-100:]
        """
        return client.arrived

    def batches(self, client: Client) -> Iterable[tuple[Tensor, Tensor]] | None:
        """EXCLUSIVE: return an epoch's batches from another source, as x [n, ...] and y [n]. None uses the stream.

        Called once per epoch. Label -100 means unlabelled. The update's weight still counts the samples in the stream.

        >>> def batches(self, client):
        ...     yield client.unlabelled_samples(client.unlabelled), torch.full((3,), -100)
        """
        return None

    def batch(self, step: Step) -> None:
        """Chained: append rows to `step.x` and `step.y` before the forward pass.

        >>> def batch(self, step):
        ...     step.x, step.y = torch.cat([step.x, -step.x]), torch.cat([step.y, step.y])
        """

    def task_loss(self, step: Step) -> Tensor:
        """EXCLUSIVE: return the loss on the batch, in place of the objective's loss.

        >>> def task_loss(self, step):
        ...     return nn.functional.cross_entropy(step.logits, step.y, label_smoothing=0.1)
        """
        return step.client.loss(step.logits, step.y)

    def penalty(self, step: Step) -> Tensor:
        """Summed: return a differentiable scalar that is added to the loss.

        >>> def penalty(self, step):
        ...     return 0.01 * step.logits.square().mean()
        """
        return step.loss.new_zeros(())

    def gradient(self, step: Step, gradient: Tensor) -> Tensor:
        """Chained: return the gradient [P] to use. You may change the given gradient in place.

        >>> def gradient(self, step, gradient):
        ...     return gradient.add_(step.client.model.parameters - step.client.received, alpha=0.1)
        """
        return gradient

    def train(self, client: Client) -> Delta:
        """EXCLUSIVE: run the whole local loop, set `client.steps`, and return the change of the model.

        >>> def train(self, client):
        ...     delta = client.local_training()
        ...     return Delta(delta.parameters.clamp(-1, 1), delta.buffers)
        """
        return client.local_training()

    def observe(self, step: Step) -> None:
        """Observe a step after the optimizer has taken it.

        >>> def observe(self, step):
        ...     step.client.record("batch_loss", step.loss.detach())
        """

    def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
        """Chained: return the delta to send as the update, and the terms to send with it.

        >>> def finish(self, client, delta):
        ...     return delta, {"samples": Term(torch.tensor(float(len(client.arrived))))}
        """
        return delta, {}

    def personalize(self, client: Client, weights: Weights) -> Weights:
        """Chained: return the client's personalized model. `weights` is the client's model after local training.

        Called at the end of every phase if `evaluation.model` is local.

        >>> def personalize(self, client, weights):
        ...     return Weights((weights.parameters + self.old) / 2, weights.buffers, weights.integers)
        """
        return weights

    def encode(self, name: str, vector: Tensor, draws: np.random.Generator) -> Tensor | Encoded:
        """EXCLUSIVE: return the encoded form of a vector [P] to send, or the vector itself.

        Called after `finish` for the update, and for every term [P] that the server averages or sums. `name` is
        "update" or "METHOD.TERM". `draws` is this client's random generator for this name.

        >>> def encode(self, name, vector, draws):
        ...     return Rounded(vector.half()) if name == "update" else vector
        """
        return vector


class ServerHalf(Half):
    """The server's side of a method.

    >>> class Server(ServerHalf):
    ...     def update(self, server, delta, reply):
    ...         return Delta(0.5 * delta.parameters, delta.buffers)
    >>> Server("mine", half.method).update(server, Delta(torch.ones(2), torch.zeros(0)), {}).parameters
    tensor([0.5000, 0.5000])
    """

    side: ClassVar = "server"

    def select(self, server: Server) -> Sequence[int]:
        """EXCLUSIVE: return the ids of the round's clients, chosen from `server.present`.

        >>> def select(self, server):
        ...     return [client for client in server.present if server.size(client) > 10]
        """
        return server.sample()

    def prepare(self, server: Server) -> Plan | None:
        """Exchange messages with the cohort before it trains. In hooks that return a Plan, None is an empty plan.

        >>> def prepare(self, server):
        ...     self.count = (yield Request("count"))["count"]
        """
        return None

    def trains(self, server: Server) -> bool:
        """EXCLUSIVE: return whether this round's clients train; see "Rounds without training" in the guide.

        >>> def trains(self, server):
        ...     return server.task == 0
        """
        return True

    def announce(self, server: Server) -> tuple[Any, Sequence[Broadcast]]:
        """Return the message for this method's client sides, and a list of broadcasts.

        >>> def announce(self, server):
        ...     return {"strength": 0.5}, [Broadcast(self.name, server.version, self.old)]
        """
        return None, ()

    def evaluated(self, server: Server) -> Weights | None:
        """EXCLUSIVE: return the weights to evaluate and to write to model.pt. None uses the server's model.

        Called for each version that is tested or saved, after any `end_task` exchanges. Clients get the server's model.

        >>> def evaluated(self, server):
        ...     return Weights(self.old, server.buffers, server.integers)
        """
        return None

    def update(self, server: Server, delta: Delta, reply: Mapping[str, Any]) -> Delta:
        """Chained: return the delta to add to the model.

        Args:
            server: the server, before the update.
            delta: the cohort's mean delta, after the changes by methods that the config lists earlier.
            reply: this method's terms by name, reduced as `Method.replies` declares.

        >>> def update(self, server, delta, reply):
        ...     server.record("update_norm", delta.parameters.norm())
        ...     return delta
        """
        return delta

    def conclude(self, server: Server) -> Plan | None:
        """Exchange messages with the round's cohort after the model's update.

        >>> def conclude(self, server):
        ...     self.count = (yield Request("count", to=server.cohort[:2]))["count"]
        """
        return None

    def end_task(self, server: Server) -> Plan | None:
        """Exchange messages with all present clients after a task's last round.

        >>> def end_task(self, server):
        ...     self.count = (yield Request("count", to="everyone"))["count"]
        """
        return None


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method: its hyperparameters as fields, its sides as nested classes, and what it requires of a run.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Proximal(Method):
    ...     '''A pull to the received model.'''
    ...     mu: float = 0.1
    >>> Proximal(mu=0.5).mu
    0.5
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    """The method's needs. A run that does not meet them is refused at start."""
    instead: ClassVar[Mapping[Need, str]] = {}
    """Maps a need to a setting KEY=VALUE of this method that removes the need. Error messages suggest the setting."""
    neutral: ClassVar[Mapping[str, object] | None] = None
    """Hyperparameter values at which the run is bitwise identical to one without the method. None if there are none."""
    frugal: ClassVar[Mapping[str, object]] = {}
    """The hyperparameter values with the lowest memory use. The error for too little memory suggests them."""
    files: ClassVar[Sequence[str]] = ()
    """The hyperparameters that are files, or folders of encoders. A run records digests, and ends if one changes."""
    memory: ClassVar[MemoryUse | None] = None
    """What the method requires of the clients' replay memories. None if it needs no memory."""
    replies: ClassVar[Mapping[str, Reduction]] = {}
    """Maps each term's name to the way in which the server reduces all clients' values."""
    sends_model: ClassVar[bool] = True
    """Whether the model and its updates are sent. If not, no bytes count for them, and every update is zero."""

    Client: ClassVar[type[ClientHalf]] = ClientHalf
    Server: ClassVar[type[ServerHalf]] = ServerHalf

    def waits(self) -> bool:
        """Return whether a round waits for the whole cohort, which needs a synchronous schedule.

        >>> Proximal().waits()
        False
        """
        return any(overrides(self.Server, hook) for hook in ("prepare", "conclude"))

    def takes_sample_gradients(self) -> bool:
        """Return whether it computes the gradients of single samples with torch.func.vmap, which some models refuse.

        >>> Proximal().takes_sample_gradients()
        False
        """
        return False

    def head_parts(self) -> int:
        """Return how many entries of `model.head` the method uses: 0, 1 (weight) or 2 (weight and bias).

        >>> def head_parts(self):
        ...     return 2
        """
        return 0

    def local_bytes(self, model: FlatModel) -> int:
        """Return the bytes of the model that stay at the clients and are never sent.

        >>> def local_bytes(self, model):
        ...     return 24 * model.dtype.itemsize
        """
        return 0

    def unfit(self, model: FlatModel) -> str | None:
        """Return why the method cannot run with this model, and what would work. None if it can.

        >>> def unfit(self, model):
        ...     return "found BatchNorm, allowed: a model without it" if model.normalises else None
        """
        return None

    def refusal(self, setting: Setting) -> str | None:
        """Return why the method cannot run in this setting, and what would work. None if it can.

        >>> def refusal(self, setting):
        ...     return None if setting.class_incremental else "allowed: tasks that differ in their classes"
        """
        return None


def overrides(half: type[Half], hook: str) -> bool:
    """Return whether a side's class overrides a hook."""
    origin = ClientHalf if issubclass(half, ClientHalf) else ServerHalf
    return getattr(half, hook) is not getattr(origin, hook)


def halves_with_hook(halves: Iterable[AnyHalf], hook: str) -> list[AnyHalf]:
    """Return the sides that override this hook, in the given order."""
    return [half for half in halves if overrides(type(half), hook)]


EXCLUSIVE: Mapping[type[Half], tuple[str, ...]] = {
    ClientHalf: ("samples", "batches", "task_loss", "train", "encode"),
    ServerHalf: ("select", "trains", "evaluated"),
}
"""The hooks that at most one method of a run may override."""
INSIDE_THE_LOOP = ("samples", "batches", "batch", "task_loss", "penalty", "gradient", "observe")
"""The hooks that the local loop calls. A side that overrides `train` replaces the loop."""
