"""A host as a Ray actor."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import ray

from raysim.actors.cpu_slots import CpuSlot
from raysim.actors.deferred_sums import HeldSums
from raysim.actors.fork_server import is_forked
from raysim.actors.serialization import pack, unseal
from raysim.actors.workers import prepare_actor
from raysim.config import Config
from raysim.engine.host import ClientHost
from raysim.engine.replies import Reply
from raysim.federation.federation import Federation
from raysim.system.device import choose_device, describe_machine
from raysim.system.errors import ConfigError, RunError, convert_to_run_error, locate_errors
from raysim.system.footprint import Peak, own_peak
from raysim.system.switches import set_torch

BANDWIDTH = 100e6  # assumed bytes per second between two nodes


@dataclass(frozen=True)
class Ready:
    """A host that has started."""

    node: str  # the address and the id of its node, for messages
    machine: str  # its kind of machine
    forked: bool  # whether a fork server started its process


@dataclass(frozen=True)
class Transfer:
    """Clients that move to another host."""

    states: Mapping[int, bytes]  # client -> its saved state
    seconds: float  # the duration of saving and sending the states


@dataclass(frozen=True)
class Performed:
    """A host's answer to an order."""

    reply: Reply
    seconds: Mapping[int, float]  # client -> the duration of its part
    price: float | None  # the seconds for each client that moved here; None if no client did


class Host:
    """Actor that owns some of the clients, in a separate process.

    The arguments of `perform` and `count` are packed by raysim.actors.serialization. So are the results of these and
    those of `give_sums`.
    """

    def __init__(self, config: Config, federation: Federation, clients: Sequence[int]) -> None:
        prepare_actor(config.resources.gpus_per_actor)
        self._slot: AbstractContextManager[None] = nullcontext()
        self._sums = HeldSums()
        # Why this host could not start. Of an error that a constructor raises, Ray passes on only the text.
        self._failure: RunError | ConfigError | None = None
        try:
            with convert_to_run_error(), locate_errors("the start of a host"):
                device = choose_device(config.resources.gpus_per_actor)
                set_torch(device, config.resources.deterministic)
                self._host = ClientHost(config, federation, clients, device)
        except (RunError, ConfigError) as failure:
            self._failure = failure

    def ready(self) -> Ready:
        """Describe this host. Ray answers once the constructor has finished.

        Raises:
            RunError, ConfigError: this host could not start.
        """
        if self._failure is not None:
            raise self._failure
        where = f"{ray.util.get_node_ip_address()} {ray.get_runtime_context().get_node_id()[:8]}"
        return Ready(where, describe_machine(self._host.model.device), is_forked())

    def take_slots(self, name: str, count: int) -> None:
        """Compute only while holding one of this node's CPU slots, unless this host cannot open them."""
        with suppress(OSError):
            self._slot = CpuSlot(name, count)

    def peak(self) -> Peak:
        """Return the peak memory of this process."""
        return own_peak()

    def perform(self, sealed: bytes, *fetched: Any) -> Any:
        """Carry out an order and return a packed Performed.

        Args:
            sealed, fetched: what `serialization.seal` returned. The last arguments are Transfers, one from each host
                with clients that move here.
        """
        with convert_to_run_error(), self._slot:
            order, message, broadcasts = unseal(sealed, fetched)
            arriving = [part for part in fetched if isinstance(part, Transfer)]
            began = time.perf_counter() - sum(transfer.seconds for transfer in arriving)
            for transfer in arriving:
                self._host.restore(transfer.states)
            moved = sum(len(transfer.states) for transfer in arriving)
            price = (time.perf_counter() - began) / moved if moved else None
            reply = self._sums.answer(order, self._host.perform(order, message, broadcasts))
            return pack(Performed(reply, self._host.seconds, price))

    @ray.method(num_returns=2)
    def give(self, clients: Sequence[int]) -> tuple[None, Transfer]:
        """Remove clients that move to another host. Return None, which signals the call's end, and the Transfer."""
        with convert_to_run_error():
            began = time.perf_counter()
            states = self._host.give(clients)
            travel = sum(map(len, states.values())) / BANDWIDTH
            return None, Transfer(states, time.perf_counter() - began + travel)

    def give_sums(self) -> Any:
        """Return the sums that are held here, by server update, packed."""
        return pack(self._sums.give())

    def snapshot(self) -> dict[int, bytes]:
        """Return the saved state of every client here."""
        with convert_to_run_error():
            return self._host.snapshot()

    def restore(self, states: Mapping[int, bytes]) -> None:
        """Restore clients of this host from their saved states."""
        with convert_to_run_error():
            self._host.restore(states)

    def count(self, sealed: bytes, *fetched: Any) -> Any:
        """Return what a Count asks for, packed.

        Args:
            sealed, fetched: what `serialization.seal` returned for the Count.
        """
        with convert_to_run_error(), self._slot:
            count, _, broadcasts = unseal(sealed, fetched)
            return pack(count.answer(self._host, broadcasts))
