"""The runner that carries out orders on host actors."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ray

from raysim.actors import failures
from raysim.actors.placing import Places
from raysim.actors.turns import Turns
from raysim.actors.wire import seal, store, unpack
from raysim.api.messages import Post
from raysim.config import Config
from raysim.engine.orders import Order, Reply
from raysim.evaluation.scoring import Chunk, Scores, merge_scores
from raysim.system.footprint import Peak, own_peak


@dataclass(eq=False)
class _Call:
    """One call to a host, with all posts that it needs; only those that the host does not hold are sent.

    `asked` is an order without its mail, or the chunks of an evaluation; mail and posts are as `wire.store` made them.
    """

    host: int
    method: str
    asked: Any
    mail: Any
    posted: Sequence[Post]
    done: bool = False
    answer: Any = None


def _part(order: Order, own: Sequence[int]) -> Order:
    """Return the part of an order that is for some of its clients, without the mail, which is sent separately."""
    windows = {client: order.windows[client] for client in own if client in order.windows}
    return replace(order, clients=tuple(own), shares={k: order.shares[k] for k in own}, windows=windows, mail=None)


class RayRunner:
    """Runner that has host actors compute. A post is stored once per version; a host replies with one sum.

    Args:
        config: the resolved config.
        hosts: the host actors.
        places: where they start.
        records: a reference for each host to its clients' records, if the run resumes from a checkpoint.
        apart: whether a host computes one client per call, so that the loss of a host shows which client caused it.

    `machines` are the kinds of machine of the nodes that have hosts, by node.
    """

    def __init__(
        self, config: Config, hosts: Sequence[Any], places: Places, records: Sequence[Any] = (), apart: bool = False
    ) -> None:
        self.placement = placement = places.placement
        self._hosts = hosts
        self._home = {client: h for h, clients in enumerate(placement.clients) for client in clients}
        self._posted: dict[str, Post] = {}
        self._held: list[dict[str, int]] = [{} for _ in self._hosts]
        self._under_way: dict[Any, _Call] = {}
        self._apart = apart
        ready = self._ready(places)
        self.machines = dict(ready)
        shared_cpus = placement.cpus < 1 and not placement.gpus and config.resources.cpus_per_actor == "auto"
        self._turns = Turns[_Call]([node for node, _ in ready], placement.cpus if shared_cpus else None)
        self._answer_all([host.restore.remote(own) for host, own in zip(self._hosts, records, strict=False)])

    def begin(self, order: Order, posts: Sequence[Post]) -> list[_Call]:
        """Have every client of the order carry it out as soon as there is room; return the calls to the hosts."""
        mail, posted = store(order.mail), self._stored(posts)
        return self._queued(
            _Call(host, "perform", _part(order, own), mail, posted) for host, own in self._parts(order.clients)
        )

    def finish(self, ticket: list[_Call]) -> Reply:
        """Wait until an order is carried out, and return the merged reply."""
        reply = Reply(ticket[0].asked.cohort if ticket else 0)
        for part in self._answers(ticket):
            reply.merge(part)
        return reply

    def evaluate(self, parts: Sequence[Chunk], posts: Sequence[Post]) -> Scores:
        """Distribute the parts over the hosts, and return the merged counts."""
        count = len(self._hosts)
        mail, posted = store(None), self._stored(posts)
        shares = [(h, parts[h::count]) for h in range(count) if parts[h::count]]
        calls = self._queued(_Call(h, "evaluate", own, mail, posted) for h, own in shares)
        return merge_scores(list(self._answers(calls)))

    def _queued(self, calls: Iterable[_Call]) -> list[_Call]:
        made = list(calls)
        for call in made:
            self._turns.wait(call.host, call)
        self._start()
        return made

    def snapshot(self) -> list[Any]:
        """Return a reference to every host's records of its clients."""
        return [host.snapshot.remote() for host in self._hosts]

    def peaks(self) -> list[Peak]:
        """Return the peak memory of this process and of each host."""
        return [own_peak(), *self._answer_all([host.peak.remote() for host in self._hosts])]

    def _parts(self, clients: Sequence[int]) -> Iterable[tuple[int, list[int]]]:
        """Return pairs of a host and the clients that one call to it is for: all that it has, or one at a time."""
        if self._apart:
            return [(self._home[client], [client]) for client in clients]
        members: dict[int, list[int]] = {}
        for client in clients:
            members.setdefault(self._home[client], []).append(client)
        return members.items()

    def _start(self) -> None:
        """Start the calls whose turn it is."""
        for call in self._turns.begin():
            held = self._held[call.host]
            missing = [post for post in call.posted if held.get(post.name) != post.version]
            held |= {post.name: post.version for post in missing}
            method = getattr(self._hosts[call.host], call.method)
            self._under_way[method.remote(*seal(call.asked, call.mail, missing))] = call

    def _ready(self, places: Places) -> list[tuple[str, str]]:
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
                del self._under_way[done]
                self._turns.end(call.host)
                self._start()

    def _stored(self, posts: Sequence[Post]) -> list[Post]:
        """Return the posts as bytes, or large ones as references; each version is pickled or put once."""
        for post in posts:
            known = self._posted.get(post.name)
            if known is None or known.version != post.version:
                self._posted[post.name] = replace(post, value=store(post.value))
        return [self._posted[post.name] for post in posts]

    def _answer_all(self, answers: Sequence[Any]) -> list[Any]:
        """Wait for the answers of all hosts, in their order."""
        return [self._answer(host, answer) for host, answer in enumerate(answers)]

    def _answer(self, host: int, answer: Any) -> Any:
        """Wait for a host's answer."""
        with failures.explain_ray_errors(lambda: self._who(host)):
            return unpack(ray.get(answer))

    def _who(self, host: int) -> str:
        """Name the clients of a lost host: all of them, or the one in progress if they are computed one at a time."""
        asked = (call for call in self._under_way.values() if call.host == host and call.method == "perform")
        one = next(asked, None) if self._apart else None
        clients = self.placement.clients[host] if one is None else one.asked.clients
        listed = ", ".join(map(str, clients[:10])) + (", ..." if len(clients) > 10 else "")
        return f"the host of client{'s' if len(clients) > 1 else ''} {listed}"
