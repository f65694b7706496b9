"""The figures of a report as matplotlib's, for notebooks and for pages of one's own."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from raysim.records.result import Result
from raysim.reports.grouping import group_runs
from raysim.reports.plots.drawing import draw_setting
from raysim.reports.plots.scene import set_scenes
from raysim.reports.plots.style import STYLE
from raysim.reports.reading import find_runs

Runs = str | Path | Result
"""A directory with finished runs at any depth below it, or a run's result."""


def figures(runs: Runs | Sequence[Runs]) -> dict[str, Figure]:
    """Return the figures that a report of these runs has, by their names, such as 1-domain_il-accuracy-matrix.

    What cannot be drawn is left out, as it is in a report.

    Args:
        runs: where finished runs are, or their results.

    Raises:
        ConfigError: no finished run was found.
    """
    several = [runs] if isinstance(runs, Runs) else runs
    directories = [one.directory if isinstance(one, Result) else Path(one) for one in several]
    left_out: list[str] = []
    scenes = set_scenes(group_runs(find_runs(directories, left_out), left_out))
    with rc_context(STYLE):
        return {drawing.stem: drawing.figure for scene in scenes for drawing in draw_setting(scene, left_out)}
