"""The output of `raysim report`: one table, what was left out, and the place of the files."""

from collections.abc import Sequence
from dataclasses import replace

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raysim.reports.content import Report, Section
from raysim.reports.grouping import ExperimentSetting
from raysim.reports.naming import show_bare
from raysim.reports.quantity_tables import ReportTable, TableCell, measure_columns, split_columns
from raysim.reports.ranks import Ranking
from raysim.system.console import print_line
from raysim.system.errors import single_line

APART = 2  # letters between two columns
MOST_ROWS = 20
MOST_KEYS = 2  # that tell settings of one title apart
MOST_LINES = 5  # of what was left out, and of sentences
PAGE = "report.html"


def show_report(report: Report, console: Console) -> None:
    """Print a report. The best of each column is bold and the second underlined, if the console can show it.

    Of one setting, the table has its methods. Of several, it has a row for each, with the best method.
    """
    if len(report.sections) == 1:
        _show_setting(report.sections[0], console)
    else:
        print_line(console, report.extent)
        _show_table(summarize_settings(report.sections), console)
        _show_lines(report.lead.sentences if report.lead else [], "sentences", console)
        for section in report.sections:
            asked = [*(section.lead.asked if section.lead else []), *_say_claims(section)]
            _show_lines([f"{section.setting.title}: {line}" for line in asked], "sentences", console)
    _show_lines([f"left out: {line}" for line in report.left_out], "left out", console)
    files = f"report: {report.out / PAGE} (and .md, .tex, .csv, means.csv, plots/, figures/, tables/)"
    print_line(console, files)


def summarize_settings(sections: Sequence[Section]) -> ReportTable:
    """Return a table with a row for each setting: how many methods were run, the best one, and its result."""
    rankings = [Ranking(section.setting) for section in sections]
    metrics = {ranking.quantity.title for ranking in rankings}
    names = _name_settings([section.setting for section in sections])
    rows = [
        [TableCell(text) for text in (name, *_sum_up(ranking, len(metrics) > 1))]
        for name, ranking in zip(names, rankings, strict=True)
    ]
    result = metrics.pop() if len(metrics) == 1 else "result"
    return ReportTable("The best method of each setting", ("setting", "best method", "methods", result), rows, texts=2)


def _name_settings(settings: Sequence[ExperimentSetting]) -> list[str]:
    """Return a name for each setting. Settings of one title have the keys in which they differ, the first of many."""
    names = []
    for setting in settings:
        alike = [other.differing for other in settings if other.title == setting.title]
        own = [
            f"{key.rpartition('.')[2]}={show_bare(value)}"
            for key, value in setting.differing.items()
            if any(other.get(key) != value for other in alike)
        ]
        more = [f"{len(own) - MOST_KEYS} more"] * (len(own) > MOST_KEYS)
        names.append(f"{setting.number}: {setting.title}" + f" ({', '.join([*own[:MOST_KEYS], *more])})" * bool(own))
    return names


def _sum_up(ranking: Ranking, named: bool) -> tuple[str, str, str]:
    """Return the further cells of a setting; its result has the metric's name if it is `named`."""
    quantity = ranking.quantity
    groups = ranking.best_first
    found = quantity.average_group(groups[0], ranking.protocol) if groups else None
    alike = sum(ranking.ranks.get(group.name) == 1 for group in groups) - 1
    also = f" and {alike} more" * (alike > 0)
    result = quantity.show_mean(found) + f" ({quantity.title})" * named
    best = groups[0].name + also if groups else "-"
    return best, str(len(ranking.groups)), result


def _show_setting(section: Section, console: Console) -> None:
    print_line(console, section.heading)
    _show_table(section.tables[0], console)
    asked = section.lead.asked if section.lead else []
    said = _say_claims(section)
    said += asked or [line for table in section.tables for line in table.sentences]
    departures = [f"departure: {line}" for one in section.comparisons for line in one.departures]
    _show_lines(said, "sentences", console)
    _show_lines(departures, "departures", console)


def _say_claims(section: Section) -> list[str]:
    return [table.verdict for one in section.comparisons for table in one.tables if table.verdict]


def _show_lines(lines: Sequence[str], what: str, console: Console) -> None:
    """Print the first lines, and how many more there are on the page."""
    for line in lines[:MOST_LINES]:
        print_line(console, line)
    if len(lines) > MOST_LINES:
        print_line(console, f"{what}: {len(lines) - MOST_LINES} more in {PAGE}")


def _show_table(table: ReportTable, console: Console) -> None:
    """Print the first rows of a table, and as many of its columns as fit side by side."""
    print_line(console, table.caption)
    shown, *others = split_columns(replace(table, rows=table.rows[:MOST_ROWS]), console.width - 1, APART)
    drawn = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    for index, (heading, width) in enumerate(zip(shown.headings, measure_columns(shown), strict=True)):
        words = index < shown.texts
        look = {"justify": "left"} if words else {"justify": "right", "width": min(width, console.width // 2)}
        drawn.add_column(Text(single_line(heading)), overflow="fold", **look)
    for row in shown.rows:
        marks = ["bold" if cell.best else "underline" * cell.second for cell in row]
        drawn.add_row(*(Text(single_line(cell.text), mark) for cell, mark in zip(row, marks, strict=True)))
    console.print(drawn)
    rows, columns = len(table.rows) - len(shown.rows), sum(len(part.headings) - part.texts for part in others)
    more = [f"{count} more {what}{'s' * (count > 1)}" for count, what in ((rows, "row"), (columns, "column")) if count]
    if more:
        print_line(console, f"and {' and '.join(more)} in {PAGE}")
    if table.note:
        print_line(console, table.note)
