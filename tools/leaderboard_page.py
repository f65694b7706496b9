"""What `make docs` writes in docs/leaderboard.md: the answer and the tables, from the rankings of raysim's report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from board import ROOT, BoardSetting, read_board, tuned
from markdown_rows import head, line
from method_needs import any_stores_samples, join_boundaries
from rank_agreement import Agreement, agreement

from raysim.evaluation.accuracy_matrix import protocol_label
from raysim.reports.costs import BYTES, STEPS, RunCost, tabulate_budgets
from raysim.reports.families import adjust_family
from raysim.reports.grouping import MethodGroup
from raysim.reports.quantity_tables import ACCURACY, FORGETTING, NOTHING, Quantity
from raysim.reports.ranks import Interval, MeanRank, Ranking, join_words, list_remarks, mean_ranks
from raysim.reports.statistics import PairedDifference, compare_pairs

PAGE = ROOT / "docs" / "leaderboard.md"
PLAIN = "FedAvg"  # with which the others are compared
PAIRS = (  # others that the page's sentences compare
    *(("GPM", "DER++"), ("C-FLAG", "NCCL"), ("SPECIAL", "SPECIAL-C"), ("LwF, new classes", "Shared")),
)
FIRST = 5  # rows of the page's first table
WHO = {"none": "no", "clients": "each client", "server": "the server"}
"""By who must know when a task ends: how the page says it."""
SHOWN = (
    replace(ACCURACY, digits=1),
    replace(FORGETTING, digits=1),
    Quantity("seconds", "time", "s", 1, 1, False, None),
)


def render_answer(rankings: Sequence[Ranking]) -> str:
    """Return the recommendation with the best rows: with stored samples, and without if none of these is without."""
    means, methods = mean_ranks(rankings), _methods(rankings)
    order = sorted(means, key=lambda name: (means[name].mean, name))
    storing = [name for name in order if any_stores_samples(methods[name])]
    others = [name for name in order if name not in storing]
    advice = " ".join(
        f"If clients {may} store samples, use {_advise(names, means)}."
        for may, names in (("may", storing), ("must not", others))
        if names
    )
    first = order[:FIRST]
    first += [name for name in others[:1] if name not in first]
    heads = ["method", "mean rank", "stores samples", "must know task ends", "significantly better than FedAvg in"]
    rows = [*head(*heads)]
    for name in first:
        found = [_differences(one, PLAIN).get(name) for one in rankings]
        better, worse = (
            sum(one is not None and one.significant and side * one.mean > 0 for one in found) for side in (1, -1)
        )
        needs = [_stores(methods[name]), WHO[join_boundaries(methods[name])]]
        counts = f"{better} of {len(rankings)} settings" + f", worse in {worse}" * bool(worse)
        rows.append(line(_link(name, methods), _show_mean(means[name]), *needs, counts))
    return f"**{advice}**\n\n" + "\n".join(rows)


def _advise(names: Sequence[str], means: Mapping[str, MeanRank]) -> str:
    """Return the first of some names with its mean rank, and those with intervals that overlap with its interval."""
    first = means[names[0]]
    alike = [name for name in names[1:] if _overlap(first.interval, means[name].interval)]
    interval = "" if first.interval is None else ", 95% interval {:.1f} to {:.1f}".format(*first.interval)
    shown = f"{names[0]} (mean rank {first.mean:.1f}{interval})"
    return shown if not alike else f"{', '.join([shown, *alike[:-1]])} or {alike[-1]}"


def _overlap(one: Interval | None, other: Interval | None) -> bool:
    return one is not None and other is not None and one[0] <= other[1] and other[0] <= one[1]


def _methods(rankings: Sequence[Ranking]) -> dict[str, Sequence[str]]:
    """Return by name the methods of every group."""
    return {group.name: [*group.methods] for ranking in rankings for group in ranking.groups}


def _stores(methods: Sequence[str]) -> str:
    return "yes" if any_stores_samples(methods) else "no"


def _link(name: str, methods: Mapping[str, Sequence[str]]) -> str:
    """Return a name with the link to the page of its first method."""
    return f"[{name}](methods/{methods[name][0]}.md)" if methods[name] else name


def render_ranks(rankings: Sequence[Ranking]) -> str:
    """Return the table of all ranks; methods that are not ranked in every setting come last."""
    means, methods = mean_ranks(rankings), _methods(rankings)
    names = dict.fromkeys(name for ranking in rankings for name in ranking.ranks)
    known = {name: fmean(one.ranks[name] for one in rankings if name in one.ranks) for name in names}
    lines = [*head("method", "mean rank", "stores<br>samples", *(ranking.setting.title for ranking in rankings))]
    for name in sorted(names, key=lambda name: (name not in means, known[name], name)):
        mean = _show_mean(means[name]) if name in means else NOTHING
        cells = [_in_setting(ranking, name) for ranking in rankings]
        lines.append(line(_link(name, methods), mean, _stores(methods[name]), *cells))
    return "\n".join(lines)


def _show_mean(mean: MeanRank) -> str:
    return _show_rank(mean.mean, mean.interval, 1)


def _in_setting(ranking: Ranking, name: str) -> str:
    """Return a method's rank in a setting, bold in the first group."""
    if name not in ranking.ranks:
        return NOTHING
    rank = _show_rank(ranking.ranks[name], ranking.intervals.get(name), 0)
    return f"**{rank}**" if ranking.tiers[name] == 1 else rank


def _show_rank(rank: float, interval: Interval | None, digits: int) -> str:
    """Return a rank with its interval, unless that is the rank alone."""
    texts = [f"{number:.{digits}f}" for number in (rank, *(interval or ()))]
    return texts[0] if len({*texts}) == 1 else f"{texts[0]} ({texts[1]} to {texts[2]})"


def render_remarks(rankings: Sequence[Ranking]) -> str:
    """Return a list of the sweep's remarks about rows."""
    return "\n".join(f"- {remark}" for remark in list_remarks([ranking.setting for ranking in rankings]))


def render_settings(settings: Sequence[BoardSetting]) -> str:
    """Return each setting's table, folded, with its sweep, by which a test compares figures."""
    parts = []
    for setting in settings:
        ranking = setting.ranking
        fewer = [
            f", {group.name} over {len(group.runs)}"
            for group in ranking.setting.groups
            if len(group.runs) != len(ranking.seeds)
        ]
        best = [
            name for name in sorted(ranking.ranks, key=lambda name: ranking.ranks[name]) if ranking.tiers[name] == 1
        ]
        alike = f"No order is significant among the {len(best)} methods"
        first = alike if len(best) == len(ranking.ranks) else f"First group: {join_words(best)}"
        said = f"{first}. Means over {len(ranking.seeds)} seeds{''.join(fewer)}."
        table = f"<!-- results/{setting.sweep} -->\n\n" + "\n".join(_table(ranking))
        parts += [f"### {ranking.setting.title}", said, fold(f"All rows of {ranking.setting.title}", table)]
    return "\n\n".join(parts)


def fold(summary: str, text: str) -> str:
    """Return text that a browser shows when one opens it, on the site and on a forge."""
    return f"<details markdown>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def _table(ranking: Ranking) -> Iterator[str]:
    """Yield the lines of a setting's table, the best first."""
    yield from head(
        "method",
        "rank",
        "group",
        *(quantity.title for quantity in SHOWN[:2]),
        BYTES.heading,
        STEPS.heading,
        "on the front of",
        *(quantity.title for quantity in SHOWN[2:]),
    )
    costs_of = tabulate_budgets(ranking.setting, ranking.protocol)
    fronts = {row[0].text: row[-1].text for row in costs_of.rows} if costs_of else {}
    rows = []
    for group in ranking.setting.groups:
        protocol = group.protocols[0]
        found = SHOWN[0].average_group(group, protocol)
        rows.append((-float(SHOWN[0].show(found.mean)) if found else 0.0, group.name, protocol, group))
    for _, _, protocol, group in sorted(rows, key=lambda row: row[:2]):
        rank, tier = _rank_of(ranking, group, protocol)
        shown = [_show(quantity, group, protocol) for quantity in SHOWN]
        costs = [_show_cost(cost, group) for cost in (BYTES, STEPS)]
        front = fronts.get(group.label) or NOTHING
        yield line(group.label, rank, tier, *shown[:2], *costs, front, *shown[2:])


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


def render_gains(rankings: Sequence[Ranking]) -> str:
    """Return the table of the methods' differences from FedAvg; those that are significant are bold."""
    gains = [_gains(ranking, PLAIN) for ranking in rankings]
    names = dict.fromkeys(name for by_name in gains for name in by_name)
    lines = [*head("method", *(ranking.setting.title for ranking in rankings))]
    lines += [line(name, *(by_name.get(name, NOTHING) for by_name in gains)) for name in names]
    return "\n".join(lines)


def render_pairs(rankings: Sequence[Ranking]) -> str:
    """Return the table of differences of other pairs. A family has all methods against the second of the pair."""
    lines = [*head("method", "compared with", *(ranking.setting.title for ranking in rankings))]
    for name, other in PAIRS:
        gains = [_gains(ranking, other) if other in ranking.ranks else {} for ranking in rankings]
        lines.append(line(name, other, *(by_name.get(name, NOTHING) for by_name in gains)))
    return "\n".join(lines)


def _gains(ranking: Ranking, plain_name: str) -> dict[str, str]:
    """Return by name each ranked method's difference from one of them, with its interval."""
    return {name: _show_gain(one) for name, one in _differences(ranking, plain_name).items()}


def _differences(ranking: Ranking, plain_name: str) -> dict[str, PairedDifference]:
    """Return by name each ranked method's difference from one of them. All of them are a family."""
    values = {group.name: ranking.quantity.by_seed(group, ranking.protocol) for group in ranking.ranked}
    plain = values.pop(plain_name)
    found = adjust_family([compare_pairs(plain, of_method) for of_method in values.values()])
    return {name: one for name, one in zip(values, found, strict=True) if one is not None}


def _show_gain(found: PairedDifference) -> str:
    mean, low, high = (round(found.mean + side * (found.half or 0.0), 1) + 0.0 for side in (0, -1, 1))  # no -0.0
    shown = f"{mean:.1f} ({low:.1f} to {high:.1f})"
    return f"**{shown}**" if found.significant else shown


def render_travels(settings: Sequence[BoardSetting]) -> str:
    """Return the table of settings that have another's choices: how far both agree on the order of methods."""
    by_title = {setting.title: setting.ranking for setting in settings}
    lines = [*head("setting", "choices of", "methods", "rank correlation")]
    for setting in settings:
        if setting.source is not None:
            found = agreement(setting.ranking, by_title[setting.source])
            lines.append(line(setting.title, setting.source, str(found.methods), _show_agreement(found)))
    return "\n".join(lines)


def render_agreement(rankings: Sequence[Ranking]) -> str:
    """Return the table of Spearman's rank correlations of each setting with those before it."""
    titles = [ranking.setting.title for ranking in rankings]
    lines = [*head("setting", *titles[:-1])]
    for place, ranking in enumerate(rankings[1:], start=1):
        found = [agreement(ranking, other) for other in rankings[:place]]
        shown = [f"{_show_agreement(one)}, {one.methods}" for one in found]
        lines.append(line(titles[place], *shown, *[NOTHING] * (len(titles) - 1 - place)))
    return "\n".join(lines)


def _show_agreement(found: Agreement) -> str:
    return f"{found.rho:.2f} ({found.low:.2f} to {found.high:.2f})"


def insert_block(page: str, name: str, text: str) -> str:
    """Return a page with this text between the marks of a name."""
    opens, closes = f"<!-- {name}, written by make docs -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(opens)
    if not found or closes not in rest:
        raise ValueError(f"the page has no marks {opens} and {closes}: add them where the {name} belong")
    return f"{before}{opens}\n\n{text}\n\n{closes}{rest.partition(closes)[2]}"


def render_page() -> str:
    """Return the page with its tables as they are now."""
    board, found = read_board(), tuned()
    others = [setting for setting in board if setting.source is not None]
    page = PAGE.read_text(encoding="utf-8")
    for name, text in (
        ("answer", render_answer(found)),
        ("ranks", f"{render_ranks(found)}\n\n{fold('Remarks on single rows', render_remarks(found))}"),
        ("settings", render_settings([setting for setting in board if setting.source is None])),
        ("other data", f"{render_travels(board)}\n\n{render_settings(others)}"),
        ("differences from FedAvg", fold("All differences from FedAvg", render_gains(found))),
        ("other differences", fold("GPM, C-FLAG, SPECIAL and LwF", render_pairs(found))),
        ("agreement", fold("Correlations of all settings", render_agreement(found))),
    ):
        page = insert_block(page, name, text)
    return page


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
