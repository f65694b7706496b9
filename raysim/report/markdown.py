"""report.md: the tables, the plots and the commands, for people who read Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from raysim.report.content import Report, Section
from raysim.report.tables import Cell, Table


def document(report: Report) -> str:
    """Return the report as Markdown; plots are linked relative to the report's directory."""
    return "\n".join(_lines(report)) + "\n"


def escape(text: str) -> str:
    """Return text in which nothing means anything to Markdown, for use in a line or in a table's cell."""
    return re.sub(r"([\\`*_{}\[\]<>#|~$&])", r"\\\1", text)


def _lines(report: Report) -> Iterator[str]:
    yield "# Report"
    for section in report.sections:
        yield from _section(section)
    if report.left_out:
        yield from ("", "## Left out", "")
        yield from (f"- {escape(line)}" for line in report.left_out)


def _section(section: Section) -> Iterator[str]:
    yield from ("", f"## {escape(section.heading)}")
    for table in (*section.results, *section.gains):
        yield from _table(table)
    for comparison in section.comparisons:
        yield from _table(comparison.table)
        yield from ("", escape(comparison.citation))
        yield from ("", *(f"- departure: {escape(line)}" for line in comparison.departures))
    for plot in section.plots:
        path = f"{plot.folder.name}/{plot.stem}.png"
        yield from ("", f"![{escape(plot.caption)}]({path})", "", escape(plot.caption))
    yield from (
        "",
        "### Commands",
        "",
        "Each of these runs a seed again, to the same bits on the same kind of CPU.",
        "",
    )
    yield from (f"    {run.command}" for run in section.setting.runs)


def _table(table: Table) -> Iterator[str]:
    yield from ("", f"**{escape(table.caption)}**", "")
    yield _row([escape(heading) for heading in table.headings])
    yield _row(["---" if index < table.texts else "---:" for index in range(len(table.headings))])
    yield from (_row([_cell(cell) for cell in row]) for row in table.rows)
    if table.note:
        yield from ("", escape(table.note))


def _cell(cell: Cell) -> str:
    return f"**{escape(cell.text)}**" if cell.best else escape(cell.text)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
