"""The tables of docs/leaderboard.md, from the rankings of raysim's report. `make docs` writes them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import cast

from provenance import render_provenance
from rank_agreement import agreement

from raysim.config.yaml_text import read_yaml
from raysim.evaluation.accuracy_matrix import protocol_label
from raysim.reports.costs import BYTES, STEPS, RunCost, tabulate_budgets
from raysim.reports.families import adjust_family
from raysim.reports.grouping import MethodGroup, group_runs
from raysim.reports.naming import show_bare
from raysim.reports.quantity_tables import ACCURACY, FORGETTING, NOTHING, Quantity
from raysim.reports.ranks import Interval, Ranking, list_remarks, mean_ranks
from raysim.reports.reading import find_runs
from raysim.reports.statistics import PairedDifference, compare_pairs
from raysim.sweeps.cells import Cell
from raysim.sweeps.grid import expand_sweep

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "leaderboard.md", "results/leaderboard"
EARLIER = "results/leaderboard_fixed_rate"  # one learning rate for all, before the search
SHORTER = "results/leaderboard_shorter_lists"  # some rows as their search with shorter lists tuned them
PLAIN = "FedAvg"  # with which the others are compared
PAIRS = (  # others that the page's sentences compare
    *(("GPM", "DER++"), ("C-FLAG", "NCCL"), ("SPECIAL", "SPECIAL-C")),
    *((name, "Shared") for name in ("LwF, new classes", "TARGET", "LANDER", "MFCL")),
)
UNTUNED = {  # with the choices of the same setting on MNIST
    "usps-rotated": "results/leaderboard_usps_rotated",
    "usps-split": "results/leaderboard_usps_split",
}
SWEEP = ROOT / "configs" / "sweeps" / "leaderboard.yaml"
OPENS, CLOSES = "<!-- tables, written by make docs -->", "<!-- end of tables -->"
SHOWN = (
    replace(ACCURACY, digits=1),
    replace(FORGETTING, digits=1),
    Quantity("seconds", "time", "s", 1, 1, False, None),
)


@cache
def read_rankings(directory: Path) -> list[Ranking]:
    """Return the rankings of a sweep's settings, by their titles."""
    left_out: list[str] = []
    found = map(Ranking, group_runs(find_runs([directory], left_out), left_out))
    return sorted(found, key=lambda ranking: ranking.setting.title)


def render_tables(rankings: Sequence[Ranking], source: str) -> str:
    """Return all tables; `source` is the results' directory, for the marks by which a test compares figures."""
    parts = ["### Ranks", "\n".join(_ranks(rankings)), *_notes(rankings)]
    for ranking in rankings:
        parts += [f"### {ranking.setting.title}", f"<!-- {source} -->", "\n".join(_table(ranking))]
    return "\n\n".join(parts)


def _ranks(rankings: Sequence[Ranking]) -> Iterator[str]:
    """Yield the lines of the table of ranks; methods that are not ranked in every setting come last."""
    means = mean_ranks(rankings)
    names = dict.fromkeys(name for ranking in rankings for name in ranking.ranks)
    known = {name: fmean(one.shared_ranks[name] for one in rankings if name in one.ranks) for name in names}
    yield from _head("method", "mean rank of groups", "mean rank", *(ranking.setting.title for ranking in rankings))
    for name in sorted(names, key=lambda name: (name not in means, known[name], name)):
        mean = means.get(name)
        columns = [f"{mean.shared:.1f}", _show_rank(mean.mean, mean.interval, 1)] if mean else [NOTHING, NOTHING]
        yield _line(name, *columns, *(_in_setting(ranking, name) for ranking in rankings))


def _in_setting(ranking: Ranking, name: str) -> str:
    """Return a method's group and rank in a setting."""
    if name not in ranking.ranks:
        return NOTHING
    return f"{ranking.tiers[name]}: {_show_rank(ranking.ranks[name], ranking.intervals.get(name), 0)}"


def _show_rank(rank: float, interval: Interval | None, digits: int) -> str:
    """Return a rank with its interval, unless that is the rank alone."""
    texts = [f"{number:.{digits}f}" for number in (rank, *(interval or ()))]
    return texts[0] if len({*texts}) == 1 else f"{texts[0]} ({texts[1]} to {texts[2]})"


def _notes(rankings: Sequence[Ranking]) -> Iterator[str]:
    """Yield a list of the sweep's remarks."""
    if remarks := list_remarks([ranking.setting for ranking in rankings]):
        yield "\n".join(f"- {line}" for line in remarks)


def _table(ranking: Ranking) -> Iterator[str]:
    """Yield the lines of a setting's table, the best first."""
    yield from _head(
        "method",
        "rank",
        "group",
        "seeds",
        *(quantity.title for quantity in SHOWN[:2]),
        BYTES.heading,
        STEPS.heading,
        "on the front of",
        *(quantity.title for quantity in SHOWN[2:]),
        "its command",
    )
    costs_of = tabulate_budgets(ranking.setting, ranking.protocol)
    fronts = {row[0].text: row[-1].text for row in costs_of.rows} if costs_of else {}
    rows = []
    for group in ranking.setting.groups:
        protocol = group.protocols[0]
        found = SHOWN[0].average_group(group, protocol)
        rows.append((-float(SHOWN[0].show(found.mean)) if found else 0.0, group.name, protocol, group))
    for _, name, protocol, group in sorted(rows, key=lambda row: row[:2]):
        rank, tier = _rank_of(ranking, group, protocol)
        command = f"`{shlex.join((f'setting={ranking.setting.title}', f'methods={name}'))}`"
        shown = [_show(quantity, group, protocol) for quantity in SHOWN]
        costs = [_show_cost(cost, group) for cost in (BYTES, STEPS)]
        front = fronts.get(group.label) or NOTHING
        yield _line(group.label, rank, tier, str(len(group.runs)), *shown[:2], *costs, front, *shown[2:], command)


def _rank_of(ranking: Ranking, group: MethodGroup, protocol: str) -> tuple[str, str]:
    """Return a group's rank with its interval, and its tier; or why it has none."""
    if protocol != ranking.protocol:
        return protocol_label(protocol), NOTHING
    if group.name not in ranking.ranks:
        return "bound" if group.bound else NOTHING, NOTHING
    rank = _show_rank(ranking.ranks[group.name], ranking.intervals.get(group.name), 0)
    return rank, str(ranking.tiers[group.name])


def _show(quantity: Quantity, group: MethodGroup, protocol: str) -> str:
    """Return the mean and deviation of what was learned; of the time the median, as a machine may have been busy."""
    if quantity.block is None:
        return quantity.show(median(quantity.by_seed(group, protocol).values()))
    return quantity.show_mean(quantity.average_group(group, protocol))


def _show_cost(cost: RunCost, group: MethodGroup) -> str:
    """Return the mean cost of a group's runs, if all have recorded it."""
    found = [cost.of(run.summary) for run in group.runs]
    known = [one for one in found if one is not None]
    return NOTHING if len(known) < len(found) else f"{fmean(known):.{1 if cost is BYTES else 0}f}"


def _head(*headings: str) -> Iterator[str]:
    yield _line(*headings)
    yield "|" + "---|" * len(headings)


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def render_gains(rankings: Sequence[Ranking]) -> str:
    """Return the table of the methods' differences from FedAvg; those that are significant are bold."""
    gains = [_gains(ranking, PLAIN) for ranking in rankings]
    names = dict.fromkeys(name for by_name in gains for name in by_name)
    lines = [*_head("method", *(ranking.setting.title for ranking in rankings))]
    lines += [_line(name, *(by_name.get(name, NOTHING) for by_name in gains)) for name in names]
    return "\n".join(lines)


def render_pairs(rankings: Sequence[Ranking]) -> str:
    """Return the table of differences of other pairs. A family has all methods against the second of the pair."""
    lines = [*_head("method", "compared with", *(ranking.setting.title for ranking in rankings))]
    for name, other in PAIRS:
        gains = [_gains(ranking, other) if other in ranking.ranks else {} for ranking in rankings]
        lines.append(_line(name, other, *(by_name.get(name, NOTHING) for by_name in gains)))
    return "\n".join(lines)


def _gains(ranking: Ranking, plain_name: str) -> dict[str, str]:
    """Return by name each ranked method's difference from one of them, with its interval. All of them are a family."""
    values = {group.name: ranking.quantity.by_seed(group, ranking.protocol) for group in ranking.ranked}
    plain = values.pop(plain_name)
    found = adjust_family([compare_pairs(plain, of_method) for of_method in values.values()])
    return {name: _show_gain(one) for name, one in zip(values, found, strict=True) if one is not None}


def _show_gain(found: PairedDifference) -> str:
    mean, low, high = (round(found.mean + side * (found.half or 0.0), 1) + 0.0 for side in (0, -1, 1))  # no -0.0
    shown = f"{mean:.1f} ({low:.1f} to {high:.1f})"
    return f"**{shown}**" if found.significant else shown


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
    lines = [*_head("method", "tried", *titles)]
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
        lines.append(_line(name, tried, *picks))
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


def render_moves(rankings: Sequence[Ranking], earlier: Sequence[Ranking]) -> str:
    """Return the table of places and means, earlier and now, over the seeds and among the methods of both results."""
    before = {ranking.setting.title: ranking for ranking in earlier}
    common = [(before[one.setting.title], one) for one in rankings if one.setting.title in before]
    shared = [[name for name in new.ranks if name in old.ranks] for old, new in common]
    means = [
        [_means(one, {*old.seeds} & {*new.seeds}, names) for one in (old, new)]
        for (old, new), names in zip(common, shared, strict=True)
    ]
    lines = [*_head("method", *(new.setting.title for _, new in common))]
    for name in dict.fromkeys(name for names in shared for name in names):
        moves = [" → ".join(_place(name, one) for one in pair) if name in pair[0] else NOTHING for pair in means]
        lines.append(_line(name, *moves))
    return "\n".join(lines)


def _means(ranking: Ranking, seeds: Collection[int], names: Sequence[str]) -> dict[str, str]:
    """Return the means of some ranked methods over some seeds, as shown."""
    groups = {group.name: group for group in ranking.ranked}
    by_seed = {name: ranking.quantity.by_seed(groups[name], ranking.protocol) for name in names}
    return {name: f"{fmean(by_seed[name][seed] for seed in seeds):.1f}" for name in names}


def _place(name: str, means: Mapping[str, str]) -> str:
    """Return a method's place among those that have means, and its mean."""
    return f"{1 + sum(float(other) > float(means[name]) for other in means.values())}: {means[name]}"


def render_retuned(rankings: Sequence[Ranking], shorter: Sequence[Ranking]) -> str:
    """Return the table of means of the rows that were tuned twice: with shorter lists, and as they are now."""
    before = {ranking.setting.title: ranking for ranking in shorter}
    common = [(before[one.setting.title], one) for one in rankings if one.setting.title in before]
    lines = [*_head("method", *(new.setting.title for _, new in common))]
    for name in dict.fromkeys(group.name for old, _ in common for group in old.ranked):
        pairs = [(old, new) if name in old.ranks and name in new.ranks else () for old, new in common]
        shown = [" → ".join(_means(one, one.seeds, [name])[name] for one in pair) for pair in pairs]
        lines.append(_line(name, *(text or NOTHING for text in shown)))
    return "\n".join(lines)


def render_agreement(rankings: Mapping[str, Ranking]) -> str:
    """Return the table of Spearman's rank correlations of each setting with those before it, by title."""
    titles = [*rankings]
    lines = [*_head("setting", *titles[:-1])]
    for place, title in enumerate(titles[1:], start=1):
        found = [agreement(rankings[title], rankings[other]) for other in titles[:place]]
        shown = [f"{one.rho:.2f} ({one.low:.2f} to {one.high:.2f}), {one.methods}" for one in found]
        lines.append(_line(title, *shown, *[NOTHING] * (len(titles) - 1 - place)))
    return "\n".join(lines)


def insert_tables(page: str, tables: str) -> str:
    """Return a page with these tables between its marks."""
    return re.sub(f"{OPENS}.*?{CLOSES}", lambda _: f"{OPENS}\n\n{tables}\n\n{CLOSES}", page, flags=re.DOTALL)


def render_page() -> str:
    """Return the page with its tables as they are now."""
    found, earlier, shorter = (read_rankings(ROOT / results) for results in (RESULTS, EARLIER, SHORTER))
    untuned = {title: read_rankings(ROOT / results)[0] for title, results in UNTUNED.items()}
    parts = (
        render_tables(found, RESULTS),
        "### Differences from FedAvg",
        render_gains(found),
        "### Other differences",
        render_pairs(found),
        "### Agreement of settings",
        render_agreement({one.setting.title: one for one in found} | untuned),
        "### What was tried",
        render_search(found, SWEEP),
        "### Tuned twice",
        render_retuned(found, shorter),
        "### What moved",
        render_moves(found, earlier),
        "### Provenance",
        render_provenance("".join(f"<!-- {sweep} -->" for sweep in (RESULTS, EARLIER, SHORTER, *UNTUNED.values()))),
    )
    return insert_tables(PAGE.read_text(encoding="utf-8"), "\n\n".join(parts))


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
