"""What requests to forget cost before a run starts: their messages, and what the server keeps for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysim.api.forgetting import ForgettingServer
from raysim.api.method import Method
from raysim.engine.exchange import Traffic
from raysim.engine.hosted_server import HostedServer
from raysim.engine.orders import LEFT_OUT
from raysim.estimate.rehearsal import Round
from raysim.federation.federation import Federation
from raysim.federation.forgetting import ForgetRequest


@dataclass(frozen=True)
class Sized:
    """A message or a broadcast of which only the size is known."""

    nbytes: int


@dataclass(frozen=True)
class RequestCost:
    """What requests to forget cost."""

    requests: int
    samples: int
    """The samples that they name, each once."""
    bytes_up: int
    bytes_down: int
    exact: bool
    """Whether methods follow them exactly."""
    kept_sums: int
    """The bytes of sums that the server keeps, as it does without requests."""
    kept_positions: int
    """The bytes of positions that the server keeps, to name them in later messages."""


class RequestForecast:
    """The messages of requests to forget, given what clients sent at the ends of rehearsed tasks.

    Args:
        methods: the run's methods, by name.
        federation: the run's data.
        seen: the rehearsed rounds.
        traffic: counts what is sent to clients.
        up: counts what clients send, by method.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        federation: Federation,
        seen: Sequence[Round],
        traffic: Traffic,
        up: Counter[str],
    ) -> None:
        self._federation, self._traffic, self._up = federation, traffic, up
        exact = [name for name, method in methods.items() if issubclass(method.Server, ForgettingServer)]
        ends = [message.up for done in seen for message in done.at_end]
        # The sums over some samples are as large as those of a task.
        self._sums = {name: max((sent.get(name, 0) for sent in ends), default=0) for name in exact}
        self._left: dict[int, int] = {}  # client -> the bytes of its positions in requests so far
        self._requests = self._samples = self._bytes_up = self._bytes_down = 0

    @property
    def is_exact(self) -> bool:
        """Whether methods follow requests exactly. Then bytes are not sure: a client may have nothing to send."""
        return bool(self._sums)

    def follow(self, request: ForgetRequest, server: HostedServer) -> None:
        """Count the messages of a request."""
        down, up = self._traffic.down, sum(self._up.values())
        present = {*server.present}
        for client, positions in request.positions.items():
            self._left[client] = self._left.get(client, 0) + positions.nbytes
            if not self.is_exact:
                self._traffic.count_sent([client], {LEFT_OUT: Sized(positions.nbytes)}, ())
            elif client in present:
                asked = dict.fromkeys(self._sums, Sized(positions.nbytes))
                self._traffic.count_sent([client], asked, [server.broadcast()])
                sent = self._federation.availability.sent_at_ends(client, server.round)
                if bool((positions < sent).any()):
                    self._up.update(self._sums)
        self._requests += 1
        self._samples += sum(map(len, request.positions.values()))
        self._bytes_down += self._traffic.down - down
        self._bytes_up += sum(self._up.values()) - up

    def end_task(self, server: HostedServer) -> None:
        """Count what the messages at a task's end have in addition: the positions that are left out."""
        for client in server.present if self.is_exact else ():
            if nbytes := self._left.get(client):
                self._traffic.count_sent([client], dict.fromkeys(self._sums, Sized(nbytes)), ())

    @property
    def cost(self) -> RequestCost:
        """What the requests so far cost."""
        kept = sum(self._sums.values()), sum(self._left.values()) * self.is_exact
        return RequestCost(self._requests, self._samples, self._bytes_up, self._bytes_down, self.is_exact, *kept)
