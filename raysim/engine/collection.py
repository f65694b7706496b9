"""What a host collects from the clients of an order, until it has the reply."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import SupportsFloat

import torch
from torch import Tensor

from raysim.api.encoded import Encoded, decoded
from raysim.api.messages import Delta, Reduction, Term, count_bytes
from raysim.engine.exact_sum import DELTAS, NO_SUM, WIDE, ExactSum, Grid, OutOfRange, magnitude
from raysim.engine.exact_total import TOTALS, ExactTotal
from raysim.engine.hook_checks import describe
from raysim.engine.replies import Reply, check_shapes
from raysim.system.errors import Diverged, WrongResult
from raysim.system.state import map_tensors


@dataclass(frozen=True)
class ClientUpdate:
    """One client's update."""

    client: int
    weight: float
    where: str
    """The client and the round, for error messages."""
    deltas: Sequence[tuple[str, Delta]]
    """The delta of local training, then that of each user-defined `finish` hook; the last one is the update. The text
    names the code that returned the delta, for error messages."""
    integers: Tensor
    """The client's integer buffers [I]."""
    encoded: Tensor | Encoded | None = None
    """The encoded parameters, which are sent instead of the delta's."""
    unsent: int = 0
    """The bytes of the update that are not sent."""


@dataclass(frozen=True)
class Unchecked:
    """Magnitudes, not yet checked, of a client's value and of the intermediate results from which it was made."""

    names: Sequence[str]  # a description of each result, for error messages; the last result is the value
    grid: Grid  # the allowed range
    largest: Sequence[Tensor]  # each result's largest magnitude (float64 [], still on the device)

    def check(self, largest: Sequence[float]) -> None:
        """Check the value, given the magnitudes. Raises Diverged, which names the first result that is not finite."""
        try:
            self.grid.check(largest[-1])
        except OutOfRange as error:
            first = next((index for index, number in enumerate(largest) if not math.isfinite(number)), -1)
            advice = "a smaller training.optimizer.lr or training.clip_norm may help"
            if math.isfinite(largest[first]):  # the variance of raw numbers, for example
                advice += "; or smaller inputs, as by dataset.normalize=standard"
            raise Diverged(f"{self.names[first]}: found {error}; {advice}") from None


class Collection:
    """The parts of some clients in the reply to one order.

    Values stay on their device, unchecked, until `settle` is called. So the host waits for a GPU only once per order.

    Args:
        cohort_size: the number of clients in the cohort.
        single: whether the order is for one client; if so, its values stay encoded.
    """

    def __init__(self, cohort_size: int, single: bool = False) -> None:
        self.reply = Reply(cohort_size)
        self._single = single
        self._unchecked: list[Unchecked] = []

    def take_update(self, update: ClientUpdate) -> None:
        """Add one client's update. The reply keeps the integer buffers of the client with the lowest id."""
        reply, weight, what = self.reply, update.weight, f"{update.where}, in the update of its"
        sent = update.deltas[-1][1]
        parameters: list[tuple[str, Tensor | Encoded]]
        parameters = [(f"{what} parameters{by}", delta.parameters) for by, delta in update.deltas]
        if update.encoded is not None:
            parameters[-1] = parameters[-1][0], update.encoded
        self._add("parameters", DELTAS, parameters, weight)
        self._add("buffers", WIDE, [(f"{what} buffers{by}", delta.buffers) for by, delta in update.deltas], weight)
        if reply.integers is None or update.client < reply.integers[0]:
            reply.integers = (update.client, self._copy(update.integers, update.where))
        nbytes = parameters[-1][1].nbytes + sent.buffers.nbytes + update.integers.nbytes - update.unsent
        reply.count_sent(update.client, "model", nbytes)
        reply.updates += 1

    def take_rows(
        self,
        clients: Sequence[int],
        deltas: Delta,
        integers: Tensor,
        weights: Sequence[float],
        where: Sequence[str],
        by: str,
    ) -> None:
        """Add the updates of n clients: parameters [n, P], buffers [n, B] and integers [n, I]; see `take_update`.

        `by` is the text that names the user-defined code.
        """
        reply = self.reply
        reply.updates += len(clients)
        for name, grid, rows in (("parameters", DELTAS, deltas.parameters), ("buffers", WIDE, deltas.buffers)):
            largest = rows.abs().amax(1).double() if rows.numel() else rows.new_zeros(len(rows), dtype=torch.float64)
            for place, one in zip(where, largest, strict=True):
                self._unchecked.append(Unchecked([f"{place}, in the update of its {name}{by}"], grid, [one]))
            reply.sums.setdefault(name, ExactSum(grid)).add_rows(rows, weights)
        first = min(range(len(clients)), key=clients.__getitem__)
        if reply.integers is None or clients[first] < reply.integers[0]:
            reply.integers = (clients[first], self._copy(integers[first], where[first]))
        nbytes = sum(rows[0].nbytes for rows in (deltas.parameters, deltas.buffers, integers))
        for client in clients:
            reply.count_sent(client, "model", nbytes)

    def take_term(self, client: int, name: str, term: Term, how: Reduction, share: float, where: str) -> None:
        """Add one client's term, reduced as its method declares."""
        reply = self.reply
        reply.count_sent(client, name.partition(".")[0], count_bytes(term))
        if how == "by_client":
            reply.by_client.setdefault(name, {})[client] = self._copy(decoded(term.value), f"{where}, in its {name}")
            return
        if how == "total":
            self._take_total(name, decoded(term.value), f"{where}, in its {name}")
            return
        if decoded(term.value).dtype == torch.float64 and name not in reply.doubles:
            reply.doubles.append(name)
        if name in reply.sums:
            check_shapes(name, decoded(term.value).shape, reply.sums[name].shape)
        weight = 1 / reply.cohort_size if how == "sum" else share if term.weight is None else term.weight
        self._add(name, WIDE, [(f"{where}, in its {name}", term.value)], weight)

    def _take_total(self, name: str, value: Tensor, what: str) -> None:
        """Add one client's value to a total."""
        if value.dtype == torch.float64:
            self._unchecked.append(Unchecked([what], TOTALS, [magnitude(value)]))
        self.reply.add_total(name, ExactTotal.of(value))

    def watch(self, value: Tensor, what: str) -> None:
        """Have `settle` refuse a value that is not finite. `what` names it in the error."""
        self._unchecked.append(Unchecked([what], NO_SUM, [magnitude(value)]))

    def take_records(self, client: int, records: Mapping[str, Tensor | float]) -> None:
        """Add the numbers that the client recorded. Raises WrongResult: one is not a number."""
        for name, value in records.items():
            if (isinstance(value, Tensor) and value.numel() != 1) or not isinstance(value, Tensor | SupportsFloat):
                allowed = "a number, or a tensor with one"
                raise WrongResult(f"client.record({name!r:.60}): found {describe(value)}, allowed: {allowed}")
            number = (
                value.detach().to(torch.float64, copy=True).reshape(()) if isinstance(value, Tensor) else float(value)
            )
            self.reply.records.setdefault(name, {})[client] = number

    def settle(self) -> Reply:
        """Check all values, move them to the CPU, and return the reply.

        Raises:
            Diverged: a client sent a value that is not finite or too large.
        """
        reply = self.reply
        on_device = [
            (by_client, client)
            for by_client in reply.records.values()
            for client, number in by_client.items()
            if isinstance(number, Tensor)
        ]
        largest = [number for values in self._unchecked for number in values.largest]
        numbers = iter(_read([*largest, *(by_client[client] for by_client, client in on_device)]))
        for values in self._unchecked:
            values.check([*islice(numbers, len(values.largest))])
        for (by_client, client), number in zip(on_device, numbers, strict=True):
            by_client[client] = number
        self._unchecked.clear()
        for total in reply.sums.values():
            total.limbs = None if total.limbs is None else total.limbs.cpu()
            total.single = map_tensors(Tensor.cpu, total.single)
        reply.totals = {name: replace(total, limbs=total.limbs.cpu()) for name, total in reply.totals.items()}
        reply.by_client = {
            name: {k: term.cpu() for k, term in terms.items()} for name, terms in reply.by_client.items()
        }
        reply.integers = reply.integers and (reply.integers[0], reply.integers[1].cpu())
        return reply

    def _add(self, name: str, grid: Grid, results: Sequence[tuple[str, Tensor | Encoded]], weight: float) -> None:
        """Add the last result, which is the value. Keep the magnitudes of all results, for `settle` to check."""
        largest = [magnitude(decoded(value)) for _, value in results]
        self._unchecked.append(Unchecked([what for what, _ in results], grid, largest))
        total = self.reply.sums.setdefault(name, ExactSum(grid))
        (total.hold if self._single else total.add)(results[-1][1], weight)

    def _copy(self, value: Tensor, what: str) -> Tensor:
        """Copy a value: it may be a view of a tensor that the host's next client overwrites."""
        self.watch(value, what)
        return value.detach().clone()


def _read(numbers: Sequence[Tensor]) -> list[float]:
    """Return these tensors (float64 []) as floats, in one transfer."""
    return [] if not numbers else torch.stack([number.to(numbers[0].device) for number in numbers]).tolist()
