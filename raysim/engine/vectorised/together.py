"""The mode of local training in which a host trains several clients as one program: `training.vectorise`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from torch import Tensor

from raysim.api.messages import Delta
from raysim.api.method import Method, overrides
from raysim.engine.hosted_client import HostedClient
from raysim.engine.op import Op
from raysim.engine.orders import Call
from raysim.engine.phases import Phases
from raysim.engine.vectorised.block import ClientBlock, stack
from raysim.engine.work import Work
from raysim.models.flat import FlatModel, Weights


class Together:
    """Trainer of up to `training.vectorise` clients at a time.

    Args:
        methods: the run's methods, by name.
        phases: begins and ends phases and exchanges.
        block: the local loop of several clients.
        model: the host's model.
    """

    def __init__(self, methods: Mapping[str, Method], phases: Phases, block: ClientBlock, model: FlatModel) -> None:
        self._phases = phases
        self._block = block
        self._model = model
        # Whether a hook may change the model before the first step.
        self._hooks_move_model = _overridden(methods, "receive", "start", "begin_task")
        hooked = self._hooks_move_model or _overridden(methods, "finish", "encode") or phases.personalizes
        # Whether updates are summed as rows: no hook runs for a single client before or after the block.
        self._sums_rows = phases.sends_model and not (hooked or phases.unsent_bytes)

    def divide(self, clients: list[HostedClient], work: Work) -> Iterator[Sequence[HostedClient]]:
        """Yield blocks of clients with similar numbers of samples."""
        ordered = sorted(clients, key=lambda client: client.stream.size(work.info(client).window))
        for first in range(0, len(ordered), self._block.width):
            yield ordered[first : first + self._block.width]

    def train(self, clients: Sequence[HostedClient], work: Work) -> None:
        """Train the clients, and add their updates and terms to the reply."""
        order = work.order
        state = stack([self._begin(client, work, client is clients[0]) for client in clients])
        buffers = state.buffers.clone()
        self._block.train(clients, state, order.cohort_size)
        if self._sums_rows and len(order.clients) > 1:
            self._sum_rows(clients, state, state.buffers - buffers, work)
            return
        for client, start, *vectors in zip(clients, buffers, *state.vectors, strict=True):
            self._model.load(Weights(*vectors))
            client.go_on()
            delta = Delta(self._model.parameters - client.received, self._model.buffers - start)
            self._phases.end(client, work, delta)

    def exchange(self, clients: Sequence[HostedClient], call: Call, work: Work) -> None:
        """Call the clients' ops. The gradients that the ops request are computed together."""
        ops: list[Op] = []
        weights: list[Weights] = []
        for client in clients:
            self._phases.load_model()
            self._phases.begin_exchange(client, call, work)
            ops.append(Op(client.calls, client, call, work.message_of(client)))
            weights.append(self._model.copy())
        for number in count():
            wanted = {i: op.wanted for i, op in enumerate(ops) if op.wanted is not None}
            if not wanted:
                break
            found = self._block.gradients(
                clients, stack(weights), wanted, (call.method, number), work.order.cohort_size
            )
            for i, gradient in found.items():
                self._model.load(weights[i])
                ops[i].answer(gradient)
                weights[i] = self._model.copy()
        for client, op in zip(clients, ops, strict=True):
            self._phases.end_exchange(client, op, work)

    def _begin(self, client: HostedClient, work: Work, is_first: bool) -> Weights:
        """Begin a client's phase, and return the weights with which it begins."""
        if is_first or self._hooks_move_model:
            self._phases.load_model()
        self._phases.begin(client, work, draws=not self._sums_rows)
        weights = self._model.copy() if self._hooks_move_model else self._phases.sent
        if not self._sums_rows:
            client.pause()
        return weights

    def _sum_rows(self, clients: Sequence[HostedClient], state: Weights, buffers: Tensor, work: Work) -> None:
        """Add the clients' updates to the reply as rows, given their weights [n, ...] and the change of the buffers."""
        parameters = state.parameters.sub_(self._phases.sent.parameters)
        weights, where = [work.weight(client) for client in clients], [work.where(client) for client in clients]
        numbers, by = [client.id for client in clients], self._phases.custom_code
        work.collected.take_rows(numbers, Delta(parameters, buffers), state.integers, weights, where, by)
        for client in clients:
            work.collected.reply.steps += client.steps
            self._phases.close(client, work)


def _overridden(methods: Mapping[str, Method], *hooks: str) -> bool:
    """Return whether a client half overrides one of these hooks."""
    return any(overrides(method.Client, hook) for method in methods.values() for hook in hooks)
