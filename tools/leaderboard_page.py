"""The tables of docs/leaderboard.md, from the rankings of raysim's report. `make docs` writes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from raysim.evaluation.metrics import protocol_label
from raysim.reports.grouping import MethodGroup, group_runs
from raysim.reports.ranks import Ranking, mean_ranks
from raysim.reports.reading import find_runs
from raysim.reports.tables import ACCURACY, FORGETTING, NOTHING, Quantity

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "leaderboard.md", "results/leaderboard"
OPENS, CLOSES = "<!-- tables, written by make docs -->", "<!-- end of tables -->"
SHOWN = (
    replace(ACCURACY, digits=1),
    replace(FORGETTING, digits=1),
    Quantity("bytes_up", "sent up", "MiB", 2**-20, 1, False, None),
    Quantity("bytes_down", "sent down", "MiB", 2**-20, 1, False, None),
    Quantity("seconds", "time", "s", 1, 1, False, None),
)


def read_rankings(directory: Path) -> list[Ranking]:
    """Return the rankings of a sweep's settings, by their titles."""
    left_out: list[str] = []
    found = map(Ranking, group_runs(find_runs([directory], left_out), left_out))
    return sorted(found, key=lambda ranking: ranking.setting.title)


def render_tables(rankings: Sequence[Ranking], source: str) -> str:
    """Return all tables; `source` is the results' directory, for the marks by which a test compares figures."""
    parts = ["### Ranks", "\n".join(_ranks(rankings))]
    for ranking in rankings:
        parts += [f"### {ranking.setting.title}", f"<!-- {source} -->", "\n".join(_table(ranking))]
    return "\n\n".join(parts)


def _ranks(rankings: Sequence[Ranking]) -> Iterator[str]:
    """Yield the lines of the table of ranks, by their mean; methods that are not ranked in every setting come last."""
    means = mean_ranks(rankings)
    names = dict.fromkeys(name for ranking in rankings for name in ranking.ranks)
    known = {name: fmean(one.ranks[name] for one in rankings if name in one.ranks) for name in names}
    yield from _head("method", "mean rank", *(ranking.setting.title for ranking in rankings))
    for name in sorted(names, key=lambda name: (name not in means, known[name], name)):
        mean = f"{means[name]:.1f}" if name in means else NOTHING
        yield _line(name, mean, *(str(ranking.ranks.get(name, NOTHING)) for ranking in rankings))


def _table(ranking: Ranking) -> Iterator[str]:
    """Yield the lines of a setting's table, the best first."""
    yield from _head("method", "rank", "seeds", *(quantity.title for quantity in SHOWN), "its command")
    rows = []
    for group in ranking.setting.groups:
        protocol = group.protocols[0]
        found = SHOWN[0].average_group(group, protocol)
        name = group.name
        rows.append((-float(SHOWN[0].show(found.mean)) if found else 0.0, name, protocol, group))
    for _, name, protocol, group in sorted(rows, key=lambda row: row[:2]):
        rank = "bound" if group.bound else str(ranking.ranks.get(name, NOTHING))
        if protocol != ranking.protocol:
            rank = protocol_label(protocol)
        command = f"`{shlex.join((f'setting={ranking.setting.title}', f'methods={name}'))}`"
        shown = [_show(quantity, group, protocol) for quantity in SHOWN]
        yield _line(group.label, rank, str(len(group.runs)), *shown, command)


def _show(quantity: Quantity, group: MethodGroup, protocol: str) -> str:
    """Return the mean over seeds, and the deviation of what was learned."""
    found = quantity.average_group(group, protocol)
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


if __name__ == "__main__":
    written = render_tables(read_rankings(ROOT / RESULTS), RESULTS)
    PAGE.write_text(insert_tables(PAGE.read_text(encoding="utf-8"), written), encoding="utf-8")
