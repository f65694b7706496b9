"""The tables of docs/choose.md, from what methods declare and from the leaderboard's runs. `make docs` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from leaderboard_page import read_rankings

from raysim.api import Method
from raysim.api.method import Need
from raysim.config.lookup import resolve, table
from raysim.engine.compatibility import needs_of
from raysim.reports.ranks import Ranking

ROOT = Path(__file__).parents[1]
PAGE, RANKED = ROOT / "docs" / "choose.md", ROOT / "results" / "leaderboard"
OPENS, CLOSES = "<!-- tables, written by make docs -->", "<!-- end of tables -->"
KINDS = {"new domains": "rotated", "new classes": "split"}  # by kind of stream: how its settings' names end
BEST = 3  # methods that a question lists


@dataclass(frozen=True)
class Choice:
    """A method, and its mean rank in the leaderboard's settings of each kind, if it is ranked in all of them."""

    name: str
    method: Method
    needs: frozenset[Need]
    ranks: Mapping[str, float]

    @property
    def stores_samples(self) -> bool:
        """Whether clients keep samples of earlier tasks."""
        return self.method.memory is not None

    @property
    def boundaries(self) -> str:
        """Who must know when a task ends."""
        return "server" if "server_boundaries" in self.needs else "clients" if "boundaries" in self.needs else "none"


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
    rankings = read_rankings(RANKED)
    choices = []
    for name in table("method"):
        method = resolve("method", name)()
        if name not in ("joint", "fixed"):
            choices.append(Choice(name, method, needs_of(method), _ranks(name, rankings)))
    return choices


def _ranks(name: str, rankings: Sequence[Ranking]) -> dict[str, float]:
    """Return a method's mean rank by kind of stream: that of its best row, as DER++ is a row of der."""
    found = {}
    for kind, ending in KINDS.items():
        of_kind = [ranking for ranking in rankings if ranking.setting.title.endswith(ending)]
        by_setting = [
            [
                ranking.shared_ranks[group.name]
                for group in ranking.groups
                if [*group.methods] == [name] and group.name in ranking.ranks
            ]
            for ranking in of_kind
        ]
        if all(by_setting):
            found[kind] = fmean(map(min, by_setting))
    return found


def render_tables() -> str:
    """Return the two tables."""
    choices = read_choices()
    return "\n".join([*_questions(choices), "", "## All methods", "", *_methods(choices)])


def _questions(choices: Sequence[Choice]) -> Iterator[str]:
    yield "| if | new domains | new classes |"
    yield "|---|---|---|"
    for question, fits in QUESTIONS.items():
        cells = []
        for kind in KINDS:
            ranked = sorted((c.ranks[kind], c.name) for c in choices if fits(c) and kind in c.ranks)
            cells.append(", ".join(f"[`{name}`](methods/{name}.md)" for _, name in ranked[:BEST]))
        yield f"| {question} | {' | '.join(cells)} |"


def _methods(choices: Sequence[Choice]) -> Iterator[str]:
    heads = ["method", "stores samples", "must know task ends", "waits for all clients", "sends in addition"]
    heads += ["optimizer", "rank, new domains", "rank, new classes"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for choice in sorted(choices, key=lambda choice: (fmean(choice.ranks.values() or [len(choices)]), choice.name)):
        yield "| " + " | ".join(_cells(choice)) + " |"


def _cells(choice: Choice) -> Iterator[str]:
    yield f"[`{choice.name}`](methods/{choice.name}.md)"
    yield "yes" if choice.stores_samples else "no"
    yield choice.boundaries
    yield "yes" if "barrier" in choice.needs else "no"
    yield ", ".join(term.replace("_", " ") for term in choice.method.replies) or "nothing"
    yield "SGD" if choice.needs & {"plain_sgd", "undecayed_sgd"} else "any"
    for kind in KINDS:
        yield f"{choice.ranks[kind]:.1f}" if kind in choice.ranks else "–"


def insert_tables(page: str) -> str:
    """Return the page with its present tables between the marks."""
    before, _, rest = page.partition(OPENS)
    return f"{before}{OPENS}\n\n{render_tables()}\n\n{CLOSES}{rest.partition(CLOSES)[2]}"


if __name__ == "__main__":
    PAGE.write_text(insert_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
