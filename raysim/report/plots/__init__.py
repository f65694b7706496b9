"""The plots of a report, one kind to a file; here it is decided which ones a setting gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from raysim.report.grouping import Setting
from raysim.report.plots.course import plots_of_the_course
from raysim.report.plots.drawing import Drawn, save, styled
from raysim.report.plots.holdings import plots_of_holdings
from raysim.report.plots.tasks import plots_of_tasks
from raysim.report.plots.tradeoff import plots_of_tradeoffs
from raysim.system.errors import ConfigError


@dataclass(frozen=True)
class Plot:
    """A plot that was written: FOLDER/STEM.png and FOLDER/STEM.svg, what it shows in words, its width in inches."""

    folder: Path
    stem: str
    caption: str
    width: float


KINDS: dict[str, Callable[[Setting], Iterator[Drawn]]] = {
    "plots by task": plots_of_tasks,
    "plots over rounds": plots_of_the_course,
    "plots of a swept knob": plots_of_tradeoffs,
    "who holds what": plots_of_holdings,
}


def draw(setting: Setting, folder: Path) -> tuple[list[Plot], list[str]]:
    """Draw a setting's plots into a folder that exists; return them, and a line for each kind that cannot be drawn."""
    plots, left_out = [], []
    for kind, drawings in KINDS.items():
        try:
            plots += list(_saved(drawings(setting), folder))
        except (ConfigError, OSError) as error:
            left_out.append(f"setting {setting.number}: {kind}: {error}")
    return plots, left_out


def _saved(drawings: Iterator[Drawn], folder: Path) -> Iterator[Plot]:
    with styled():
        for drawn in drawings:
            save(drawn, folder)
            yield Plot(folder, drawn.stem, drawn.caption, drawn.figure.get_figwidth())
