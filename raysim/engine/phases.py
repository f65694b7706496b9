"""The beginnings and the ends of clients' phases and exchanges, which are the same in every mode of local training."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from raysim.api.encoded import Encoded
from raysim.api.messages import Delta, Terms
from raysim.api.method import ClientHalf, Method, halves_with_hook, overrides
from raysim.api.shared import Shared
from raysim.config import Config
from raysim.engine.collection import ClientUpdate
from raysim.engine.compatibility import sends_model, unsent_bytes
from raysim.engine.growing_state import GrowingState
from raysim.engine.hook_calls import HookCalls
from raysim.engine.hook_checks import describe_custom_code, place_of_hook
from raysim.engine.hosted_client import HostedClient
from raysim.engine.op import Op
from raysim.engine.orders import Call, Collect, OwnMessages, Phase
from raysim.engine.work import Work
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.models.flat import Weights
from raysim.models.task_heads import is_task_aware, select_head, tell_task
from raysim.system.custom_code import is_custom


class Phases:
    """Begins the phases and exchanges of a host's clients, and ends them with what the clients send.

    Args:
        config: the resolved config.
        federation: the data and the tasks.
        methods: the run's methods, by name.
        shared: the state that the host's clients share.
        calls: calls the halves' hooks.
    """

    def __init__(
        self, config: Config, federation: Federation, methods: Mapping[str, Method], shared: Shared, calls: HookCalls
    ) -> None:
        self.personalizes = config.evaluation.model == "local"  # whether a phase ends with a personalized model
        self.sends_model = sends_model(methods)
        self.unsent_bytes = unsent_bytes(methods, shared.model)
        self.custom_code = describe_custom_code(config, methods.values())  # the text that names it in errors
        self._model = shared.model
        self._shared = shared
        self._calls = calls
        self._depends_on_task = config.heads > 1 or is_task_aware(shared.model.module)
        self._knows_task = config.scenario.windows is None
        self._tasks = len(federation.tasks)
        self._growing = GrowingState()
        self._sample_bytes = prod(federation.shape) * shared.model.dtype.itemsize

    @property
    def sent(self) -> Weights:
        """The server's model."""
        weights: Weights = self._shared.value_of("model")
        return weights

    def load_model(self) -> None:
        """Load the server's model."""
        self._model.load(self.sent)

    def begin(self, client: HostedClient, work: Work, draws: bool = True) -> None:
        """Begin a client's phase at the loaded model. `draws` as in `HostedClient.begin_phase`."""
        info = work.info(client)
        self._tell_task(client.stream, info.window)
        client.begin_phase(info, work.share(client), draws=draws)
        for half in client.halves.values():
            self._calls(half, "start", client, work.message.get(half.name))

    def begin_exchange(self, client: HostedClient, call: Call, work: Work) -> None:
        """Begin a client's exchange at the loaded model."""
        info = work.info(client)
        self._tell_task(client.stream, info.window)
        client.receive_data(info.window)
        client.begin_exchange(call.method, info, work.share(client))
        if isinstance(work.message, OwnMessages) and is_custom(type(client.halves[call.method])):
            self._calls.received.take_own_message(client.id, work.message_of(client))

    def end(self, client: HostedClient, work: Work, delta: Delta) -> None:
        """End a client's phase: add its update, given the change of the loaded model, and its terms to the reply."""
        weights = self._model.copy() if self.personalizes else None
        deltas, sent = self._finish(client, delta)
        if weights is not None:
            self._personalize(client, weights, work)
        last, integers = deltas[-1][1], (self._model if self.sends_model else self.sent).integers
        encoded, where = self._encode(client, "update", last.parameters), work.where(client)
        update = ClientUpdate(client.id, work.weight(client), where, deltas, integers, encoded, self.unsent_bytes)
        work.collected.take_update(update)
        for half, terms in sent:
            self._send_terms(client, half, terms, work)
        work.collected.reply.steps += client.steps
        self.close(client, work)

    def collect(self, client: HostedClient, operation: Collect, work: Work) -> None:
        """Carry out a client's phase without steps: add one method's terms to the reply."""
        self.load_model()
        self._model.module.eval()  # else the mode would be that of the host's last work
        info, half = work.info(client), client.halves[operation.method]
        self._tell_task(client.stream, info.window)
        client.begin_phase(info, work.share(client))
        self._calls(half, "start", client, work.message.get(half.name))
        if overrides(type(half), "finish"):
            none = Delta(torch.zeros_like(self._model.parameters), torch.zeros_like(self._model.buffers))
            _, terms = self._calls(half, "finish", client, none)
            self._send_terms(client, half, terms, work)
        work.collected.reply.updates += 1
        self.close(client, work)

    def end_exchange(self, client: HostedClient, op: Op, work: Work) -> None:
        """End a client's exchange: add the op's terms to the reply."""
        with client.rng_scope("encode"):
            self._send_terms(client, op.half, op.terms, work)
        self.close(client, work)

    def close(self, client: HostedClient, work: Work) -> None:
        """Check what hooks may have damaged, and add the client's records to the reply."""
        self._calls.check_phase(client.halves.values())
        if isinstance(work.order.operation, Phase):
            self._watch_state(client, work)
        work.collected.take_records(client.id, client.records)
        client.forget()

    def _watch_state(self, client: HostedClient, work: Work) -> None:
        """Add a warning to the reply if a custom half's state grows beyond the client's data and two models."""
        for half in client.halves.values():
            if is_custom(type(half)):
                data = client.stream.end(client.window) * self._sample_bytes
                bound = max(data, 2 * sum(vector.nbytes for vector in self._model.vectors))
                found = self._growing.grown(half, f"client {client.id}", client.begins_stage, bound)
                work.collected.reply.warnings |= {f"{half.name}.{name}": text for name, text in found}

    def _tell_task(self, stream: Stream, window: int) -> None:
        """Tell the model the task of a window, and select its head. Clients may not know it."""
        if not self._depends_on_task:
            return
        task, so_far = stream.task_of_stage(window) if self._knows_task else (None, self._tasks)
        select_head(self._model.module, task or 0)  # there is one head if clients do not know the task
        tell_task(self._model.module, task, so_far)

    def _finish(
        self, client: HostedClient, delta: Delta
    ) -> tuple[list[tuple[str, Delta]], list[tuple[ClientHalf, Terms]]]:
        """Pass a delta through the `finish` hooks. Return the deltas as in ClientUpdate, and the terms by half."""
        sent: list[tuple[ClientHalf, Terms]] = []
        deltas = [(self.custom_code, delta)]
        for half in halves_with_hook(client.halves.values(), "finish"):
            delta, terms = self._calls(half, "finish", client, delta)
            sent.append((half, terms))
            if is_custom(type(half)):
                deltas.append((f" returned by {place_of_hook(type(half), 'finish')}", delta))
        if not self.sends_model:
            return [("", Delta(torch.zeros_like(delta.parameters), torch.zeros_like(delta.buffers)))], sent
        deltas[-1] = deltas[-1][0], delta
        return deltas, sent

    def _personalize(self, client: HostedClient, weights: Weights, work: Work) -> None:
        """Store the client's personalized model, given its weights after local training."""
        for half in halves_with_hook(client.halves.values(), "personalize"):
            weights = self._calls(half, "personalize", client, weights)
        client.personalized = tuple(vector.clone() for vector in weights.vectors)  # a half may change its tensors
        client.tuned = object()
        work.collected.watch(weights.parameters, f"{work.where(client)}, in its personalized model")

    def _send_terms(self, client: HostedClient, half: ClientHalf, terms: Terms, work: Work) -> None:
        """Add a half's terms to the reply. Encode them if a method overrides `encode`."""
        share, where = work.share(client), work.where(client)
        if is_custom(type(half)):
            where += f", in the terms from {place_of_hook(type(half), work.order.operation.returns_in)}"
        for name, term in terms.items():
            how, full_name = half.method.replies[name], f"{half.name}.{name}"
            if how in ("mean", "sum"):
                term = replace(term, value=self._encode(client, full_name, term.value))
            work.collected.take_term(client.id, full_name, term, how, share, where)

    def _encode(self, client: HostedClient, name: str, value: Tensor | Encoded) -> Tensor | Encoded:
        """Encode a vector [P] if a method overrides `encode`. Return any other value unchanged."""
        owner = halves_with_hook(client.halves.values(), "encode")
        if not owner or isinstance(value, Encoded) or value.shape != self._model.parameters.shape:
            return value
        draws = client.generator(f"{owner[0].name}: {name}")
        encoded: Tensor | Encoded = self._calls(owner[0], "encode", name, value, draws)
        return encoded
