"""Orders to hosts, and the hosts' replies. Replies are reduced on each host, then merged without rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar, SupportsFloat

import torch
from torch import Tensor

from raysim.api.encoded import Encoded, decoded
from raysim.api.messages import Delta, Reduction, Term, count_bytes
from raysim.engine.exact_sum import DELTAS, NO_SUM, WIDE, ExactSum, Grid, OutOfRange, magnitude
from raysim.engine.hook_checks import describe, name_methods
from raysim.system.errors import Diverged, WrongResult
from raysim.system.state import map_tensors


@dataclass(frozen=True)
class RoundInfo:
    """The round's number, window and learning rate, which hold for an order's clients; see `Order.windows`."""

    round: int  # the server's round
    window: int  # the index of the current window of the stream
    lr: float  # the learning rate


@dataclass(frozen=True)
class Train:
    """The operation of a phase. Its message is a dict: method -> what the method's `start` hooks receive."""

    returns_in: ClassVar = "finish"
    """The hook that returns the terms to send."""

    def messages(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parts of a message by method."""
        return message

    def describe(self, methods: Iterable[str]) -> str:
        """Name the code that runs, for errors. `methods` are those of the run."""
        return name_methods(methods)


@dataclass(frozen=True)
class Call:
    """The operation of an exchange: a call of a method's op. Its message is the op's argument."""

    method: str
    op: str  # the name of the client half's function

    @property
    def returns_in(self) -> str:
        """The function that returns the terms to send."""
        return self.op

    def messages(self, message: Any) -> Mapping[str, Any]:
        """Return the parts of a message by method."""
        return {self.method: message}

    def describe(self, methods: Iterable[str]) -> str:
        """Name the code that runs, for errors."""
        return f"{self.method}.{self.op}"


Operation = Train | Call


@dataclass(frozen=True)
class Order:
    """An operation that hosts carry out for some of their clients. Its message travels next to it."""

    operation: Operation
    clients: tuple[int, ...]  # the ids of the clients, ascending
    shares: Mapping[int, float]  # client -> its weight in the cohort
    cohort_size: int  # the number of clients in the cohort
    round_info: RoundInfo
    windows: Mapping[int, int] = field(default_factory=dict)  # client -> its window, if `round_info` has another one
    arrived: int | None = None  # how many samples the cohort has received so far; None for uniform weights
    # Only under an asynchronous schedule:
    discount: float = 1.0  # the factor by which the update is scaled for its staleness
    update: int | None = None  # the server update that uses the clients' updates, if any
    # The clients whose orders for this update follow later. An order that is sent to a host names at most one of them,
    # a client of this host. If it names one, the host keeps its sums.
    later: tuple[int, ...] = ()

    def round_info_of(self, client: int) -> RoundInfo:
        """Return the round's info with this client's window."""
        if client not in self.windows:
            return self.round_info
        return replace(self.round_info, window=self.windows[client])


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


@dataclass
class Reply:
    """The reduced replies of some clients to one order: a host's part, or, after merging, the cohort's.

    Values stay on their device, unchecked, until `settle` is called. So the host waits for a GPU only once per order.
    """

    cohort_size: int  # the number of clients in the cohort
    sums: dict[str, ExactSum] = field(default_factory=dict)  # the keys: "parameters", "buffers", "METHOD.TERM"
    by_client: dict[str, dict[int, Tensor]] = field(default_factory=dict)  # "METHOD.TERM" -> client -> value
    integers: tuple[int, Tensor] | None = None  # the lowest client id so far, and its integer buffers [I]
    records: dict[str, dict[int, Any]] = field(default_factory=dict)  # name -> client -> number or scalar tensor
    bytes_up: dict[int, int] = field(default_factory=dict)  # client -> the bytes that it sends
    bytes_by_method: dict[str, int] = field(default_factory=dict)  # method -> bytes; updates count as "model"
    steps: int = 0  # the number of gradient steps
    unchecked: list[Unchecked] = field(default_factory=list)  # the values that `settle` checks
    single: bool = False  # whether this is one client's reply; if so, its values stay encoded
    updates: int = 0  # how many client updates the sums contain
    profile: dict[str, float] = field(default_factory=dict)  # part of the work -> seconds, if `logging.profile`
    doubles: list[str] = field(default_factory=list)  # the names of the sums of float64 values: "METHOD.TERM"

    def take_delta(
        self,
        client: int,
        delta: Delta,
        integers: Tensor,
        weight: float,
        where: str,
        history: Sequence[tuple[str, Delta]] = (),
        parameters: Tensor | Encoded | None = None,
        local_bytes: int = 0,
    ) -> None:
        """Add one client's update.

        Args:
            client: its id.
            delta: the update.
            integers: the client's integer buffers [I]. The reply keeps the buffers of the client with the lowest id.
            weight: the weight of the update.
            where: the client and round, for error messages.
            history: (text, delta) pairs: the delta of local training, then the delta of each user-defined `finish`
                hook. The last delta is the update. A text names the code that returned the delta.
            parameters: the encoded parameters that are sent instead of the delta's.
            local_bytes: the bytes of the update that are not sent.
        """
        self.updates += 1
        history, update = history or [("", delta)], f"{where}, in the update of its"
        sent = delta.parameters if parameters is None else parameters
        all_of: list[tuple[str, Tensor | Encoded]] = [(f"{update} parameters{by}", of.parameters) for by, of in history]
        self._add("parameters", DELTAS, [*all_of[:-1], (all_of[-1][0], sent)], weight)
        self._add("buffers", WIDE, [(f"{update} buffers{by}", of.buffers) for by, of in history], weight)
        if self.integers is None or client < self.integers[0]:
            self.integers = (client, self._copy(integers, where))
        self._count(client, "model", sent.nbytes + delta.buffers.nbytes + integers.nbytes - local_bytes)

    def take_deltas(
        self,
        clients: Sequence[int],
        deltas: Delta,
        integers: Tensor,
        weights: Sequence[float],
        where: Sequence[str],
        by: str,
    ) -> None:
        """Add several clients' updates, with parameters [n, P] and buffers [n, B]; see `take_delta`.

        `by` is the text that names the user-defined code.
        """
        self.updates += len(clients)
        for name, grid, rows in (("parameters", DELTAS, deltas.parameters), ("buffers", WIDE, deltas.buffers)):
            largest = rows.abs().amax(1).double() if rows.numel() else rows.new_zeros(len(rows), dtype=torch.float64)
            for place, one in zip(where, largest, strict=True):
                self.unchecked.append(Unchecked([f"{place}, in the update of its {name}{by}"], grid, [one]))
            self.sums.setdefault(name, ExactSum(grid)).add_rows(rows, weights)
        first = min(range(len(clients)), key=clients.__getitem__)
        if self.integers is None or clients[first] < self.integers[0]:
            self.integers = (clients[first], self._copy(integers[first], where[first]))
        nbytes = sum(rows[0].nbytes for rows in (deltas.parameters, deltas.buffers, integers))
        for client in clients:
            self._count(client, "model", nbytes)

    def take_term(self, client: int, name: str, term: Term, how: Reduction, share: float, where: str) -> None:
        """Add one client's term, reduced as its method declares."""
        self._count(client, name.partition(".")[0], count_bytes(term))
        if how == "by_client":
            self.by_client.setdefault(name, {})[client] = self._copy(decoded(term.value), f"{where}, in its {name}")
            return
        if decoded(term.value).dtype == torch.float64 and name not in self.doubles:
            self.doubles.append(name)
        if name in self.sums:
            _check_shapes(name, decoded(term.value).shape, self.sums[name].shape)
        weight = 1 / self.cohort_size if how == "sum" else share if term.weight is None else term.weight
        self._add(name, WIDE, [(f"{where}, in its {name}", term.value)], weight)

    def watch(self, value: Tensor, what: str) -> None:
        """Have `settle` refuse a value that is not finite. `what` names it in the error."""
        self.unchecked.append(Unchecked([what], NO_SUM, [magnitude(value)]))

    def take_records(self, client: int, records: Mapping[str, Tensor | float]) -> None:
        """Add the numbers that the client recorded. Raises WrongResult: one is not a number."""
        for name, value in records.items():
            if (isinstance(value, Tensor) and value.numel() != 1) or not isinstance(value, Tensor | SupportsFloat):
                allowed = "a number, or a tensor with one"
                raise WrongResult(f"client.record({name!r:.60}): found {describe(value)}, allowed: {allowed}")
            number = (
                value.detach().to(torch.float64, copy=True).reshape(()) if isinstance(value, Tensor) else float(value)
            )
            self.records.setdefault(name, {})[client] = number

    def settle(self) -> Reply:
        """Check all values, move them to the CPU, and return the reply.

        Raises:
            Diverged: a client sent a value that is not finite or too large.
        """
        on_device = [
            (by_client, client)
            for by_client in self.records.values()
            for client, number in by_client.items()
            if isinstance(number, Tensor)
        ]
        largest = [number for values in self.unchecked for number in values.largest]
        numbers = iter(_read([*largest, *(by_client[client] for by_client, client in on_device)]))
        for values in self.unchecked:
            values.check([*islice(numbers, len(values.largest))])
        for (by_client, client), number in zip(on_device, numbers, strict=True):
            by_client[client] = number
        self.unchecked.clear()
        for total in self.sums.values():
            total.limbs = None if total.limbs is None else total.limbs.cpu()
            total.single = map_tensors(Tensor.cpu, total.single)
        self.by_client = {name: {k: term.cpu() for k, term in terms.items()} for name, terms in self.by_client.items()}
        self.integers = self.integers and (self.integers[0], self.integers[1].cpu())
        return self

    def merge(self, other: Reply) -> None:
        """Add another host's reply."""
        for name, part in other.sums.items():
            if name not in self.sums:
                self.sums[name] = ExactSum(part.grid)
            _check_shapes(name, part.shape, self.sums[name].shape)
            self.sums[name].merge(part)
        for name, terms in other.by_client.items():
            self.by_client.setdefault(name, {}).update(terms)
        for name, numbers in other.records.items():
            self.records.setdefault(name, {}).update(numbers)
        self.doubles += [name for name in other.doubles if name not in self.doubles]
        if other.integers is not None and (self.integers is None or other.integers[0] < self.integers[0]):
            self.integers = other.integers
        self.bytes_up.update(other.bytes_up)
        for method, nbytes in other.bytes_by_method.items():
            self.bytes_by_method[method] = self.bytes_by_method.get(method, 0) + nbytes
        self.steps += other.steps
        for what, seconds in other.profile.items():
            self.profile[what] = self.profile.get(what, 0.0) + seconds
        self.updates += other.updates

    def take_sums(self) -> Reply:
        """Move the sums into a new reply, and return it."""
        taken = Reply(self.cohort_size, sums=self.sums, updates=self.updates, doubles=[*self.doubles])
        self.sums, self.updates = {}, 0
        return taken

    def rekey_records(self, dispatch: int) -> Reply:
        """Use the dispatch's number as the key of one client's records: a server update may use a client twice."""
        self.records = {name: dict.fromkeys([dispatch], *of.values()) for name, of in self.records.items()}
        return self

    def delta(self, dtype: torch.dtype) -> Delta:
        """Return the mean update."""
        return Delta(self.sums["parameters"].mean().to(dtype), self.sums["buffers"].mean().to(dtype))

    def of(self, method: str, replies: Mapping[str, Reduction], dtype: torch.dtype) -> dict[str, Any]:
        """Return one method's terms by name, reduced as declared. Terms that no client sent are absent.

        Sums and means of float64 values are float64. All others have the model's dtype, `dtype`.
        """
        terms: dict[str, Any] = {}
        for name, how in replies.items():
            full = f"{method}.{name}"
            if how == "by_client" and full in self.by_client:
                terms[name] = dict(sorted(self.by_client[full].items()))
            elif full in self.sums:
                total = self.sums[full]
                reduced = total.mean() if how == "mean" else total.total(self.cohort_size)
                terms[name] = reduced if full in self.doubles else reduced.to(dtype)
        return terms

    def means(self) -> dict[str, float]:
        """Return the mean of each recorded number over the clients that recorded it. fsum is exact in any order."""
        return {name: _mean(list(v.values())) for name, v in sorted(self.records.items())}

    def state(self) -> dict[str, Any]:
        """Return the reply as a checkpoint stores it."""
        for total in self.sums.values():
            total.unpack()
        return asdict(self)

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Reply:
        """Return the reply that has this state."""
        sums = {name: ExactSum(**{**part, "grid": Grid(**part["grid"])}) for name, part in state["sums"].items()}
        return cls(**{**state, "sums": sums})

    def _add(self, name: str, grid: Grid, results: Sequence[tuple[str, Tensor | Encoded]], weight: float) -> None:
        """Add the last result, which is the value. Keep the magnitudes of all results, for `settle` to check."""
        largest = [magnitude(decoded(value)) for _, value in results]
        self.unchecked.append(Unchecked([what for what, _ in results], grid, largest))
        total = self.sums.setdefault(name, ExactSum(grid))
        (total.hold if self.single else total.add)(results[-1][1], weight)

    def _copy(self, value: Tensor, what: str) -> Tensor:
        """Copy a value: it may be a view of a tensor that the host's next client overwrites."""
        self.watch(value, what)
        return value.detach().clone()

    def _count(self, client: int, method: str, nbytes: int) -> None:
        self.bytes_up[client] = self.bytes_up.get(client, 0) + nbytes
        self.bytes_by_method[method] = self.bytes_by_method.get(method, 0) + nbytes


def _check_shapes(name: str, found: torch.Size | None, other: torch.Size | None) -> None:
    """Check that a client's term has the shape of the others'; torch would stretch [1] to [3]. Raises WrongResult."""
    if found is not None and other is not None and found != other:
        words = f"found a term of shape {[*found]}, allowed: {[*other]}, which other clients sent"
        raise WrongResult(f"methods.{name}: {words}; or the reduction by_client")


def _read(numbers: Sequence[Tensor]) -> list[float]:
    """Return these tensors (float64 []) as floats, in one transfer."""
    return [] if not numbers else torch.stack([number.to(numbers[0].device) for number in numbers]).tolist()


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan
