"""Replies to orders: reduced on each host, then merged at the server without rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from raysim.api.messages import Delta, Reduction
from raysim.engine.exact_sum import ExactSum, Grid, OutOfRange
from raysim.engine.exact_total import ExactTotal
from raysim.system.errors import WrongResult


@dataclass
class Reply:
    """The reduced replies of some clients to one order: a host's part, or, after merging, the cohort's."""

    cohort_size: int  # the number of clients in the cohort
    sums: dict[str, ExactSum] = field(default_factory=dict)  # the keys: "parameters", "buffers", "METHOD.TERM"
    by_client: dict[str, dict[int, Tensor]] = field(default_factory=dict)  # "METHOD.TERM" -> client -> value
    integers: tuple[int, Tensor] | None = None  # the lowest client id so far, and its integer buffers [I]
    records: dict[str, dict[int, Any]] = field(default_factory=dict)  # name -> client -> number or scalar tensor
    bytes_up: dict[int, int] = field(default_factory=dict)  # client -> the bytes that it sends
    bytes_by_method: dict[str, int] = field(default_factory=dict)  # method -> bytes; updates count as "model"
    steps: int = 0  # the number of gradient steps
    updates: int = 0  # how many client updates the sums contain
    profile: dict[str, float] = field(default_factory=dict)  # part of the work -> seconds, if `logging.profile`
    warnings: dict[str, str] = field(default_factory=dict)  # "METHOD.ATTRIBUTE" -> what a user should look at
    doubles: list[str] = field(default_factory=list)  # the names of the sums of float64 values: "METHOD.TERM"
    totals: dict[str, ExactTotal] = field(default_factory=dict)  # the keys: "METHOD.TERM"
    dropped: dict[str, int] = field(default_factory=dict)  # what clients dropped for a request to forget -> how often
    stays: dict[str, int] = field(default_factory=dict)  # method -> the clients with a state that stays

    def merge(self, other: Reply) -> None:
        """Add another host's reply."""
        for name, part in other.sums.items():
            if name not in self.sums:
                self.sums[name] = ExactSum(part.grid)
            check_shapes(name, part.shape, self.sums[name].shape)
            self.sums[name].merge(part)
        for name, total in other.totals.items():
            self.add_total(name, total)
        for name, terms in other.by_client.items():
            self.by_client.setdefault(name, {}).update(terms)
        for name, numbers in other.records.items():
            self.records.setdefault(name, {}).update(numbers)
        self.warnings = other.warnings | self.warnings
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
        self.add_dropped(other.dropped, other.stays)

    def add_dropped(self, dropped: Mapping[str, int], stays: Mapping[str, int]) -> None:
        """Add what clients have dropped for a request to forget, and what they could not drop."""
        for mine, added in ((self.dropped, dropped), (self.stays, stays)):
            for what, count in added.items():
                mine[what] = mine.get(what, 0) + count

    def take_sums(self) -> Reply:
        """Move the sums into a new reply, and return it."""
        taken = Reply(self.cohort_size, sums=self.sums, updates=self.updates, doubles=[*self.doubles])
        taken.totals, self.totals = self.totals, {}
        self.sums, self.updates = {}, 0
        return taken

    def add_total(self, name: str, added: ExactTotal) -> None:
        """Add to the total of this name. Raises WrongResult: another shape or dtype, or too many values."""
        total = self.totals.setdefault(name, added)
        if total is added:
            return
        check_shapes(name, added.shape, total.shape)
        if added.dtype != total.dtype:
            words = f"found a total of dtype {added.dtype}, allowed: {total.dtype}, which other clients sent"
            raise WrongResult(f"methods.{name}: {words}".replace("torch.", ""))
        try:
            self.totals[name] = total.plus(added)
        except OutOfRange as error:
            raise WrongResult(f"methods.{name}: found {error}") from None

    def rekey_records(self, dispatch: int) -> Reply:
        """Use the dispatch's number as the key of one client's records: a server update may use a client twice."""
        for name, by_client in self.records.items():
            (number,) = by_client.values()
            self.records[name] = {dispatch: number}
        return self

    def delta(self, dtype: torch.dtype) -> Delta:
        """Return the mean update."""
        return Delta(self.sums["parameters"].mean().to(dtype), self.sums["buffers"].mean().to(dtype))

    def of(self, method: str, replies: Mapping[str, Reduction], dtype: torch.dtype) -> dict[str, Any]:
        """Return one method's terms by name, reduced as declared. Terms that no client sent are absent.

        Sums and means of float64 values are float64. Totals have their values' dtype. All others have the model's
        dtype, `dtype`.

        Raises:
            WrongResult: int64 does not hold a total.
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
            elif full in self.totals:
                terms[name] = self._value_of(full)
        return terms

    def _value_of(self, name: str) -> Tensor:
        try:
            return self.totals[name].value()
        except OutOfRange as error:
            raise WrongResult(f"methods.{name}: found {error}; or float64") from None

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
        """Return the reply that has this state. Keys that only earlier versions wrote are ignored."""
        sums = {name: ExactSum(**{**part, "grid": Grid(**part["grid"])}) for name, part in state["sums"].items()}
        totals = {name: ExactTotal(**part) for name, part in state.get("totals", {}).items()}
        known = {part.name: state[part.name] for part in fields(cls) if part.name in state}
        return cls(**{**known, "sums": sums, "totals": totals})

    def count_sent(self, client: int, method: str, nbytes: int) -> None:
        """Count bytes that a client sends for a method."""
        self.bytes_up[client] = self.bytes_up.get(client, 0) + nbytes
        self.bytes_by_method[method] = self.bytes_by_method.get(method, 0) + nbytes


def check_shapes(name: str, found: torch.Size | None, other: torch.Size | None) -> None:
    """Check that a client's term has the shape of the others'; torch would stretch [1] to [3]. Raises WrongResult."""
    if found is not None and other is not None and found != other:
        words = f"found a term of shape {[*found]}, allowed: {[*other]}, which other clients sent"
        raise WrongResult(f"methods.{name}: {words}; or the reduction by_client")


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) else math.nan
