"""The tables of docs/choose.md, from what methods declare and from the leaderboard's runs. `make docs` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from board import ROOT, tuned
from leaderboard_page import PLAIN
from marked_text import put_between
from method_needs import find_boundaries, stores_samples

from raysim.api import Method
from raysim.api.setting import Need
from raysim.config.lookup import resolve, table
from raysim.engine.compatibility import needs_of
from raysim.reports.grouping import MethodGroup
from raysim.reports.ranks import Ranking

PAGE = ROOT / "docs" / "choose.md"
OPENS, CLOSES = "<!-- tables, written by make docs -->", "<!-- end of tables -->"
KINDS = {
    "new domains": ("digits-rotated", "mnist-rotated"),
    "new classes": ("digits-split", "mnist-split"),
    "frozen features": ("banking77", "pacs"),
}
"""By kind, the settings of the board."""
BEST = 3  # methods that a question lists


@dataclass(frozen=True, order=True)
class Place:
    """A row's mean ranks in the leaderboard's settings of a kind: of its groups, and its own.

    Attributes:
        row: its name if the method has several rows, else empty.
    """

    shared: float
    own: float
    row: str


@dataclass(frozen=True)
class Choice:
    """A method, and the place of its best row by kind of setting, if a row is ranked in all settings of the kind."""

    name: str
    method: Method
    needs: frozenset[Need]
    places: Mapping[str, Place]

    @property
    def stores_samples(self) -> bool:
        """Whether clients keep samples of earlier tasks."""
        return stores_samples(self.method)

    @property
    def boundaries(self) -> str:
        """Who must know when a task ends. Some memories are filled then."""
        return find_boundaries(self.method, self.needs)


QUESTIONS: Mapping[str, Callable[[Choice], bool]] = {
    "Clients may store samples": lambda choice: choice.stores_samples,
    "Clients must not store samples": lambda choice: not choice.stores_samples,
    "Task ends are unknown": lambda choice: choice.boundaries == "none",
    "Task ends are unknown, and no samples are stored": lambda choice: (
        choice.boundaries == "none" and not choice.stores_samples
    ),
    "Clients are asynchronous": lambda choice: "barrier" not in choice.needs,
    "Clients send nothing but the model": lambda choice: not choice.method.replies,
    "Any optimizer": lambda choice: not choice.needs & {"plain_sgd", "undecayed_sgd"},
    "Any objective, not only classes": lambda choice: "classes" not in choice.needs,
}


@cache
def read_choices() -> list[Choice]:
    """Return all methods, those that joint and fixed bound and not the bounds."""
    rankings = tuned()
    choices = []
    for name in table("method"):
        method = resolve("method", name)()
        if name not in ("joint", "fixed"):
            places = _places(rankings, lambda group, name=name: [*group.methods] == [name])
            choices.append(Choice(name, method, needs_of(method), places))
    return choices


def _places(rankings: Sequence[Ranking], wanted: Callable[[MethodGroup], bool]) -> dict[str, Place]:
    """Return the places of the best of the rows that are wanted, by kind of setting."""
    found = {}
    for kind, titles in KINDS.items():
        of_kind = [ranking for ranking in rankings if ranking.setting.title in titles]
        rows = {group.name for one in of_kind for group in one.groups if wanted(group)}
        places = [
            Place(
                fmean(one.shared_ranks[row] for one in of_kind),
                fmean(one.ranks[row] for one in of_kind),
                row if len(rows) > 1 else "",
            )
            for row in rows
            if all(row in one.ranks for one in of_kind)
        ]
        if places:
            found[kind] = min(places)
    return found


def render_tables() -> str:
    """Return the two tables."""
    choices = read_choices()
    plain = _places(tuned(), lambda group: group.name == PLAIN)  # Shared has no methods either
    return "\n".join([*_questions(choices, plain), "", "## All methods", "", *_methods(choices)])


def _questions(choices: Sequence[Choice], plain: Mapping[str, Place]) -> Iterator[str]:
    """Yield the lines of the table of questions, given FedAvg's places."""
    yield f"| if | {' | '.join(KINDS)} |"
    yield "|---" * (1 + len(KINDS)) + "|"
    for question, fits in QUESTIONS.items():
        cells = []
        for kind in KINDS:
            ahead = [c for c in choices if fits(c) and kind in c.places and c.places[kind].shared < plain[kind].shared]
            ahead.sort(key=lambda choice: choice.places[kind])
            cells.append(", ".join(_link(choice, kind) for choice in ahead[:BEST]) or "none is ahead of FedAvg")
        yield f"| {question} | {' | '.join(cells)} |"


def _link(choice: Choice, kind: str) -> str:
    """Return the link to a method's page, with the name of its row if the method has several."""
    row = choice.places[kind].row
    return f"[`{choice.name}`](methods/{choice.name}.md)" + f" ({row})" * bool(row)


def _methods(choices: Sequence[Choice]) -> Iterator[str]:
    heads = ["method", "stores samples", "must know task ends", "waits for all clients", "sends in addition"]
    heads += ["optimizer", *(f"rank, {kind}" for kind in KINDS)]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for choice in sorted(choices, key=lambda choice: (_mean_rank(choice, len(choices)), choice.name)):
        yield "| " + " | ".join(_cells(choice)) + " |"


def _mean_rank(choice: Choice, last: int) -> float:
    """Return the mean of a method's ranks, or `last` if it has none."""
    return fmean([place.shared for place in choice.places.values()] or [last])


def _cells(choice: Choice) -> Iterator[str]:
    yield f"[`{choice.name}`](methods/{choice.name}.md)"
    yield "yes" if choice.stores_samples else "no"
    yield choice.boundaries
    yield "yes" if "barrier" in choice.needs else "no"
    yield ", ".join(term.replace("_", " ") for term in choice.method.replies) or "nothing"
    yield "SGD" if choice.needs & {"plain_sgd", "undecayed_sgd"} else "any"
    for kind in KINDS:
        yield f"{choice.places[kind].shared:.1f}" if kind in choice.places else "–"


def insert_tables(page: str) -> str:
    """Return the page with its present tables between the marks."""
    return put_between(page, OPENS, CLOSES, render_tables())


if __name__ == "__main__":
    PAGE.write_text(insert_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
