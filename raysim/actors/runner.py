"""The runner that carries orders out on host actors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from raysim.actors import failures
from raysim.actors.host import Host, Posted
from raysim.config import Config
from raysim.errors import ConfigError, RunError
from raysim.host import Order
from raysim.messages import Post, tensor_bytes
from raysim.reply import Reply
from raysim.resources import Placement
from raysim.scoring import Chunk, Scores, merged

LARGE_MAIL = 64 * 2**10  # bytes


class RayRunner:
    """Owns the host actors. A post crosses to the object store once per version; a host replies with one sum."""

    def __init__(self, config: Config, federation: Any, placement: Placement) -> None:
        actor: Any = ray.remote(Host)
        actor = actor.options(num_cpus=placement.cpus, num_gpus=placement.gpus, scheduling_strategy="SPREAD")
        self._placement = placement
        shared_cpus = placement.cpus < 1 and not placement.gpus and config.resources.cpus_per_actor == "auto"
        self._abreast = math.ceil(placement.cpus * placement.actors) if shared_cpus else placement.actors
        self._hosts = [actor.remote(config, federation, list(clients)) for clients in placement.clients]
        self._home = {client: h for h, clients in enumerate(placement.clients) for client in clients}
        self._posted: dict[str, Posted] = {}
        self._held: list[dict[str, int]] = [{} for _ in self._hosts]
        self._await([host.ready.remote() for host in self._hosts])

    def perform(self, order: Order, posts: Sequence[Post]) -> Reply:
        """Have every client of the order do it, and return the merged reply."""
        members: dict[int, list[int]] = {}
        for client in order.clients:
            members.setdefault(self._home[client], []).append(client)
        large = tensor_bytes(order.mail) > LARGE_MAIL
        mail = ray.put(order.mail) if large else order.mail  # a host fetches it, or has it with the call
        calls = (
            self._hosts[h].perform.remote(
                replace(order, clients=tuple(own), shares={k: order.shares[k] for k in own}, mail=None),
                mail,
                self._missing(h, posts),
            )
            for h, own in members.items()
        )
        reply = Reply(order.cohort)
        for part in self._answers(calls):
            reply.merge(part)
        return reply

    def evaluate(self, parts: Sequence[Chunk], posts: Sequence[Post]) -> Scores:
        """Share the parts out among the hosts, and return the merged counts."""
        count = len(self._hosts)
        shares = [(h, parts[h::count]) for h in range(count) if parts[h::count]]
        calls = (self._hosts[h].evaluate.remote(own, self._missing(h, posts)) for h, own in shares)
        return merged(list(self._answers(calls)))

    def _answers(self, calls: Iterator[Any]) -> Iterator[Any]:
        """Make the calls, no more at a time than can compute, and yield the answers as they come.

        Where there are more hosts than CPUs, hosts that wait their turn keep the caches to those that work: ten on two
        cores took a sixth less of the CPUs' time.
        """
        under_way: list[Any] = []
        while True:
            under_way += islice(calls, self._abreast - len(under_way))
            if not under_way:
                return
            (done,), under_way = ray.wait(under_way)
            (answer,) = self._await([done])
            yield answer

    def _missing(self, host: int, posts: Sequence[Post]) -> list[Posted]:
        """Return, by reference, the posts whose version this host does not hold yet."""
        wanted = []
        for post in posts:
            known = self._posted.get(post.name)
            if known is None or known.version != post.version:
                self._posted[post.name] = known = Posted(post.name, post.version, ray.put(post.value))
            if self._held[host].get(post.name) != post.version:
                self._held[host][post.name] = post.version
                wanted.append(known)
        return wanted

    def _await(self, answers: list[Any]) -> list[Any]:
        try:
            return list(ray.get(answers))
        except RayTaskError as error:
            if isinstance(error.cause, RunError | ConfigError):
                raise error.cause from None
            raise
        except RayActorError as error:
            raise failures.death(self._who(error), error) from error

    def _who(self, error: RayActorError) -> str:
        for host, clients in zip(self._hosts, self._placement.clients, strict=True):
            if host._actor_id.hex() == error.actor_id:
                listed = ", ".join(map(str, clients[:10])) + (", ..." if len(clients) > 10 else "")
                return f"the host of client{'s' if len(clients) > 1 else ''} {listed}"
        return "a host"
