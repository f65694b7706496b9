"""Orders to hosts, and their replies: reduced on each host, merged without rounding, read by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from raysim.api.encoded import Encoded, decoded
from raysim.api.messages import Delta, Reduction, Term, count_bytes
from raysim.engine.exact_sum import DELTAS, NO_SUM, WIDE, ExactSum, Grid, OutOfRange, magnitude
from raysim.system.errors import Diverged
from raysim.system.state import map_tensors


@dataclass(frozen=True)
class Phase:
    """A training phase: the server's round, the latest window of data that has arrived, the learning rate."""

    round: int
    window: int
    lr: float


@dataclass(frozen=True)
class Order:
    """An operation that a host is asked to do for some of its clients.

    `op` is "train" or "METHOD.OP"; `message` maps methods to their messages for "train", and is the op's otherwise;
    `shares` are the clients' weights in the cohort, `cohort` the number of clients in it. `windows` are the windows of
    the clients whose window is not the phase's. If an update counts by the samples that it was trained on, `arrived` is
    the number that the whole cohort holds, an upper bound; an update is multiplied by `discount` for its age.

    Under an asynchronous schedule, `update` is the server update that the order's update becomes a part of, if it does,
    and `later` are the clients of the orders yet to come that do so too; as a host gets the order, those that it has.
    """

    op: str
    clients: tuple[int, ...]
    message: Any
    shares: Mapping[int, float]
    cohort: int
    phase: Phase
    windows: Mapping[int, int] = field(default_factory=dict)
    arrived: int | None = None
    discount: float = 1.0
    update: int | None = None
    later: tuple[int, ...] = ()

    def phase_of(self, client: int) -> Phase:
        """Return the phase with this client's window."""
        return replace(self.phase, window=self.windows.get(client, self.phase.window))


@dataclass(frozen=True)
class Unchecked:
    """A value that was taken unread: which ones are allowed, and the largest number in it and in what it was made from,
    one after the other, each with what that is and whose.
    """

    what: Sequence[str]
    grid: Grid
    largest: Sequence[Tensor]

    def check(self, largest: Sequence[float]) -> None:
        """Check the value, given the numbers; name the first that is not finite. Raises Diverged."""
        try:
            self.grid.check(largest[-1])
        except OutOfRange as error:
            first = next((place for place, number in enumerate(largest) if not math.isfinite(number)), -1)
            advice = "a smaller training.optimizer.lr or training.clip_norm may help"
            raise Diverged(f"{self.what[first]}: found {error}; {advice}") from None


@dataclass
class Reply:
    """The reduced replies of some clients to one order: a host's part, or, once merged, the cohort's.

    What clients send stays where it was computed, unread, until `settle` takes it off the device; then records are
    floats. `unchecked` is what was taken until then. `alone`: it is one client's, and says what that one sends.
    `updates` are in its sums.
    """

    cohort: int
    sums: dict[str, ExactSum] = field(default_factory=dict)
    by_client: dict[str, dict[int, Tensor]] = field(default_factory=dict)
    integers: tuple[int, Tensor] | None = None
    records: dict[str, dict[int, Any]] = field(default_factory=dict)
    bytes_up: dict[int, int] = field(default_factory=dict)
    steps: int = 0
    unchecked: list[Unchecked] = field(default_factory=list)
    alone: bool = False
    updates: int = 0

    def take_delta(
        self,
        client: int,
        delta: Delta,
        integers: Tensor,
        weight: float,
        where: str,
        made: Sequence[tuple[str, Delta]] = (),
        parameters: Tensor | Encoded | None = None,
        local_bytes: int = 0,
    ) -> None:
        """Add one client's update, of which so many bytes are not sent; integer buffers are the lowest client id's.

        `made` are the deltas that it was made from, one after the other, and itself, each with words on who made it;
        `parameters` is what is sent in place of the delta's, if they are encoded.
        """
        self.updates += 1
        made, update = made or [("", delta)], f"{where}, the update of its"
        sent = delta.parameters if parameters is None else parameters
        steps: list[tuple[str, Tensor | Encoded]] = [(f"{update} parameters{by}", of.parameters) for by, of in made]
        self._add("parameters", DELTAS, [*steps[:-1], (steps[-1][0], sent)], weight)
        self._add("buffers", WIDE, [(f"{update} buffers{by}", part.buffers) for by, part in made], weight)
        if self.integers is None or client < self.integers[0]:
            self.integers = (client, self._copy(integers, where))
        self._count(client, sent.nbytes + delta.buffers.nbytes + integers.nbytes - local_bytes)

    def take_term(self, client: int, name: str, term: Term, how: Reduction, share: float, where: str) -> None:
        """Add one client's term, reduced as its method declares."""
        self._count(client, count_bytes(term))
        if how == "by_client":
            self.by_client.setdefault(name, {})[client] = self._copy(decoded(term.value), f"{where}, its {name}")
            return
        weight = 1 / self.cohort if how == "sum" else share if term.weight is None else term.weight
        self._add(name, WIDE, [(f"{where}, its {name}", term.value)], weight)

    def watch(self, value: Tensor, what: str) -> None:
        """Have `settle` refuse a value that is not finite; it is not sent."""
        self.unchecked.append(Unchecked([what], NO_SUM, [magnitude(value)]))

    def take_records(self, client: int, records: Mapping[str, Tensor | float]) -> None:
        """Add the numbers that the client recorded."""
        for name, value in records.items():
            number = (
                value.detach().to(torch.float64, copy=True).reshape(()) if isinstance(value, Tensor) else float(value)
            )
            self.records.setdefault(name, {})[client] = number

    def settle(self) -> Reply:
        """Check what was taken and move it to the CPU; return the reply. A GPU is waited for once.

        Raises:
            Diverged: a client sent what is not finite or too large.
        """
        waiting = [(of, k) for of in self.records.values() for k, number in of.items() if isinstance(number, Tensor)]
        largest = [number for values in self.unchecked for number in values.largest]
        numbers = iter(_read([*largest, *(of[client] for of, client in waiting)]))
        for values in self.unchecked:
            values.check([*islice(numbers, len(values.largest))])
        for (of, client), number in zip(waiting, numbers, strict=True):
            of[client] = number
        self.unchecked.clear()
        for total in self.sums.values():
            total.limbs = None if total.limbs is None else total.limbs.cpu()
            total.lone = map_tensors(Tensor.cpu, total.lone)
        self.by_client = {name: {k: term.cpu() for k, term in of.items()} for name, of in self.by_client.items()}
        self.integers = self.integers and (self.integers[0], self.integers[1].cpu())
        return self

    def merge(self, other: Reply) -> None:
        """Add another host's part."""
        for name, part in other.sums.items():
            if name not in self.sums:
                self.sums[name] = part.fresh()
            self.sums[name].merge(part)
        for name, terms in other.by_client.items():
            self.by_client.setdefault(name, {}).update(terms)
        for name, numbers in other.records.items():
            self.records.setdefault(name, {}).update(numbers)
        if other.integers is not None and (self.integers is None or other.integers[0] < self.integers[0]):
            self.integers = other.integers
        self.bytes_up.update(other.bytes_up)
        self.steps += other.steps
        self.updates += other.updates

    def take_sums(self) -> Reply:
        """Return a reply of the sums, which this one then lacks."""
        taken = Reply(self.cohort, sums=self.sums, updates=self.updates)
        self.sums, self.updates = {}, 0
        return taken

    def number(self, number: int) -> Reply:
        """Put one client's records under another number, as it may reply twice to one update; return its reply."""
        self.records = {name: dict.fromkeys([number], *of.values()) for name, of in self.records.items()}
        return self

    def delta(self, dtype: torch.dtype) -> Delta:
        """Return the mean update."""
        return Delta(self.sums["parameters"].mean().to(dtype), self.sums["buffers"].mean().to(dtype))

    def of(self, method: str, replies: Mapping[str, Reduction], dtype: torch.dtype) -> dict[str, Any]:
        """Return one method's terms by name, reduced as declared; a term that no client sent is absent."""
        found: dict[str, Any] = {}
        for name, how in replies.items():
            full = f"{method}.{name}"
            if how == "by_client" and full in self.by_client:
                found[name] = dict(sorted(self.by_client[full].items()))
            elif full in self.sums:
                total = self.sums[full]
                found[name] = (total.mean() if how == "mean" else total.total(self.cohort)).to(dtype)
        return found

    def means(self) -> dict[str, float]:
        """Return the means of what clients recorded, over those that did; fsum is exact, so order does not matter."""
        return {name: _mean(list(v.values())) for name, v in sorted(self.records.items())}

    def state(self) -> dict[str, Any]:
        """Return the state that a checkpoint keeps of a reply that is not applied yet."""
        for total in self.sums.values():
            total.unpack()
        return asdict(self)

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Reply:
        """Return the reply that a state was made from."""
        sums = {name: ExactSum(**{**kept, "grid": Grid(**kept["grid"])}) for name, kept in state["sums"].items()}
        return cls(**{**state, "sums": sums})

    def _add(self, name: str, grid: Grid, made: Sequence[tuple[str, Tensor | Encoded]], weight: float) -> None:
        """Add the last value."""
        largest = [magnitude(decoded(value)) for _, value in made]
        self.unchecked.append(Unchecked([what for what, _ in made], grid, largest))
        total = self.sums.setdefault(name, ExactSum(grid))
        (total.hold if self.alone else total.add_unchecked)(made[-1][1], weight)

    def _copy(self, value: Tensor, what: str) -> Tensor:
        """Copy a value, as it may be a view of a tensor that the host's next client overwrites."""
        self.watch(value, what)
        return value.detach().clone()

    def _count(self, client: int, nbytes: int) -> None:
        self.bytes_up[client] = self.bytes_up.get(client, 0) + nbytes


def _read(numbers: Sequence[Tensor]) -> list[float]:
    """Return these numbers (float64 []), in one transfer."""
    return [] if not numbers else torch.stack([number.to(numbers[0].device) for number in numbers]).tolist()


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan
