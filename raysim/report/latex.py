r"""report.tex: the tables, to be \input into a paper. No packages are needed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from raysim.report.content import Report
from raysim.report.tables import Cell, Table

SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "±": r"$\pm$",
    "−": "$-$",
}

MINUS = re.compile(r"(?<![\w$])-(?=\d)")  # a hyphen is no minus


def document(report: Report) -> str:
    """Return the tables of all settings as LaTeX."""
    return "\n".join(_lines(report)) + "\n"


def escape(text: str) -> str:
    """Return text in which nothing means anything to LaTeX."""
    return MINUS.sub("$-$", "".join(SPECIAL.get(letter, letter) for letter in text))


def _lines(report: Report) -> Iterator[str]:
    for section in report.sections:
        yield f"% {section.heading}"
        for table in (*section.results, *section.gains, *(one.table for one in section.comparisons)):
            yield from _table(table, section.heading)


def _table(table: Table, heading: str) -> Iterator[str]:
    note = f" {escape(table.note)}" if table.note else ""
    yield from (
        r"\begin{table}",
        r"\centering\small",
        rf"\caption{{{escape(heading)}. {escape(table.caption)}.{note}}}",
    )
    yield rf"\begin{{tabular}}{{{'l' * table.texts}{'r' * (len(table.headings) - table.texts)}}}"
    yield from (r"\hline", _row([escape(text) for text in table.headings]), r"\hline")
    yield from (_row([_cell(cell) for cell in row]) for row in table.rows)
    yield from (r"\hline", r"\end{tabular}", r"\end{table}", "")


def _cell(cell: Cell) -> str:
    # \boldmath, as \textbf leaves the sign between mean and deviation as it is
    return rf"{{\boldmath\bfseries {escape(cell.text)}}}" if cell.best else escape(cell.text)


def _row(cells: list[str]) -> str:
    return f"{' & '.join(cells)} \\\\"
