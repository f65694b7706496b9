"""A report from its runs to its files: sections with their tables and plots, then every format."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from matplotlib import rc_context

from raysim.config.lookup import only_named_by
from raysim.report.against import PublishedPaper, compare_with_paper, explain_misfit, load_paper
from raysim.report.content import Plot, Report, Section
from raysim.report.formats import FORMATS
from raysim.report.grouping import ExperimentSetting, group_runs
from raysim.report.plots.accuracy import draw_over_rounds, draw_over_tasks, draw_tradeoffs
from raysim.report.plots.data import draw_data_distribution
from raysim.report.plots.style import STYLE, Drawing, save_drawing
from raysim.report.reading import find_runs
from raysim.report.tables import tabulate_gains, tabulate_results
from raysim.system.errors import ConfigError, single_line

PLOTS: dict[str, Callable[[ExperimentSetting], Iterator[Drawing]]] = {
    "plots by task": draw_over_tasks,
    "plots over rounds": draw_over_rounds,
    "plots of a swept knob": draw_tradeoffs,
    "who holds what": draw_data_distribution,
}


def write_report(
    directories: Sequence[str | Path] | str | Path,
    out: str | Path | None = None,
    against: str | None = None,
    *,
    trust: bool = False,
) -> Report:
    """Write a report and return what it says.

    Args:
        directories: where finished runs are looked for, at any depth; one, or several.
        out: where report.md, .tex, .csv, .html, means.csv and plots/ go; by default the first directory.
        against: the name of a paper whose published figures stand beside the measured ones.
        trust: import what the runs' configs name and raysim does not have, to plot who holds what.

    Raises:
        ConfigError: no finished run was found, the paper is not known, or `out` cannot be written to.
    """
    directories = [directories] if isinstance(directories, str | Path) else directories
    paper = None if against is None else load_paper(against)
    left_out: list[str] = []
    settings = group_runs(find_runs([Path(directory) for directory in directories], left_out), left_out)
    target = Path(directories[0] if out is None else out)
    try:
        (target / "plots").mkdir(parents=True, exist_ok=True)
        with only_named_by(trust=trust):
            sections = [_make_section(setting, target / "plots", paper, left_out) for setting in settings]
        report = Report(sections, [single_line(line) for line in left_out], target)
        for name, convert in FORMATS.items():
            (target / name).write_text(convert(report), encoding="utf-8")
    except OSError as error:
        found = f"{error.filename or target}: {error.strerror}"
        raise ConfigError(f"--out {target}: {found}; allowed: a directory that can be written to") from None
    return report


def _make_section(
    setting: ExperimentSetting, folder: Path, paper: PublishedPaper | None, left_out: list[str]
) -> Section:
    plots, missing = draw_plots(setting, folder)
    left_out += missing
    results = [tabulate_results(setting, protocol) for protocol in setting.protocols]
    gains = [table for protocol in setting.protocols if (table := tabulate_gains(setting, protocol))]
    comparisons = compare_with_paper(paper, setting) if paper else []
    if paper and not comparisons:
        left_out.append(explain_misfit(paper, setting))
    return Section(setting, [*results, *gains], comparisons, plots)


def draw_plots(setting: ExperimentSetting, folder: Path) -> tuple[list[Plot], list[str]]:
    """Draw a setting's plots into a folder that exists; return them, and a line for each kind that cannot be drawn."""
    left_out: list[str] = []
    with rc_context(STYLE):
        return [save_drawing(drawing, folder) for drawing in draw_setting(setting, left_out)], left_out


def draw_setting(setting: ExperimentSetting, left_out: list[str]) -> Iterator[Drawing]:
    """Yield a setting's drawings; `left_out` gets a line for each kind that cannot be drawn."""
    for kind, draw in PLOTS.items():
        try:
            yield from draw(setting)
        except (ConfigError, OSError) as error:
            left_out.append(f"setting {setting.number}: {kind}: {error}")
