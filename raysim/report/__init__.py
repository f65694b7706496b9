"""`raysim report`: tables and plots over every finished run below some directories."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from raysim.report import latex, markdown, means, page, tidy
from raysim.report.against import compare, misfit, published
from raysim.report.content import Report, Section
from raysim.report.grouping import settings_of
from raysim.report.plots import draw
from raysim.report.reading import find
from raysim.report.tables import gains, results
from raysim.system.errors import ConfigError, single_line

FORMATS: dict[str, Callable[[Report], str]] = {
    "report.md": markdown.document,
    "report.tex": latex.document,
    "report.csv": tidy.document,
    "means.csv": means.document,
    "report.html": page.document,
}


def report(directories: Sequence[str | Path], out: str | Path | None = None, against: str | None = None) -> Report:
    """Write a report and return what it says.

    Args:
        directories: where finished runs are looked for, at any depth.
        out: where report.md, .tex, .csv, .html, means.csv and plots/ go; by default the first directory.
        against: the name of a paper whose published figures stand beside the measured ones.

    Raises:
        ConfigError: no finished run was found, the paper is not known, or `out` cannot be written to.
    """
    paper = None if against is None else published(against)
    found = find([Path(directory) for directory in directories])
    settings = settings_of(found.runs, found.left_out)
    target = Path(directories[0] if out is None else out)
    with _writing(target):
        (target / "plots").mkdir(parents=True, exist_ok=True)
    sections = []
    for setting in settings:
        plots, missing = draw(setting, target / "plots")
        found.left_out += missing
        shown = [results(setting, protocol) for protocol in setting.protocols]
        added = [table for protocol in setting.protocols if (table := gains(setting, protocol))]
        compared = compare(paper, setting) if paper else []
        if paper and not compared:
            found.left_out.append(misfit(paper, setting))
        sections.append(Section(setting, shown, added, compared, plots))
    made = Report(sections, [single_line(line) for line in found.left_out], target)
    with _writing(target):
        for name, document in FORMATS.items():
            (target / name).write_text(document(made), encoding="utf-8")
    return made


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or target
        raise ConfigError(
            f"--out {target}: {where}: {error.strerror}; allowed: a directory that can be written to"
        ) from None
