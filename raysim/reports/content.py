"""The content of a report, without a format."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from raysim.reports.costs import STEPS
from raysim.reports.first_screen import Lead, lead_settings
from raysim.reports.grouping import ExperimentSetting
from raysim.reports.naming import join_names, name_files
from raysim.reports.quantity_tables import ReportTable, tabulate_settings
from raysim.reports.ranks import Standings, compare_settings
from raysim.reports.statistics import MeanOverSeeds
from raysim.system.version import VERSION

FIGURES = "figures"
SETTINGS = "settings"


def count_words(count: int, word: str) -> str:
    """Return a number with its word, such as `3 runs`."""
    return f"{count} {word}{'s' * (count > 1)}"


@dataclass(frozen=True)
class Plot:
    """A plot that was written, or a picture that a method recorded, copied into a folder of the report.

    Attributes:
        folder: the folder of its file.
        stem: the name of its file without its ending.
        caption: what it shows, in words; of a picture also the method, and when it was recorded.
        width: its width in inches; 0 for a picture.
        ending: of its file.
    """

    folder: Path
    stem: str
    caption: str
    width: float = 0.0
    ending: str = "svg"

    @property
    def file(self) -> Path:
        """Where it was written."""
        return self.folder / f"{self.stem}.{self.ending}"

    @property
    def for_paper(self) -> Path:
        """Where its version for a paper is written, as PDF and next to it as SVG."""
        return self.folder.parent / FIGURES / f"{self.stem}.pdf"


@dataclass(frozen=True, eq=False)
class ComparedPair:
    """A published figure and the measured one, both in %.

    Attributes:
        kind: whether they are gains or absolute values.
        metric: the name of the metric.
        label: the label of the measured group.
        published: the published figure; its `std` is half the length of its bar.
        measured: the measured figure, drawn in the same way.
        bounds: the least and the largest value that they can have.
    """

    kind: Literal["gain", "level"]
    metric: str
    label: str
    published: MeanOverSeeds
    measured: MeanOverSeeds
    bounds: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A setting compared with a published one.

    Attributes:
        title: the paper and its setting.
        tables: the tables of the gains that the paper claims, then those of absolute values.
        pairs: the figures of the tables that both the paper and the runs have.
        departures: what the runs do differently from the paper, a line for each.
        citation: where the paper was published.
        plots: the plot of the pairs, if there are any.
    """

    title: str
    tables: Sequence[ReportTable]
    pairs: Sequence[ComparedPair]
    departures: Sequence[str]
    citation: str
    plots: Sequence[Plot] = ()


@dataclass(frozen=True, eq=False)
class Section:
    """What a report has about one setting.

    Attributes:
        setting: the setting.
        facts: what was run.
        tables: its results, what added methods change, and costs.
        comparisons: its comparisons with a paper.
        plots: its plots.
        notes: a line for each plot that is the same as one of an earlier section, and for pictures that are not shown.
        stream: the picture of its stream, if it was drawn.
        images: the pictures that its methods recorded.
        lead: what the section begins with: its best methods, and what the tests say about the first of them.
        runs: its runs, with the keys in which their configs differ.
        hyperparameters: the keys in which methods differ, if they have any.
    """

    setting: ExperimentSetting
    facts: ReportTable
    tables: Sequence[ReportTable]
    comparisons: Sequence[Comparison]
    plots: Sequence[Plot]
    notes: Sequence[str] = ()
    stream: Plot | None = None
    images: Sequence[Plot] = ()
    lead: Lead | None = None
    runs: ReportTable | None = None
    hyperparameters: ReportTable | None = None

    @property
    def all_tables(self) -> list[ReportTable]:
        """What was run, the tables of the comparisons, the results, and the hyperparameters."""
        compared = [table for one in self.comparisons for table in one.tables]
        return [self.facts, *compared, *self.tables, *filter(None, [self.hyperparameters])]

    @property
    def claims(self) -> list[str]:
        """A sentence for each table of gains that a paper claims: how many of them are supported."""
        tables = [table for one in self.comparisons for table in one.tables]
        return [f"{table.caption}: {table.verdict}" for table in tables if ": gains in " in table.caption]

    @property
    def first_plot(self) -> Plot | None:
        """The plot next to the result: the matrix of a single method, or the accuracies of several after each task."""
        ending = "accuracy-after-task" if len(self.setting.groups) > 1 else "accuracy-matrix"
        return next((plot for plot in self.plots if plot.stem.endswith(ending)), None)

    @property
    def other_plots(self) -> list[Plot]:
        """Its plots without the first one."""
        return [plot for plot in self.plots if plot is not self.first_plot]

    @property
    def about_results(self) -> str:
        """What its tables have, in a line."""
        methods = count_words(len(self.setting.groups), "method")
        protocols = ", ".join(self.setting.label(protocol) for protocol in self.setting.protocols)
        return f"{methods}; {protocols}; {count_words(len(self.tables), 'table')}"

    @property
    def about_plots(self) -> str:
        """The number of the plots in addition to the first one, and what they are about."""
        more = " more" if self.first_plot and self.lead else ""
        beginning = re.compile(rf"{self.setting.number}-(?:(?:{'|'.join(self.setting.protocols)})-)?")
        kinds = dict.fromkeys(beginning.sub("", plot.stem, count=1).replace("-", " ") for plot in self.other_plots)
        return f"{len(self.other_plots)}{more}: {', '.join(kinds)}" if kinds else ""

    @property
    def filtered(self) -> bool:
        """Whether a table has the costs by which the page filters methods."""
        return any(STEPS.heading in table.headings for table in self.tables)

    @property
    def extent(self) -> str:
        """The numbers of its runs and methods."""
        setting = self.setting
        return f"{count_words(len(setting.runs), 'run')}, {count_words(len(setting.groups), 'method')}"

    @property
    def heading(self) -> str:
        """The number and the title of the setting."""
        return f"Setting {self.setting.number}: {self.setting.title}"


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """A report.

    Attributes:
        sections: a section for each setting.
        left_out: a line for everything that is not in the sections.
        out: the directory that the report is written to.
        day: the day on which it is written.
        plots: its plots over several settings.
        unfinished: the number of runs that failed or were interrupted.
    """

    sections: Sequence[Section]
    left_out: Sequence[str]
    out: Path
    day: date = field(default_factory=lambda: datetime.now(UTC).date())
    plots: Sequence[Plot] = ()
    unfinished: int = 0

    def __repr__(self) -> str:
        return f"<report of {self.title}: {self.extent}; {self.out / 'report.html'}>"

    @property
    def title(self) -> str:
        """The names of the runs' sweeps, or of the runs."""
        return join_names(run.sweep or run.summary.name for one in self.sections for run in one.setting.runs)

    @property
    def extent(self) -> str:
        """The numbers of runs, methods, settings and unfinished runs. A method with other tuned values is the same."""
        settings = [section.setting for section in self.sections]
        names = {group.name for one in settings for group in one.groups}
        runs = sum(len(one.runs) for one in settings)
        counts = ((runs, "run"), (len(names), "method"), (len(settings), "setting"))
        lost = f"; {self.unfinished} more did not finish" * (self.unfinished > 0)
        return ", ".join(count_words(count, word) for count, word in counts) + lost

    @property
    def pages(self) -> list[tuple[Section, str]]:
        """The settings, each with the path of its page from report.html. A report of one setting has no such page."""
        names = name_files(section.setting.title for section in self.sections)
        return [(section, f"{SETTINGS}/{name}.html") for section, name in zip(self.sections, names, strict=True)]

    @property
    def tested(self) -> bool:
        """Whether the best method of a setting is compared with another one."""
        return any(section.lead and section.lead.margins for section in self.sections)

    @property
    def settings(self) -> ReportTable | None:
        """The table of the differences between the settings."""
        return tabulate_settings([section.setting for section in self.sections])

    @cached_property
    def comparable(self) -> Standings | None:
        """The methods by settings, if there are several with the same metric."""
        return compare_settings([section.setting for section in self.sections])

    @property
    def overview(self) -> ReportTable | None:
        """The table of the methods by settings, with both kinds of ranks."""
        return self.comparable.table if self.comparable else None

    @cached_property
    def lead(self) -> Lead | None:
        """What the report begins with: that of its setting, or the best methods over several settings."""
        if len(self.sections) == 1:
            return self.sections[0].lead
        return lead_settings(self.comparable) if self.comparable else None

    @property
    def origin(self) -> str:
        """When the report was written, and by which version."""
        return f"Reported on {self.day.isoformat()} by raysim {VERSION}."
