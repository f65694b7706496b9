"""Write a report: sections with their tables and plots, then every format. Also return its figures for notebooks."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from raysim.records.result import Result
from raysim.reports.against import compare_with_paper, explain_misfit
from raysim.reports.content import FIGURES, SETTINGS, Plot, Report, Section
from raysim.reports.costs import tabulate_budgets
from raysim.reports.drawn import show_images
from raysim.reports.first_screen import lead_setting
from raysim.reports.forgetting_table import tabulate_forgetting
from raysim.reports.formats import FORMATS, fill_setting_pages
from raysim.reports.gains import tabulate_gains
from raysim.reports.grouping import ExperimentSetting, group_runs
from raysim.reports.packed import packed_directory
from raysim.reports.plots.accuracy import draw_over_tasks
from raysim.reports.plots.accuracy_courses import draw_over_rounds
from raysim.reports.plots.clients import draw_clients_accuracies, draw_staleness
from raysim.reports.plots.compared import draw_compared
from raysim.reports.plots.data import draw_data_distribution
from raysim.reports.plots.memory import draw_memories
from raysim.reports.plots.paper import save_for_paper
from raysim.reports.plots.pareto import draw_pareto
from raysim.reports.plots.ranks import draw_overall_ranks, draw_ranks
from raysim.reports.plots.scene import Scene, set_scenes
from raysim.reports.plots.style import STYLE, Drawing, save_drawing
from raysim.reports.plots.times import draw_clients_in_time
from raysim.reports.plots.tradeoffs import draw_tradeoffs
from raysim.reports.published import PublishedPaper, load_paper
from raysim.reports.quantity_tables import tabulate_results
from raysim.reports.ranks import list_remarks
from raysim.reports.reading import FinishedRun, find_runs
from raysim.reports.runs_table import tabulate_runs
from raysim.reports.stream.of_settings import draw_streams
from raysim.reports.what_was_run import tabulate_facts, tabulate_hyperparameters
from raysim.sweeps.cells import SPLIT_KEY
from raysim.system.errors import ConfigError, single_line
from raysim.system.progress import Tell, tell_nothing

Runs = str | Path | Result
"""A directory with finished runs at any depth below it, or a run's result."""

PLOTS: dict[str, Callable[[Scene], Iterator[Drawing]]] = {
    "plots by task": draw_over_tasks,
    "ranks": draw_ranks,
    "Pareto fronts": draw_pareto,
    "plots over rounds": draw_over_rounds,
    "plots of a swept knob": draw_tradeoffs,
    "clients' accuracies": draw_clients_accuracies,
    "staleness": draw_staleness,
    "clients in time": draw_clients_in_time,
    "memories": draw_memories,
    "who holds what": draw_data_distribution,
}


PAGE_MARK = '<meta name="generator" content="raysim report">'
OF_A_REPORT = re.compile(r"\d+-|ranks\b")  # how a report's figures are called


def write_report(
    directories: Sequence[str | Path] | str | Path,
    out: str | Path | None = None,
    against: str | None = None,
    *,
    compare: Sequence[tuple[str, str]] = (),
    tell: Tell = tell_nothing,
) -> Report:
    """Write a report and return its content.

    >>> result = raysim.run("quickstart", methods="er", local=True)
    >>> raysim.report(result.directory, out="report")
    <report of quickstart: 1 run, 1 method, 1 setting; report/report.html>

    Args:
        directories: one or several directories with finished runs at any depth.
        out: where report.md, .tex, .csv, .html, means.csv and plots/ go; by default the first directory. The directory
            of a packed file NAME.jsonl.gz is NAME.
        against: the name of a paper, to compare its published figures with the measured ones.
        compare: pairs of rows to compare, by their names in the tables: the first, and what it is compared with.
        tell: receives every step, such as `reading runs: 12`, and the share of the report that is done.

    Raises:
        ConfigError: no finished run was found, the paper is not known, no setting has both rows of a pair, or `out`
            cannot be written to.
    """
    directories = [directories] if isinstance(directories, str | Path) else directories
    paper = None if against is None else load_paper(against)
    left_out: list[str] = []
    unfinished: list[FinishedRun] = []
    runs = find_runs([Path(directory) for directory in directories], left_out, tell, unfinished)
    settings = group_runs(runs, left_out, unfinished)
    rows = [{name for group in one.groups for name in (group.label, group.name)} for one in settings]
    compare = [(row, other) for row, other in compare]  # the command line gives lists
    for pair in compare:
        if len(set(pair)) != 2:
            raise ConfigError(f"--compare: found {' and '.join(map(repr, pair))}, allowed: two different rows")
        if not any(names.issuperset(pair) for names in rows):
            known = ", ".join(map(repr, dict.fromkeys(group.name for one in settings for group in one.groups)))
            raise ConfigError(
                f"--compare: found no setting with the rows {' and '.join(map(repr, pair))}, allowed: {known}"
            )
    target = packed_directory(Path(directories[0])) if out is None else Path(out)

    def tell_of(setting: ExperimentSetting, text: str, share: float = 0.0) -> None:
        tell(f"setting {setting.number} of {len(settings)}: {text}", (setting.number - 1 + share) / len(settings))

    try:
        for folder in ("plots", FIGURES, "tables"):
            (target / folder).mkdir(parents=True, exist_ok=True)
        _delete_earlier(target / "plots", (".svg", ".png"))
        _delete_earlier(target / FIGURES, (".svg", ".pdf"))  # a run's callbacks write PNGs there
        scenes = set_scenes(settings)
        with rc_context(STYLE):
            overall = [_save(drawing, target / "plots") for drawing in draw_overall_ranks(scenes)]
        sections = [
            _make_section(scene, target / "plots", paper, compare, left_out, stream, partial(tell_of, scene.setting))
            for scene, stream in zip(scenes, draw_streams(settings, target / "plots", left_out), strict=True)
        ]
        lines = [single_line(line) for line in left_out]
        of_trials = SPLIT_KEY in settings[0].runs[0].names  # a sweep's other trials are no runs of the report
        lost = sum((SPLIT_KEY in run.names) is of_trials for run in unfinished)
        report = Report([*_show_once(sections)], lines, target, plots=overall, unfinished=lost)
        for name, convert in FORMATS.items():
            tell(f"writing {name}", 1.0)
            (target / name).write_text(convert(report), encoding="utf-8", errors="backslashreplace")
        write_setting_pages(report, tell)
    except OSError as error:
        found = f"{error.filename or target}: {error.strerror}"
        raise ConfigError(f"--out {target}: {found}; allowed: a directory that can be written to") from None
    return report


def _make_section(
    scene: Scene,
    folder: Path,
    paper: PublishedPaper | None,
    compare: Sequence[tuple[str, str]],
    left_out: list[str],
    stream: tuple[Plot | None, str],
    tell: Tell,
) -> Section:
    setting = scene.setting
    first, *others = [tabulate_results(setting, protocol) for protocol in setting.protocols]
    remarks = [first.note, *list_remarks([setting])]
    results = [replace(first, note=" ".join(filter(None, remarks))), *others]
    budgets = [table for protocol in setting.main_protocols if (table := tabulate_budgets(setting, protocol))]
    gains = [table for protocol in setting.protocols for table in tabulate_gains(setting, protocol, compare)]
    comparisons = compare_with_paper(paper, setting, compare) if paper else []
    if paper and not comparisons:
        left_out.append(explain_misfit(paper, setting))
    with rc_context(STYLE):
        comparisons = [
            replace(one, plots=[_save(draw_compared(scene, one, number), folder)]) if one.pairs else one
            for number, one in enumerate(comparisons, 1)
        ]
    plots, missing = draw_plots(scene, folder, tell)
    left_out += missing
    images, more = show_images(setting, folder, left_out)
    picture, same = stream
    notes = [*filter(None, (same, more))]
    about = (lead_setting(setting, compare), tabulate_runs(setting), tabulate_hyperparameters(setting))
    forgetting = tabulate_forgetting(setting)
    tables = [*results, *gains, *budgets, *([] if forgetting is None else [forgetting])]
    return Section(setting, tabulate_facts(setting), tables, comparisons, plots, notes, picture, images, *about)


def write_setting_pages(report: Report, tell: Tell) -> None:
    """Write a page for each of several settings, and delete those of an earlier report."""
    folder = report.out / SETTINGS
    for file in folder.glob("*.html"):
        if PAGE_MARK in file.read_text(encoding="utf-8", errors="replace"):
            file.unlink()
    for path, text in fill_setting_pages(report):
        tell(f"writing {path}")
        folder.mkdir(exist_ok=True)
        (report.out / path).write_text(text, encoding="utf-8", errors="backslashreplace")


def _delete_earlier(folder: Path, suffixes: Sequence[str]) -> None:
    """Delete the figures of an earlier report: a paper must not include one of other runs."""
    for file in folder.iterdir():
        if file.suffix in suffixes and OF_A_REPORT.match(file.name):
            file.unlink()


def draw_plots(scene: Scene, folder: Path, tell: Tell = tell_nothing) -> tuple[list[Plot], list[str]]:
    """Draw a setting's plots into a folder that exists; return them, and a line for each kind that cannot be drawn."""
    left_out: list[str] = []
    plots: list[Plot] = []
    with rc_context(STYLE):
        plots += [_save(drawing, folder) for drawing in draw_setting(scene, left_out, tell)]
    return plots, left_out


def _save(drawing: Drawing, folder: Path) -> Plot:
    """Write a drawing for the page into a folder, and for a paper into its sister `figures`."""
    plot = save_drawing(drawing, folder)
    save_for_paper(drawing.figure, plot.for_paper.parent, drawing.stem, drawing.least)
    return plot


def _show_once(sections: Sequence[Section]) -> Iterator[Section]:
    """Yield the sections. A plot equal to one of an earlier section is deleted and replaced by a line."""
    first: dict[bytes, Plot] = {}
    for section in sections:
        plots: list[Plot] = []
        before: list[str] = []
        for plot in section.plots:
            earlier = first.setdefault(plot.file.read_bytes(), plot)
            if earlier is plot:
                plots.append(plot)
            else:
                for file in (plot.file, plot.for_paper, plot.for_paper.with_suffix(".svg")):
                    file.unlink(missing_ok=True)  # large figures have no version for a paper
                before.append(f"{plot.caption} It is the same as setting {earlier.stem.partition('-')[0]}'s.")
        yield replace(section, plots=plots, notes=[*section.notes, *before])


def draw_setting(scene: Scene, left_out: list[str], tell: Tell = tell_nothing) -> Iterator[Drawing]:
    """Yield a setting's drawings; `left_out` gets a line for each kind that cannot be drawn, if no other says why."""
    said: set[str] = set()
    for number, (kind, draw) in enumerate(PLOTS.items()):
        tell(f"plots {number + 1} of {len(PLOTS)}: {kind}", number / len(PLOTS))
        try:
            yield from draw(scene)
        except (ConfigError, OSError) as error:
            if str(error) not in said:
                left_out.append(f"setting {scene.setting.number}: {kind}: {error}")
                said.add(str(error))


def figures(runs: Runs | Sequence[Runs]) -> dict[str, Figure]:
    """Return the figures that a report of these runs has, by their names, such as 1-domain_il-accuracy-matrix.

    What cannot be drawn is left out, as it is in a report.

    >>> result = raysim.run("quickstart", methods="er", local=True)
    >>> "1-domain_il-accuracy-matrix" in raysim.figures(result)
    True

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
        of_settings = [drawing for scene in scenes for drawing in draw_setting(scene, left_out)]
        return {drawing.stem: drawing.figure for drawing in (*draw_overall_ranks(scenes), *of_settings)}
