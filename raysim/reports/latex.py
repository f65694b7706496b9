"""LaTeX of a report: escaping, and tables split into parts that fit a column of a page."""

import re
from collections.abc import Iterator
from dataclasses import replace

from raysim.reports.tables import ReportTable
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
UNBROKEN = 13  # the longest heading, or cell of words, that stands in one line


def escape_latex(text: str) -> str:
    """Escape text for LaTeX."""
    return MINUS.sub("$-$", "".join(LATEX.get(letter, letter) for letter in single_line(text)))


def fold(text: str, side: str = "r") -> str:
    r"""Return a text for a LaTeX cell. A long one has two lines of similar length; `side` is l or r."""
    first, second = _halves(text)
    if not second:
        return escape_latex(first)
    room = r"\rule{0pt}{6ex}"  # so that the rows of two lines are apart
    return rf"{room}\shortstack[{side}]{{{escape_latex(first)}\\{escape_latex(second)}}}"


def split_columns(table: ReportTable) -> Iterator[ReportTable]:
    """Yield parts of a table, each with the columns of words and as many columns of numbers as fit, at least one."""
    folded = [[max(map(len, _halves(text))) for text in table.headings]]
    cells = [[(cell.text, index < table.texts) for index, cell in enumerate(row)] for row in table.rows]
    folded += [[max(map(len, _halves(text))) if words else len(text) for text, words in row] for row in cells]
    widths = [max(column) for column in zip(*folded, strict=True)]
    room = IN_A_COLUMN - sum(widths[: table.texts])
    parts: list[list[int]] = [[]]
    for index in range(table.texts, len(widths)):
        if parts[-1] and sum(widths[other] for other in (*parts[-1], index)) > room:
            parts.append([])
        parts[-1].append(index)
    for part in parts:
        chosen = [*range(table.texts), *part]
        rows = [[row[index] for index in chosen] for row in table.rows]
        yield replace(table, headings=[table.headings[index] for index in chosen], rows=rows)


def _halves(text: str) -> tuple[str, str]:
    """Return the halves of a long text, split at the space nearest to its middle; else the text and an empty one."""
    text = single_line(text)
    breaks = [place for place, letter in enumerate(text) if letter == " "]
    if len(text) <= UNBROKEN or not breaks:
        return text, ""
    middle = min(breaks, key=lambda place: abs(2 * place - len(text)))
    return text[:middle], text[middle + 1 :]
