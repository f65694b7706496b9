"""The usual mode of local training: a host's clients train one after the other."""

from collections.abc import Iterator, Sequence

from raysim.api.messages import Delta
from raysim.api.method import halves_with_hook
from raysim.engine.hosted_client import HostedClient
from raysim.engine.op import Op
from raysim.engine.orders import Call
from raysim.engine.phases import Phases
from raysim.engine.work import Work
from raysim.models.flat import FlatModel
from raysim.models.graphs import Graphs


class OneAtATime:
    """Trainer of one client at a time.

    Args:
        phases: begins and ends phases and exchanges.
        model: the host's model.
        graphs: whether its training passes become CUDA graphs.
    """

    def __init__(self, phases: Phases, model: FlatModel, graphs: bool) -> None:
        self._phases = phases
        self._model = model
        if graphs:
            model.forward = Graphs(model)

    def divide(self, clients: list[HostedClient], work: Work) -> Iterator[Sequence[HostedClient]]:
        """Yield each client as a group of its own."""
        return ([client] for client in clients)

    def train(self, clients: Sequence[HostedClient], work: Work) -> None:
        """Train the client, and add its update and terms to the reply."""
        (client,) = clients
        self._phases.load_model()
        self._phases.begin(client, work)
        owner = halves_with_hook(client.halves.values(), "train")
        delta: Delta = client.calls(owner[0], "train", client) if owner else client.local_training()
        self._phases.end(client, work, delta)

    def exchange(self, clients: Sequence[HostedClient], call: Call, work: Work) -> None:
        """Call the client's op, and add the terms that it returns to the reply."""
        (client,) = clients
        self._phases.load_model()
        self._phases.begin_exchange(client, call, work)
        op = Op(client.calls, client, call, work.message_of(client))
        while op.wanted is not None:
            with client.rng_scope(op.half.name):
                gradient = self._model.gradient_on(*op.wanted, client.loss)
            op.answer(gradient)
        self._phases.end_exchange(client, op, work)
