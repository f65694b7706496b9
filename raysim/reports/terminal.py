"""The output of `raysim report`: its progress, then all tables, what was left out, and the place of the files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TextIO

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from raysim.launch.display import print_line
from raysim.reports.content import Report
from raysim.reports.quantity_tables import ReportTable, measure_columns, split_columns
from raysim.system.console import make_console
from raysim.system.errors import single_line

APART = 2  # letters between two columns


@contextmanager
def open_report_display(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line of progress on a terminal, in place of the last one."""
    console = make_console(stream)
    status = console.status("reading runs")
    with status if console.is_terminal else nullcontext():
        yield lambda text: status.update(single_line(text))


def show_report(report: Report, console: Console) -> None:
    """Print a report. The best of each column is bold and the second underlined, if the console can show it."""
    for table in filter(None, (report.settings, report.overview)):
        _show_table(table, console)
    for section in report.sections:
        print_line(console, section.heading)
        for table in section.all_tables:
            _show_table(table, console)
        for line in (line for comparison in section.comparisons for line in comparison.departures):
            print_line(console, f"departure: {line}")
    for line in report.left_out:
        print_line(console, f"left out: {line}")
    print_line(
        console, f"report: {report.out / 'report.html'} (and .md, .tex, .csv, means.csv, plots/, figures/, tables/)"
    )


def _show_table(table: ReportTable, console: Console) -> None:
    print_line(console, table.caption)
    if table.verdict:
        print_line(console, table.verdict)
    for part in split_columns(table, console.width - 1, APART):
        shown = Table(box=SIMPLE, padding=(0, 1, 0, 0))
        for index, (heading, width) in enumerate(zip(part.headings, measure_columns(part), strict=True)):
            words = index < part.texts
            look = {"justify": "left"} if words else {"justify": "right", "width": min(width, console.width // 2)}
            shown.add_column(Text(single_line(heading)), overflow="fold", **look)
        for row in part.rows:
            marks = ["bold" if cell.best else "underline" * cell.second for cell in row]
            shown.add_row(*(Text(single_line(cell.text), mark) for cell, mark in zip(row, marks, strict=True)))
        console.print(shown)
    if table.note:
        print_line(console, table.note)
