"""A host as a Ray actor."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import ray
import torch

from raysim.actors import cpu_slots
from raysim.actors.deferred_sums import HeldSums
from raysim.actors.forking.starting import is_forked
from raysim.actors.serialization import pack, unseal
from raysim.actors.workers import hide_gpus
from raysim.config import Config
from raysim.engine.host import ClientHost
from raysim.engine.memory_counts import count_remembered
from raysim.engine.orders import Reply
from raysim.federation.federation import Federation
from raysim.system.device import describe_machine, set_torch
from raysim.system.errors import convert_to_run_error
from raysim.system.footprint import Peak, own_peak

TRAVEL = 100e6  # bytes that are assumed to go from node to node in a second


@dataclass(frozen=True)
class Ready:
    """A host that has started.

    Attributes:
        node: the address and the id of its node, for messages.
        machine: its kind of machine.
        forked: whether a fork server started its process.
    """

    node: str
    machine: str
    forked: bool


@dataclass(frozen=True)
class Transfer:
    """Clients on their way to another host.

    Attributes:
        records: the record of each client.
        seconds: how long it takes to make and to move the records.
    """

    records: Mapping[int, bytes]
    seconds: float


@dataclass(frozen=True)
class Performed:
    """What a host returns for an order.

    Attributes:
        reply: the reply.
        seconds: how long each client took.
        price: the seconds for each client that moved here; None if no client did.
    """

    reply: Reply
    seconds: Mapping[int, float]
    price: float | None


class Host:
    """Actor that owns some of the clients, in a separate process.

    `perform` and `count` receive and return what raysim.actors.serialization packs.
    """

    def __init__(self, config: Config, federation: Federation, clients: Sequence[int]) -> None:
        hide_gpus(config.resources.gpus_per_actor)
        device = torch.device("cuda" if config.resources.gpus_per_actor else "cpu")
        set_torch(device, config.resources.deterministic)
        self._slot: AbstractContextManager[None] = nullcontext()
        with convert_to_run_error():
            self._host = ClientHost(config, federation, clients, device)
        self._sums = HeldSums()

    def ready(self) -> Ready:
        """Describe this host. Ray answers once the constructor has finished."""
        where = f"{ray.util.get_node_ip_address()} {ray.get_runtime_context().get_node_id()[:8]}"
        return Ready(where, describe_machine(self._host.model.device), is_forked())

    def make_slots(self, count: int) -> str | None:
        """Make CPU slots for the hosts of this node; return where they find them, or None where that is impossible."""
        with suppress(OSError):
            path, self._slot = cpu_slots.make_slots(count)
            return path
        return None

    def take_slots(self, path: str | None) -> None:
        """Compute only while holding one of these CPU slots, if there are any."""
        with suppress(OSError):
            self._slot = nullcontext() if path is None else cpu_slots.CpuSlot(path)

    def hide_slots(self, path: str | None) -> None:
        """Delete the name of the slots, which all hosts of this node have opened."""
        if path is not None:
            cpu_slots.hide_slots(path)

    def peak(self) -> Peak:
        """Return the peak memory of this process."""
        return own_peak()

    def perform(self, sealed: bytes, *fetched: Any) -> Any:
        """Carry out an order and return a packed Performed.

        The last arguments are Transfers, one from each host whose clients move here.
        """
        with convert_to_run_error(), self._slot:
            order, message, broadcasts = unseal(sealed, fetched)
            arriving = [part for part in fetched if isinstance(part, Transfer)]
            began = time.perf_counter() - sum(transfer.seconds for transfer in arriving)
            for transfer in arriving:
                self._host.restore(transfer.records)
            moved = sum(len(transfer.records) for transfer in arriving)
            price = (time.perf_counter() - began) / moved if moved else None
            reply = self._sums.answer(order, self._host.perform(replace(order, message=message), broadcasts))
            return pack(Performed(reply, self._host.seconds, price))

    @ray.method(num_returns=2)
    def give(self, clients: Sequence[int]) -> tuple[None, Transfer]:
        """Remove clients that move to another host. Return None, which tells when that is done, and the Transfer."""
        with convert_to_run_error():
            began = time.perf_counter()
            records = self._host.give(clients)
            travel = sum(map(len, records.values())) / TRAVEL
            return None, Transfer(records, time.perf_counter() - began + travel)

    def give_sums(self) -> Any:
        """Return the sums that are held here, by the server update that they become a part of, packed."""
        return pack(self._sums.give())

    def snapshot(self) -> dict[int, bytes]:
        """Return a record of every client here."""
        with convert_to_run_error():
            return self._host.snapshot()

    def restore(self, records: Mapping[int, bytes]) -> None:
        """Restore clients of this host from their records."""
        self._host.restore(records)

    def count(self, sealed: bytes, *fetched: Any) -> Any:
        """Return counts, packed: of correct predictions, or of what the memories hold by task and class.

        The call asks for a method of ClientHost with the chunks of the test sets, or for `count_remembered`.
        """
        with convert_to_run_error(), self._slot:
            (kind, chunks), _, broadcasts = unseal(sealed, fetched)
            if kind == "count_remembered":
                return pack(count_remembered(self._host))
            return pack(getattr(self._host, kind)(chunks, broadcasts))
