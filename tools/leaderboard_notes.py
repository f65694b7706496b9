"""The tables of docs/results/leaderboard_notes.md: what the leaderboard tried and chose, and what moved to its results.

`make docs` writes them, and tools/provenance.py the page's last table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import cast

from board import ROOT, SWEEPS, read_board, read_rankings, rules_of, tuned
from leaderboard_page import fold, insert_block
from markdown_rows import head, line

from raysim.config.yaml_text import read_yaml
from raysim.reports.naming import show_bare
from raysim.reports.packed import SUFFIX, read_packed
from raysim.reports.quantity_tables import NOTHING
from raysim.reports.ranks import Ranking
from raysim.sweeps.cells import SPLIT_KEY, Cell
from raysim.sweeps.grid import expand_sweep

PAGE = ROOT / "docs" / "results" / "leaderboard_notes.md"
COSTLY = 3.0  # points
ALONE = {"seed", "setting", "methods", SPLIT_KEY}  # what names a trial in the setting's own condition
EARLIER = "leaderboard_unnormalized"  # on inputs that are not normalized, with longer lists


def render_search(rankings: Sequence[Ranking], sweep: Path) -> str:
    """Return the table of what was tried and chosen, from the sweep's file; chosen values at an end have a star."""
    document = read_yaml(sweep).values
    rows = cast(Mapping[str, Mapping[str, object]], cast(Mapping[str, object], document["tune"])["methods"])
    chosen = {
        (ranking.setting.title, group.name): group.label.removeprefix(group.name).removeprefix(", ")
        for ranking in rankings
        for group in ranking.setting.groups
    }

    def rate(name: str, trial: Cell) -> float:
        row, tried = _split(trial.labels["methods"], rows)
        return float(chosen.get((trial.labels["setting"], row)) == tried)

    titles = [ranking.setting.title for ranking in rankings]
    seeds = cast(Mapping[str, Sequence[int]], document["grid"]).get("seed", [])[:1]  # one is enough for the choices
    narrowed = {"setting": titles, **({"seed": seeds[0]} if seeds else {})}
    at_ends = {
        (cell.labels["setting"], cell.labels["methods"]): cell.at_end
        for cell in expand_sweep(sweep, narrowed, rate)[1]
        if cell.chosen == chosen.get((cell.labels["setting"], cell.labels["methods"]))
    }
    lines = [*head("method", "tried", *titles)]
    for name, keys in rows.items():
        if not any((title, name) in chosen for title in titles):
            continue
        lists = [(key.split("."), items) for key, items in keys.items() if isinstance(items, list)]
        last = [key[-1] for key, _ in lists]
        tried = "; ".join(
            f"{'.'.join(key[-1:] if last.count(key[-1]) == 1 else key[-2:])} {', '.join(map(show_bare, items))}"
            for key, items in lists
        )
        picks = [_mark(chosen.get((title, name)), at_ends.get((title, name), "")) for title in titles]
        lines.append(line(name, tried, *picks))
    return "\n".join(lines)


def _split(label: str, rows: Mapping[str, object]) -> tuple[str, str]:
    """Return a candidate's row and its values."""
    row = max((name for name in rows if label.startswith(f"{name}, ")), key=len, default=label)
    return row, label.removeprefix(f"{row}, ")


def _mark(chosen: str | None, at_end: str) -> str:
    """Return chosen values, with a star at those that are at an end of their list."""
    if chosen is None:
        return NOTHING
    return ", ".join(f"{value}*" if value in at_end.split(", ") else value for value in chosen.split(", "))


def render_costs(rankings: Sequence[Ranking], sweep: Path) -> str:
    """Return what the second condition cost: the rows with a choice points behind their best trial without it.

    A finalist is rated by the worse of two conditions. Both values are of the held-out samples, in the setting's own
    condition.
    """
    document = read_yaml(sweep).values
    rows = cast(Mapping[str, object], cast(Mapping[str, object], document["tune"])["methods"])
    protocols = {ranking.setting.title: ranking.protocol for ranking in rankings}
    trials = dict[tuple[str, str], dict[str, float]]()
    packed = read_packed(ROOT / "results" / f"{sweep.stem}{SUFFIX}")
    runs = packed.sweep.runs if packed.sweep else {}
    for run in packed.runs:
        names = runs.get(run.path, {})
        found = run.summary.evaluation.get(protocols.get(names.get("setting", ""), ""))
        accuracy = found["average_accuracy"] if found and run.summary.status == "done" else None
        if names.keys() == ALONE and accuracy is not None:
            name, values = _split(names["methods"], rows)
            trials.setdefault((names["setting"], name), {})[values] = 100 * accuracy
    lines, behind = [*head("setting", "method", "best trial", "chosen", "points")], 0
    for ranking in rankings:
        for group in ranking.groups:
            tried = trials.get((ranking.setting.title, group.name))
            if tried is None:
                continue
            best, chosen = max(tried.values()), tried[group.label.removeprefix(f"{group.name}, ")]
            behind += chosen < best
            if best - chosen >= COSTLY:
                shown = (f"{value:.1f}" for value in (best, chosen, chosen - best))
                lines.append(line(ranking.setting.title, group.name, *shown))
    return f"{behind} of {len(trials)} rows have a choice below their best trial.\n\n" + "\n".join(lines)


def render_moves(rankings: Sequence[Ranking], earlier: Sequence[Ranking]) -> str:
    """Return the table of places and means, earlier and now, over the seeds and among the methods of both results."""
    before = {ranking.setting.title: ranking for ranking in earlier}
    common = [(before[one.setting.title], one) for one in rankings if one.setting.title in before]
    shared = [[name for name in new.ranks if name in old.ranks] for old, new in common]
    means = [
        [_means(one, {*old.seeds} & {*new.seeds}, names) for one in (old, new)]
        for (old, new), names in zip(common, shared, strict=True)
    ]
    lines = [*head("method", *(new.setting.title for _, new in common))]
    for name in dict.fromkeys(name for names in shared for name in names):
        moves = [" → ".join(_place(name, one) for one in pair) if name in pair[0] else NOTHING for pair in means]
        lines.append(line(name, *moves))
    return "\n".join(lines)


def _means(ranking: Ranking, seeds: Collection[int], names: Sequence[str]) -> dict[str, str]:
    """Return the means of some ranked methods over some seeds, as shown."""
    groups = {group.name: group for group in ranking.ranked}
    by_seed = {name: ranking.quantity.by_seed(groups[name], ranking.protocol) for name in names}
    return {name: f"{fmean(by_seed[name][seed] for seed in seeds):.1f}" for name in names}


def _place(name: str, means: Mapping[str, str]) -> str:
    """Return a method's place among those that have means, and its mean."""
    return f"{1 + sum(float(other) > float(means[name]) for other in means.values())}: {means[name]}"


def render_page() -> str:
    """Return the page with its tables as they are now."""
    found = tuned()
    page = PAGE.read_text(encoding="utf-8")
    by_sweep = {one: [s.ranking for s in read_board() if s.sweep == one and s.source is None] for one in SWEEPS}
    costs = (render_costs(rankings, rules_of(sweep)) for sweep, rankings in by_sweep.items())
    choices = (render_search(rankings, rules_of(sweep)) for sweep, rankings in by_sweep.items())
    for name, summary, table in (
        ("choices", "All lists and choices", "\n\n".join(choices)),
        ("costs", "Rows that lost three points or more to the second condition", "\n\n".join(costs)),
        ("moves", "Places and means, earlier and now", render_moves(found, read_rankings(ROOT / "results" / EARLIER))),
    ):
        page = insert_block(page, name, fold(summary, table))
    return page


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
