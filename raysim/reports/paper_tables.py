"""The tables of a paper in LaTeX, each a single tabular without a float: methods by settings, and gains by settings.

They need booktabs. Values are `mean_{± std}`. The best mean is bold and the second best underlined. A dagger marks a
value that is significantly worse than the best. A gain is bold if it is significant.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from raysim.objectives import Metric
from raysim.reports.gains import GainFamily, find_families, measure_family
from raysim.reports.grouping import ExperimentSetting
from raysim.reports.latex import escape_latex
from raysim.reports.quantity_tables import (
    NOTHING,
    WORSE,
    Quantity,
    ReportTable,
    TableCell,
    learning_of,
    tabulate_column,
)
from raysim.reports.ranks import MEAN_RANK, Ranking, tabulate_overview
from raysim.reports.statistics import PairedDifference

Cells = Sequence[str]


def main_table(settings: Sequence[ExperimentSetting]) -> str:
    """Return a tabular of methods by settings, or one for each metric that settings have.

    For a metric of one setting the columns are what was learned, by protocol.
    """
    return "\n".join(map(_main_tabular, _by_metric(settings)))


def gains_table(settings: Sequence[ExperimentSetting]) -> str:
    """Return a tabular of what each added method changes in the average metric, by settings; its rows by family.

    There is one for each metric that settings have.
    """
    return "\n".join(map(_gains_tabular, _by_metric(settings)))


def _by_metric(settings: Sequence[ExperimentSetting]) -> Sequence[Sequence[ExperimentSetting]]:
    found: dict[Metric, list[ExperimentSetting]] = {}
    for setting in settings:
        found.setdefault(setting.metric, []).append(setting)
    return [*found.values()]


def _main_tabular(settings: Sequence[ExperimentSetting]) -> str:
    table = tabulate_overview(settings) or _tabulate_learning(settings[0])
    headings = [*table.headings]
    kept = headings.index(MEAN_RANK) + 1 if MEAN_RANK in headings else len(headings)  # a paper's column is narrow
    head = [_head("method" if heading == "methods" else heading) for heading in _without_numbers(headings[:kept])]
    rows = [[escape_latex(row[0].text), *map(format_value, row[1:kept])] for row in table.rows]
    return _tabular(head, [("", rows)], f"{table.caption}. {table.note}")


def _gains_tabular(settings: Sequence[ExperimentSetting]) -> str:
    rankings = [*map(Ranking, settings)]
    blocks: dict[str, dict[str, dict[int, str]]] = {}
    for index, ranking in enumerate(rankings):
        for family in find_families(ranking.setting.evaluated(ranking.protocol)):
            rows = blocks.setdefault(_title(family), {})
            measured = measure_family(family.pairs, ranking.quantity, ranking.protocol)
            for name, found in zip(family.name_pairs(lambda group: group.name), measured, strict=True):
                rows.setdefault(name, {})[index] = format_gain(ranking.quantity, found)
    head = ["", *(_head(ranking.setting.title) for ranking in rankings)]
    shown = [
        (
            escape_latex(title),
            [
                [escape_latex(name), *(cells.get(i, NOTHING) for i in range(len(rankings)))]
                for name, cells in rows.items()
            ],
        )
        for title, rows in blocks.items()
    ]
    quantity = rankings[0].quantity.title
    about = f"Changes of the {quantity} with their intervals, paired over seeds; bold if significant (5%, Holm)."
    return _tabular(head, shown, about)


def _title(family: GainFamily) -> str:
    return f"{family.added}, added to" if family.added else f"added to {family.pairs[0][1].name}"


def format_value(cell: TableCell) -> str:
    r"""Return `mean ± std` as `$mean_{\pm std}$`, with its marks; other text is escaped."""
    text = cell.text.removesuffix(WORSE).strip()
    mean, _, std = text.partition(" ± ")
    try:
        float(mean)
    except ValueError:
        return escape_latex(cell.text)
    shown = rf"\mathbf{{{mean}}}" if cell.best else rf"\underline{{{mean}}}" if cell.second else mean
    below = rf"_{{\pm {std}}}" if std else ""
    above = r"^{\dagger}" if cell.text.endswith(WORSE) else ""
    return f"${shown}{below}{above}$"


def format_gain(quantity: Quantity, found: PairedDifference | None) -> str:
    """Return a difference with its interval as `$+1.5$ $[-0.5, 3.5]$`, bold if it is significant."""
    if found is None:
        return NOTHING
    mean = quantity.show(found.mean, sign=True)
    shown = rf"$\mathbf{{{mean}}}$" if found.significant else f"${mean}$"
    if found.half is None:
        return shown
    ends = ", ".join(quantity.show(end) for end in (found.mean - found.half, found.mean + found.half))
    return rf"{shown} {{\scriptsize $[{ends}]$}}"


def _tabulate_learning(setting: ExperimentSetting) -> ReportTable:
    """Return a setting's groups by what was learned, with fewer digits than in the tables of results."""
    columns, headings = [], []
    for protocol in setting.main_protocols:
        for quantity in learning_of(setting.metric)[:2]:  # backward transfer is all but forgetting with a minus
            short = replace(quantity, digits=1) if quantity.unit == "%" else quantity
            columns.append(tabulate_column(setting.groups, short, protocol))
            headings.append(f"{setting.label(protocol)}: {short.title}")
    note = "Bold: the best mean. Underlined: the second best. Daggers: significantly worse than the best (5%, Holm)."
    names = [TableCell(group.label) for group in setting.groups]
    rows = [*zip(names, *columns, strict=True)]
    return ReportTable(f"{setting.title}: mean and standard deviation over seeds", ("methods", *headings), rows, note)


def _without_numbers(headings: Cells) -> Cells:
    """Return headings without the numbers of the settings, if they differ then."""
    bare = [re.sub(r"^\d+: ", "", heading) for heading in headings]
    return bare if len(set(bare)) == len(bare) else headings


def _head(text: str) -> str:
    r"""Return a heading, broken after each colon."""
    lines = [escape_latex(part) for part in text.split(": ")]
    if len(lines) == 1:
        return lines[0]
    broken = r" \\ ".join(lines)
    return rf"\begin{{tabular}}[b]{{@{{}}r@{{}}}}{broken}\end{{tabular}}"


def _tabular(head: Cells, blocks: Sequence[tuple[str, Sequence[Cells]]], about: str) -> str:
    """Return a booktabs tabular with a block of rows for each title; `about` is its first comment."""
    lines = [f"% {escape_latex(about)}", "% Needs \\usepackage{booktabs}."]
    lines += [rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", f"{' & '.join(head)} \\\\"]
    for title, rows in blocks:
        lines.append(r"\midrule")
        if title:
            lines.append(rf"\multicolumn{{{len(head)}}}{{l}}{{\emph{{{title}}}}} \\")
        lines += [f"{' & '.join(row)} \\\\" for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])
