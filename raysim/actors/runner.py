"""The runner that carries out orders on host actors."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import ray

from raysim.actors import failures
from raysim.actors.cpu_slots import concurrent_hosts, count_slots
from raysim.actors.deferred_sums import merge_held
from raysim.actors.host import Host, Performed, Ready
from raysim.actors.rebalancing import Dealing
from raysim.actors.reservation import Places
from raysim.actors.serialization import seal, store, unpack
from raysim.actors.stalls import late_calls
from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.engine.orders import Order, Reply
from raysim.evaluation.scoring import Chunk, Counts, Scores, merge_scores
from raysim.federation.stream import Stream
from raysim.system.footprint import Peak, own_peak


@dataclass(eq=False)
class _Call:
    """One call to a host, with all broadcasts that it needs; only those that the host does not hold are sent.

    Attributes:
        asked: an order without its message, what to count, or the clients to give away.
        message, posted: the message and the broadcasts, as `serialization.store` returned them.
        arriving: references to the records of clients that live at the host from this call on.
        done, answer: whether the host has answered, and what.
        began: when the call was made (time.monotonic).
    """

    host: int
    method: str
    asked: Any
    message: Any = None
    posted: Sequence[Broadcast] = ()
    arriving: Sequence[Any] = ()
    done: bool = False
    answer: Any = None
    began: float = field(default_factory=time.monotonic)


def start_hosts(
    config: Config, federation: Any, places: Places, ways: Sequence[Mapping[str, Any]] | None = None
) -> list[Any]:
    """Start the host actors.

    Args:
        config: the resolved config.
        federation: a reference to the data.
        places: where the hosts start.
        ways: the options of `choose_start` for each host.
    """
    actor: Any = ray.remote(Host)
    options = zip(places.options(), ways or [{}] * places.placement.actors, places.placement.clients, strict=True)
    return [actor.options(**where, **how).remote(config, federation, list(own)) for where, how, own in options]


class RayRunner:
    """Runner that has host actors compute. A broadcast is stored once per version; a host replies with one sum.

    Args:
        config: the resolved config.
        streams: the clients' data.
        hosts: the host actors.
        places: where they start.
        records: a reference for each host to its clients' records, if the run resumes from a checkpoint.
        apart: whether a host computes one client per call, so that the loss of a host shows which client caused it.

    Attributes:
        placement: the host actors and their clients.
        machines: the kind of machine of each node that has hosts.
        forked: the number of forked hosts.
    """

    def __init__(
        self,
        config: Config,
        streams: Sequence[Stream],
        hosts: Sequence[Any],
        places: Places,
        records: Sequence[Any] = (),
        apart: bool = False,
    ) -> None:
        self.placement = placement = places.placement
        self._hosts = hosts
        self._posted: dict[str, Broadcast] = {}
        self._held: list[dict[str, int]] = [{} for _ in self._hosts]
        self._under_way: dict[Any, _Call] = {}
        self._apart = apart
        shared_cpus = placement.cpus < 1 and not placement.gpus and config.resources.cpus_per_actor == "auto"
        one_each = placement.actors == config.clients.count
        in_step = config.schedule.kind == "synchronous" and not apart
        fixed = one_each or shared_cpus or not in_step or not config.resources.rebalance
        self._dealing = Dealing(placement.clients, lambda client, window: streams[client].size(window), fixed)
        ready = self._ready(places)
        self.machines = {host.node: host.machine for host in ready}
        self.forked = sum(host.forked for host in ready)
        self._longest = 0.0
        self._concurrent = self._share_cpus([host.node for host in ready], placement.cpus if shared_cpus else None)
        self._answer_all([host.restore.remote(own) for host, own in zip(self._hosts, records, strict=False)])

    def begin(self, order: Order, broadcasts: Sequence[Broadcast]) -> list[_Call]:
        """Have every client of the order carry it out when it is its host's turn; return the calls to the hosts."""
        message, posted, arriving = store(order.message), self._stored(broadcasts), self._move(order)
        return self._called(
            _Call(host, "perform", self._part(order, host, own), message, posted, arriving.get(host, ()))
            for host, own in self._parts(order.clients)
        )

    def finish(self, ticket: list[_Call]) -> Reply:
        """Wait until an order is carried out, and return the merged reply."""
        answers = self._answers(ticket)
        reply: Reply = next(answers, None) or Reply(0)
        for part in answers:
            reply.merge(part)
        return reply

    def evaluate(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Scores:
        """Distribute the parts over hosts that can compute at the same time, and return the merged counts.

        A process keeps the memory that it has used for testing: with all of 200 hosts on two CPUs that would be 4 GB.
        """
        hosts = self._concurrent[: len(parts)]
        shares = {host: parts[first :: len(hosts)] for first, host in enumerate(hosts)}
        return merge_scores(list(self._count("evaluate", shares, broadcasts)))

    def evaluate_clients(self, parts: Sequence[Chunk], broadcasts: Sequence[Broadcast]) -> Mapping[int, Scores]:
        """Have every host test its clients' personalized models, and return the counts by client."""
        shares = dict.fromkeys(sorted({*self._dealing.home.values()}), parts)
        answers = self._count("evaluate_clients", shares, broadcasts)
        return {client: scores for answer in answers for client, scores in answer.items()}

    def count_remembered(self) -> Counts:
        """Have every host count what its clients' memories hold; return the sum. Memories do not leave their hosts."""
        shares = dict.fromkeys(sorted({*self._dealing.home.values()}), ())
        total: Counts = sum(self._count("count_remembered", shares, ()))
        return total

    def _count(
        self, kind: str, shares: Mapping[int, Sequence[Chunk]], broadcasts: Sequence[Broadcast]
    ) -> Iterator[Any]:
        message, posted = store(None), self._stored(broadcasts)
        calls = (_Call(host, "count", (kind, chunks), message, posted) for host, chunks in shares.items())
        return self._answers(self._called(calls))

    def _called(self, calls: Iterable[_Call]) -> list[_Call]:
        """Make these calls; return them."""
        made = list(calls)
        for call in made:
            held = self._held[call.host]
            missing = [broadcast for broadcast in call.posted if held.get(broadcast.name) != broadcast.version]
            held |= {broadcast.name: broadcast.version for broadcast in missing}
            method = getattr(self._hosts[call.host], call.method)
            self._under_way[method.remote(*seal(call.asked, call.message, missing), *call.arriving)] = call
            call.arriving = ()  # else the object store keeps the records until the reply is used
        return made

    def give_sums(self) -> Mapping[int, Reply]:
        """Have all hosts give the sums that they hold, and return them merged, by server update."""
        return merge_held(self._answer_all([host.give_sums.remote() for host in self._hosts]))

    def snapshot(self) -> list[Any]:
        """Return a reference to every host's records of its clients."""
        return [host.snapshot.remote() for host in self._hosts]

    def peaks(self) -> list[Peak]:
        """Return the peak memory of this process and of each host."""
        return [own_peak(), *self._answer_all([host.peak.remote() for host in self._hosts])]

    def late_hosts(self) -> list[int]:
        """Return the hosts that take much longer to reply than any has taken before."""
        return late_calls({call.host: call.began for call in list(self._under_way.values())}, self._longest)

    def _move(self, order: Order) -> Mapping[int, Sequence[Any]]:
        """Have clients of an order move if that pays; return references to their records, by their new host."""
        arriving: dict[int, list[Any]] = {}
        for (old, new), clients in self._dealing.deal(order).items():
            gone, given = self._hosts[old].give.remote(clients)
            self._under_way[gone] = _Call(old, "give", clients)
            arriving.setdefault(new, []).append(given)
        return arriving

    def _parts(self, clients: Sequence[int]) -> Iterable[tuple[int, list[int]]]:
        """Return pairs of a host and the clients that one call to it is for: all that it has, or one at a time."""
        if self._apart:
            return [(self._dealing.home[client], [client]) for client in clients]
        members: dict[int, list[int]] = {}
        for client in clients:
            members.setdefault(self._dealing.home[client], []).append(client)
        return members.items()

    def _part(self, order: Order, host: int, own: Sequence[int]) -> Order:
        """Return the part of an order for some of a host's clients. The call carries the message."""
        windows = {client: order.windows[client] for client in own if client in order.windows}
        shares = {client: order.shares[client] for client in own}
        later = (client for client in order.later if self._dealing.home[client] == host)
        last = tuple(islice(later, 1))
        return replace(order, clients=tuple(own), message=None, shares=shares, windows=windows, later=last)

    def _share_cpus(self, nodes: Sequence[str], cpus: float | None) -> list[int]:
        """Have the hosts of each node share its CPUs, if there are too few; return those that compute at once."""
        slots = None if cpus is None else count_slots(nodes, cpus)
        if slots is not None:
            first = {node: nodes.index(node) for node in slots}
            asked = [(host, self._hosts[host].make_slots.remote(slots[node])) for node, host in first.items()]
            paths = dict(zip(first, [self._answer(host, answer) for host, answer in asked], strict=True))
            self._answer_all([h.take_slots.remote(paths[node]) for h, node in zip(self._hosts, nodes, strict=True)])
            for node, host in first.items():
                self._answer(host, self._hosts[host].hide_slots.remote(paths[node]))
        return concurrent_hosts(nodes, slots)

    def _ready(self, places: Places) -> list[Ready]:
        """Wait until all hosts have started. Notice if a node is lost meanwhile, as its hosts would never start."""
        calls = [host.ready.remote() for host in self._hosts]
        waiting = calls
        while waiting:
            done, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=1)
            for call in done:
                self._answer(calls.index(call), call)
            if waiting:
                places.wait()
        return self._answer_all(calls)

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
                self._longest = max(self._longest, time.monotonic() - call.began)
                if isinstance(call.answer, Performed):
                    self._dealing.note(call.host, call.answer.seconds, call.answer.price)
                    call.answer = call.answer.reply
                del self._under_way[done]

    def _stored(self, broadcasts: Sequence[Broadcast]) -> list[Broadcast]:
        """Return the broadcasts as bytes, or large ones as references; each version is pickled or put once."""
        for broadcast in broadcasts:
            known = self._posted.get(broadcast.name)
            if known is None or known.version != broadcast.version:
                self._posted[broadcast.name] = replace(broadcast, value=store(broadcast.value))
        return [self._posted[broadcast.name] for broadcast in broadcasts]

    def _answer_all(self, answers: Sequence[Any]) -> list[Any]:
        """Wait for the answers of all hosts, in their order."""
        return [self._answer(host, answer) for host, answer in enumerate(answers)]

    def _answer(self, host: int, answer: Any) -> Any:
        """Wait for a host's answer."""
        with failures.explain_ray_errors(lambda: self._who(host)):
            return unpack(ray.get(answer))

    def _who(self, host: int) -> str:
        """Name the clients of a lost host: all of them, or the one in progress if they are computed one at a time."""
        asked = [call for call in self._under_way.values() if call.host == host]
        one = next((call for call in asked if call.method == "perform"), None) if self._apart else None
        leaving = [client for call in asked if call.method == "give" for client in call.asked]
        clients = sorted([*self._dealing.clients_of(host), *leaving]) if one is None else one.asked.clients
        listed = ", ".join(map(str, clients[:10])) + (", ..." if len(clients) > 10 else "")
        return f"the host of client{'s' if len(clients) > 1 else ''} {listed}"
