"""What methods hold at a client: read off the real client halves in two dry rounds of two small clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from raysim.config import Config
from raysim.engine.order import Order
from raysim.estimate.dry_client import DryClient
from raysim.estimate.dry_host import DryHost, DryReply
from raysim.estimate.dry_run import DryRunner, dry_rounds, make_dry_simulation
from raysim.estimate.miniature import make_miniature
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.system.seeding import torch_untouched

Pair = tuple[int, int]


@dataclass(frozen=True)
class ClientMemory:
    """Bytes that methods hold at a client whose epoch has one batch, and at one with two; further batches add alike.

    `kept` is held from one order to the next, the largest of `tables` while an order is carried out. `keeps_stream`
    says whether a client trains on data of earlier windows.
    """

    kept: Pair
    tables: Pair
    keeps_stream: bool

    def kept_with(self, batches: int) -> int:
        """Return the bytes that a client with so many batches holds from one order to the next."""
        return _extend(self.kept, batches)

    def tables_with(self, batches: int) -> int:
        """Return the bytes that it holds beside these while it carries an order out."""
        return _extend(self.tables, batches)


def measure_clients(config: Config, federation: Federation) -> ClientMemory:
    """Do a dry round of each of two tasks with two clients, of one batch and of two.

    They run on the CPU, where vectors are real, because arithmetic without values imports torch's compiler: a second
    and 150 MB that a run would not need. A method that fails here is the run's to refuse; it counts as far as it went.
    """
    sizes = [batches * config.training.batch_size for batches in (1, 2)]
    streams = [Stream([np.zeros(size, np.int32)] * 2) for size in sizes]
    small, data = make_miniature(config, federation, [federation.tasks[0]] * 2, streams, rounds=1)
    with torch_untouched():
        host = MeasuringHost(small, data, torch.device("cpu"))
        with suppress(Exception):
            for _ in dry_rounds(make_dry_simulation(small, data, DryRunner(host))):
                pass
    first = host.clients[0]
    return ClientMemory((host.kept[0], host.kept[1]), (host.tables[0], host.tables[1]), first.trained > sizes[0])


def _extend(measured: Pair, batches: int) -> int:
    one, two = measured
    return max(0, one + (batches - 1) * (two - one))


class MeasuringHost(DryHost):
    """A dry host that notes the most bytes that each client's halves kept, and the largest table that they made."""

    def __init__(self, config: Config, federation: Federation, device: torch.device) -> None:
        super().__init__(config, federation, device)
        self.kept = dict.fromkeys(self.clients, 0)
        self.tables = dict.fromkeys(self.clients, 0)

    def carry_out_anew(self, client: DryClient, order: Order) -> DryReply:
        """See DryHost."""
        with TableWatch(len(self.model.parameters)) as watch:
            reply = super().carry_out_anew(client, order)
        kept = list(_tensors([half.state() for half in client.halves.values()]))
        passing = [table.nbytes for table in watch.tables if not any(table is tensor for tensor in kept)]
        self.kept[client.id] = max(self.kept[client.id], sum(tensor.nbytes for tensor in kept if tensor.dim()))
        self.tables[client.id] = max(self.tables[client.id], *passing, 0)
        return reply


class TableWatch(TorchFunctionMode):
    """Collects the matrices [n, P] that are made while it is entered; vectors are counted in SUM_VECTORS."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.tables: list[Tensor] = []
        self._parameters = parameters

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry an operation of torch's out."""
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.dim() == 2 and made.shape[1] == self._parameters:
            self.tables.append(made)
        return made


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part)
