"""LaTeX of a report: escaping, cells of several lines, and tables split into parts that fit a column of a page."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from raysim.reports.quantity_tables import ReportTable, TableCell, fold_words, split_columns
from raysim.system.errors import single_line

LATEX = {
    **{letter: f"\\{letter}" for letter in "{}$&#_%"},
    **{sign: f"${sign}$" for sign in "<>|"},
    **{sign: f"{{{sign}}}" for sign in "[*"},  # after a line break, a bare one would be an argument
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"±": r"$\pm$", "−": "$-$", "†": r"$\dagger$"},
}
MINUS = re.compile(r"(?<![\w$])-(?=\d)")  # a hyphen is no minus
IN_A_COLUMN = 58  # letters in footnotesize in a column of 3.3 inches
ON_A_PAGE = 50  # lines in footnotesize of a column with a caption


def escape_latex(text: str) -> str:
    """Escape text for LaTeX."""
    return MINUS.sub("$-$", "".join(LATEX.get(letter, letter) for letter in single_line(text)))


def fold(text: str, side: str = "r") -> str:
    """Return a text for a LaTeX cell, a long one in several lines; `side` is l or r."""
    lines = [escape_latex(line) for line in fold_words(text)]
    stack = r"\\".join(lines)
    if len(lines) == 1:
        return stack
    room = rf"\rule{{0pt}}{{{3 * len(lines)}ex}}"  # so that rows of several lines are apart
    return rf"{room}\shortstack[{side}]{{{stack}}}"


def split_table(table: ReportTable) -> Iterator[ReportTable]:
    """Yield parts of a table that fit a column of a page, with at least one row and one column of numbers each."""
    parts: list[list[Sequence[TableCell]]] = [[]]
    height = 0
    for row in table.rows:
        lines = max(len(fold_words(cell.text)) for cell in row)
        if parts[-1] and height + lines > ON_A_PAGE:
            parts.append([])
            height = 0
        parts[-1].append(row)
        height += lines
    for rows in parts:
        yield from split_columns(replace(table, rows=rows), IN_A_COLUMN)
