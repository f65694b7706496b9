"""The runner that carries out orders on host actors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import ray

from raysim.actors import failures
from raysim.actors.calls import AwaitStart, Count, CountRemembered, Evaluate, EvaluateClients, Give
from raysim.actors.cpu_slots import concurrent_hosts, count_slots
from raysim.actors.deferred_sums import merge_held
from raysim.actors.host import Host, Performed, Ready
from raysim.actors.rebalancing import Rebalancing
from raysim.actors.reservation import Places
from raysim.actors.serialization import seal, store, unpack
from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.engine.orders import Order, OwnMessages
from raysim.engine.replies import Reply
from raysim.estimate.placement import Placement, take_turns
from raysim.evaluation.scoring import Chunk, Counts, Scores, merge_scores
from raysim.federation.stream import Stream
from raysim.system.footprint import Peak, own_peak


@dataclass(eq=False)
class _Call:
    """One call to a host."""

    host: int
    asked: Order | Count | Give | AwaitStart
    done: bool = False  # whether the host has answered
    answer: Any = None


def start_hosts(
    config: Config, federation: Any, places: Places, ways: Sequence[Mapping[str, Any]] | None = None
) -> list[Any]:
    """Start the host actors.

    Args:
        config: the resolved config.
        federation: a reference to the data.
        places: where the hosts start.
        ways: how each host's process starts: the options from `choose_start`.
    """
    actor: Any = ray.remote(Host)
    options = zip(places.options(), ways or [{}] * places.placement.actors, places.placement.clients, strict=True)
    return [actor.options(**where, **how).remote(config, federation, list(own)) for where, how, own in options]


class RayRunner:
    """Runner that sends orders to host actors. A broadcast is stored once per version.

    A host sends one reply for all its clients of an order, or one reply per client if `apart`.

    Args:
        config: the resolved config.
        streams: the clients' data.
        hosts: the host actors. `start` waits for them.
        placement: the hosts' resources and clients.
        apart: whether a host computes one client per call, so that the loss of a host shows which client caused it.
    """

    def __init__(
        self,
        config: Config,
        streams: Sequence[Stream],
        hosts: Sequence[Any],
        placement: Placement,
        apart: bool = False,
    ) -> None:
        self.placement = placement
        self.machines: Mapping[str, str] = {}  # node that has hosts -> its kind of machine
        self.forked = 0  # the number of forked hosts
        self._hosts = hosts
        self._broadcasts: dict[str, Broadcast] = {}  # name -> the newest version, stored
        self._held: list[dict[str, int]] = [{} for _ in self._hosts]  # for each host: broadcast -> version
        self._under_way: dict[Any, _Call] = {}  # reference to the answer -> call
        self._apart = apart
        self._concurrent: Sequence[int] = range(len(hosts))  # the hosts that may compute at the same time
        self._shares_cpus = take_turns(config, placement.cpus)
        one_each = placement.actors == config.clients.count
        in_step = config.schedule.kind == "synchronous" and not apart
        fixed = one_each or self._shares_cpus or not in_step or not config.resources.rebalance
        self._rebalancing = Rebalancing(placement.clients, lambda client, window: streams[client].size(window), fixed)

    def start(self, places: Places, states: Sequence[Any] = ()) -> Iterator[str]:
        """Wait until all hosts have started, and restore their clients. Yield how many hosts have started.

        Args:
            places: where the hosts start.
            states: a reference for each host to its clients' saved states, if the run resumes from a checkpoint.

        Raises:
            Lost: a node was lost, and its hosts will never start.
        """
        ready: dict[int, Ready] = {}
        self._under_way = {host.ready.remote(): _Call(index, AwaitStart()) for index, host in enumerate(self._hosts)}
        while self._under_way:
            yield f"hosts: {len(ready)} of {len(self._hosts)} ready"
            done: list[Any] = []
            while not done:
                done, waiting = ray.wait([*self._under_way], num_returns=len(self._under_way), timeout=1)
                if waiting:
                    places.wait()
            for reference in done:
                host = self._under_way[reference].host
                ready[host] = self._answer(host, reference)
                del self._under_way[reference]
        started = [ready[host] for host in range(len(self._hosts))]
        self.machines = {host.node: host.machine for host in started}
        self.forked = sum(host.forked for host in started)
        if self._shares_cpus:
            self._concurrent = self._share_cpus(places.group.id.hex(), [host.node for host in started])
        self._answer_all([host.restore.remote(own) for host, own in zip(self._hosts, states, strict=False)])

    def begin(self, order: Order, message: Any, broadcasts: Sequence[Broadcast]) -> list[_Call]:
        """Have the hosts carry out an order after their earlier calls. Return the calls, as the order's ticket.

        Of clients' own messages, each host receives those of its clients.
        """
        common = None if isinstance(message, OwnMessages) else store(message)
        stored, arriving = self._stored(broadcasts), self._move(order)
        return [
            self._ask(
                host,
                self._part(order, host, own),
                store(message.part(own)) if isinstance(message, OwnMessages) else common,
                stored,
                arriving.get(host, ()),
            )
            for host, own in self._parts(order.clients)
        ]

    def finish(self, ticket: list[_Call]) -> Reply:
        """Wait until an order is carried out, and return the merged reply."""
        answers = self._answers(ticket)
        reply: Reply = next(answers, None) or Reply(0)
        for part in answers:
            reply.merge(part)
        return reply

    def evaluate(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Scores:
        """Distribute the parts over hosts that can compute at the same time, and return the merged counts.

        More hosts would not be faster, and each keeps the memory of an evaluation: 4 GB for 200 hosts on two CPUs.
        """
        hosts = self._concurrent[: len(parts)]
        counts = {host: Evaluate(parts[first :: len(hosts)]) for first, host in enumerate(hosts)}
        return merge_scores(list(self._count(counts, broadcasts)))

    def evaluate_clients(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Mapping[int, Scores]:
        """Have every host test its clients' personalized models, and return the counts by client."""
        answers = self._count(dict.fromkeys(self._hosts_of_clients(), EvaluateClients(parts)), broadcasts)
        return {client: scores for answer in answers for client, scores in answer.items()}

    def count_remembered(self) -> Counts:
        """Have every host count the samples in its clients' memories, and return the sum."""
        total: Counts = sum(self._count(dict.fromkeys(self._hosts_of_clients(), CountRemembered()), ()))
        return total

    def _hosts_of_clients(self) -> list[int]:
        """Return the hosts that have clients, ascending."""
        return sorted({*self._rebalancing.home.values()})

    def _count(self, counts: Mapping[int, Count], broadcasts: Sequence[Broadcast]) -> Iterator[Any]:
        """Ask hosts to count, and yield their answers as they arrive."""
        nothing, stored = store(None), self._stored(broadcasts)
        return self._answers([self._ask(host, count, nothing, stored) for host, count in counts.items()])

    def _ask(
        self,
        host: int,
        asked: Order | Count,
        message: Any,
        broadcasts: Sequence[Broadcast],
        arriving: Sequence[Any] = (),
    ) -> _Call:
        """Call a host.

        Args:
            host: the host's number.
            asked: what it is asked for.
            message: the order's message, as `serialization.store` returned it.
            broadcasts: all that the call needs, stored. Those that the host lacks are sent.
            arriving: references to the Transfers of clients that move to the host with this call.
        """
        call, held, actor = _Call(host, asked), self._held[host], self._hosts[host]
        missing = [broadcast for broadcast in broadcasts if held.get(broadcast.name) != broadcast.version]
        held |= {broadcast.name: broadcast.version for broadcast in missing}
        function = actor.perform if isinstance(asked, Order) else actor.count
        self._under_way[function.remote(*seal(asked, message, missing), *arriving)] = call
        return call

    def give_sums(self) -> Mapping[int, Reply]:
        """Remove the sums that hosts hold back, and return them merged, by server update."""
        return merge_held(self._answer_all([host.give_sums.remote() for host in self._hosts]))

    def snapshot(self) -> list[Any]:
        """Return a reference to the clients' saved states for each host."""
        return [host.snapshot.remote() for host in self._hosts]

    def peaks(self) -> list[Peak]:
        """Return the peak memory of this process and of each host."""
        return [own_peak(), *self._answer_all([host.peak.remote() for host in self._hosts])]

    def unanswered(self) -> list[int]:
        """Return the hosts that have not answered all their calls, ascending."""
        return sorted({call.host for call in list(self._under_way.values())})

    def _move(self, order: Order) -> Mapping[int, Sequence[Any]]:
        """Move clients of an order to other hosts if that saves time. Return references to Transfers, by new host."""
        arriving: dict[int, list[Any]] = {}
        for (old, new), clients in self._rebalancing.plan_moves(order).items():
            gone, given = self._hosts[old].give.remote(clients)
            self._under_way[gone] = _Call(old, Give(clients))
            arriving.setdefault(new, []).append(given)
        return arriving

    def _parts(self, clients: Sequence[int]) -> Iterable[tuple[int, list[int]]]:
        """Return (host, clients) for each call: all clients that the host has, or one per call if `apart`."""
        if self._apart:
            return [(self._rebalancing.home[client], [client]) for client in clients]
        members: dict[int, list[int]] = {}
        for client in clients:
            members.setdefault(self._rebalancing.home[client], []).append(client)
        return members.items()

    def _part(self, order: Order, host: int, own: Sequence[int]) -> Order:
        """Return the part of an order for some of a host's clients."""
        windows = {client: order.windows[client] for client in own if client in order.windows}
        shares = {client: order.shares[client] for client in own}
        later = (client for client in order.later if self._rebalancing.home[client] == host)
        last = tuple(islice(later, 1))
        return replace(order, clients=tuple(own), shares=shares, windows=windows, later=last)

    def _share_cpus(self, run: str, nodes: Sequence[str]) -> Sequence[int]:
        """Give the hosts CPU slots of their nodes. Return hosts that may compute at the same time.

        Args:
            run: a name that no other run has.
            nodes: the node of each host.
        """
        slots = count_slots(nodes, self.placement.cpus)
        names = {node: f"{run}-{index}" for index, node in enumerate(slots)}
        hosts = zip(self._hosts, nodes, strict=True)
        self._answer_all([host.take_slots.remote(names[node], slots[node]) for host, node in hosts])
        return concurrent_hosts(nodes, slots)

    def _answers(self, calls: Sequence[_Call]) -> Iterator[Any]:
        """Yield the answers to these calls as they arrive."""
        left = list(calls)
        while left:
            for call in [call for call in left if call.done]:
                left.remove(call)
                yield call.answer
            if left:
                (done,), _ = ray.wait(list(self._under_way))
                call = self._under_way[done]
                call.answer, call.done = self._answer(call.host, done), True
                if isinstance(call.answer, Performed):
                    self._rebalancing.add_times(call.host, call.answer.seconds, call.answer.price)
                    call.answer = call.answer.reply
                del self._under_way[done]

    def _stored(self, broadcasts: Sequence[Broadcast]) -> list[Broadcast]:
        """Return the broadcasts with their values stored: small ones as bytes, large ones as references."""
        for broadcast in broadcasts:
            known = self._broadcasts.get(broadcast.name)
            if known is None or known.version != broadcast.version:
                self._broadcasts[broadcast.name] = replace(broadcast, value=store(broadcast.value))
        return [self._broadcasts[broadcast.name] for broadcast in broadcasts]

    def _answer_all(self, answers: Sequence[Any]) -> list[Any]:
        """Wait for the answers of all hosts, in their order."""
        return [self._answer(host, answer) for host, answer in enumerate(answers)]

    def _answer(self, host: int, answer: Any) -> Any:
        """Wait for a host's answer."""
        with failures.explain_ray_errors(lambda: self._who(host)):
            return unpack(ray.get(answer))

    def _who(self, host: int) -> str:
        """Name a lost host by its clients. If clients are computed one at a time, name only the one in progress."""
        asked = [call.asked for call in self._under_way.values() if call.host == host]
        one = next((order for order in asked if isinstance(order, Order)), None) if self._apart else None
        leaving = [client for given in asked if isinstance(given, Give) for client in given.clients]
        clients = sorted([*self._rebalancing.clients_of(host), *leaving]) if one is None else one.clients
        listed = ", ".join(map(str, clients[:10])) + (", ..." if len(clients) > 10 else "")
        return f"the host of client{'s' if len(clients) > 1 else ''} {listed}"
