"""The leaderboard as Markdown, from the finished runs of configs/sweeps/leaderboard.yaml and of custom rows.

`python tools/leaderboard.py DIR ...` prints the tables over all runs below the directories; with `--page FILE` they
take the place of those between the page's marks.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

from raysim.evaluation.metrics import protocol_label
from raysim.reports.grouping import MethodGroup
from raysim.reports.reading import FinishedRun, find_runs
from raysim.reports.tables import ACCURACY, FORGETTING, NOTHING, Quantity
from raysim.sweeps.cells import SPLIT_KEY

OPENS, CLOSES = "<!-- tables, written by tools/leaderboard.py -->", "<!-- end of tables -->"
BOUNDS = {"joint", "fixed"}  # methods that are no competitors
SHOWN = (
    replace(ACCURACY, digits=1),
    replace(FORGETTING, digits=1),
    Quantity("bytes_up", "sent up", "MiB", 2**-20, 1, False, None),
    Quantity("bytes_down", "sent down", "MiB", 2**-20, 1, False, None),
    Quantity("seconds", "time", "s", 1, 1, False, None),
)


@dataclass(frozen=True, eq=False)
class Row:
    """A method in one setting, the chosen hyperparameter in its label: its runs by seed, and the protocol shown."""

    group: MethodGroup
    protocol: str

    @property
    def name(self) -> str:
        """The method, without the chosen hyperparameter."""
        return _name(self.group.label)

    @property
    def bound(self) -> bool:
        """Whether it is an upper or a lower bound."""
        return not BOUNDS.isdisjoint(self.group.methods)

    @cached_property
    def accuracy(self) -> float:
        """The mean accuracy over the seeds in %, as shown, so that what looks equal has the same rank."""
        found = SHOWN[0].average_group(self.group, self.protocol)
        return float(SHOWN[0].show(found.mean)) if found else 0.0


@dataclass(frozen=True, eq=False)
class Board:
    """The rows of one setting, best first, the protocol by which they are ranked, and how many seeds a row has."""

    setting: str
    rows: Sequence[Row]
    protocol: str
    seeds: int

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """By name: the rank of every row that is no bound, has all seeds and is measured by the common protocol."""
        ranked = [
            row
            for row in self.rows
            if not row.bound and row.protocol == self.protocol and len(row.group.runs) == self.seeds
        ]
        return {row.name: 1 + sum(other.accuracy > row.accuracy for other in ranked) for row in ranked}


def read_boards(directories: Sequence[Path]) -> list[Board]:
    """Return the boards of the settings that the runs below the directories are of, by name. Trials are no rows."""
    found: dict[str, dict[str, dict[int, FinishedRun]]] = defaultdict(lambda: defaultdict(dict))
    for run in find_runs(directories, []):
        if {"setting", "methods"} <= run.names.keys() and SPLIT_KEY not in run.names:
            found[run.names["setting"]][_name(run.names["methods"])][run.summary.seed] = run
    return [_board(setting, rows) for setting, rows in sorted(found.items())]


def _name(label: str) -> str:
    return label.partition(", ")[0]


def _board(setting: str, found: Mapping[str, Mapping[int, FinishedRun]]) -> Board:
    rows = []
    for by_seed in found.values():
        runs = [by_seed[seed] for seed in sorted(by_seed)]
        group = MethodGroup(runs[0].names["methods"], runs[0].methods, runs)
        rows.append(Row(group, next(iter(runs[0].summary.evaluation))))
    rows.sort(key=lambda row: (-row.accuracy, row.name))
    protocol = Counter(row.protocol for row in rows).most_common(1)[0][0]
    return Board(setting, rows, protocol, max(len(row.group.runs) for row in rows))


def render_boards(boards: Sequence[Board], source: str) -> str:
    """Return all tables; `source` is the results' directory, for the marks by which a test compares figures."""
    parts = ["### Ranks", "\n".join(_ranks(boards))]
    for board in boards:
        parts += [f"### {board.setting}", f"<!-- {source} -->", "\n".join(_table(board))]
    return "\n\n".join(parts)


def _ranks(boards: Sequence[Board]) -> Iterator[str]:
    """Yield the lines of the table of ranks, by their mean; what is not ranked in every setting comes last."""
    names = dict.fromkeys(name for board in boards for name in board.ranks)
    means = {name: fmean(board.ranks[name] for board in boards if name in board.ranks) for name in names}
    missing = {name: sum(name not in board.ranks for board in boards) for name in names}
    yield from _head("method", "mean rank", *(board.setting for board in boards))
    for name in sorted(names, key=lambda name: (missing[name] > 0, means[name], name)):
        mean = NOTHING if missing[name] else f"{means[name]:.1f}"
        yield _line(name, mean, *(str(board.ranks.get(name, NOTHING)) for board in boards))


def _table(board: Board) -> Iterator[str]:
    """Yield the lines of a setting's table."""
    yield from _head("method", "rank", "seeds", *(quantity.title for quantity in SHOWN), "its command")
    for row in board.rows:
        rank = "bound" if row.bound else str(board.ranks.get(row.name, NOTHING))
        if row.protocol != board.protocol:
            rank = protocol_label(row.protocol)
        shown = [_show(quantity, row) for quantity in SHOWN]
        command = f"`{shlex.join((f'setting={board.setting}', f'methods={row.name}'))}`"
        seeds = str(len(row.group.runs))
        yield _line(row.group.label, rank, seeds, *shown, command)


def _show(quantity: Quantity, row: Row) -> str:
    """Return the mean over seeds, and for what is learnt the deviation."""
    found = quantity.average_group(row.group, row.protocol)
    if found is not None and quantity.block is None:
        return quantity.show(found.mean)
    return quantity.show_mean(found)


def _head(*headings: str) -> Iterator[str]:
    yield _line(*headings)
    yield "|" + "---|" * len(headings)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def insert_tables(page: str, tables: str) -> str:
    """Return a page with these tables between its marks."""
    return re.sub(f"{OPENS}.*?{CLOSES}", lambda _: f"{OPENS}\n\n{tables}\n\n{CLOSES}", page, flags=re.DOTALL)


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables, or write them into a page."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("directories", metavar="DIR", nargs="+", type=Path, help="where finished runs are looked for")
    parser.add_argument("--page", metavar="FILE", type=Path, help="the page that the tables are written into")
    asked = parser.parse_args(argv)
    tables = render_boards(read_boards(asked.directories), asked.directories[0].as_posix())
    if asked.page is None:
        print(tables)
    else:
        asked.page.write_text(insert_tables(asked.page.read_text(encoding="utf-8"), tables), encoding="utf-8")


if __name__ == "__main__":
    main()
