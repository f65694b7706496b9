"""The content of a report, without a format."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Literal

from raysim.reports.costs import STEPS
from raysim.reports.grouping import ExperimentSetting
from raysim.reports.naming import join_names
from raysim.reports.quantity_tables import ReportTable, tabulate_settings
from raysim.reports.ranks import tabulate_overview
from raysim.reports.statistics import MeanOverSeeds
from raysim.system.version import VERSION

FIGURES = "figures"


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
        tables: its results, what added methods change, costs, and the keys in which methods differ.
        comparisons: its comparisons with a paper.
        plots: its plots.
        notes: a line for each plot that is the same as one of an earlier section, and for pictures that are not shown.
        stream: the picture of its stream, if it was drawn.
        images: the pictures that its methods recorded.
    """

    setting: ExperimentSetting
    facts: ReportTable
    tables: Sequence[ReportTable]
    comparisons: Sequence[Comparison]
    plots: Sequence[Plot]
    notes: Sequence[str] = ()
    stream: Plot | None = None
    images: Sequence[Plot] = ()

    @property
    def contents(self) -> list[tuple[str, str]]:
        """The parts of the section: their ids on the page, and their titles."""
        parts = [("published", "Published and measured")] * bool(self.comparisons)
        parts += [("results", "Results")]
        parts += [("plots", "Plots")] * bool(self.plots)
        parts += [("drawn", "What methods drew")] * bool(self.images)
        parts += [("commands", "Configs and commands")]
        return [(f"setting-{self.setting.number}-{part}", title) for part, title in parts]

    @property
    def all_tables(self) -> list[ReportTable]:
        """What was run, the tables of the comparisons, and the others."""
        return [self.facts, *(table for one in self.comparisons for table in one.tables), *self.tables]

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
        return ", ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in counts) + lost

    @property
    def settings(self) -> ReportTable | None:
        """The table of the differences between the settings."""
        return tabulate_settings([section.setting for section in self.sections])

    @cached_property
    def overview(self) -> ReportTable | None:
        """The methods by settings, if there are several."""
        return tabulate_overview([section.setting for section in self.sections])

    @property
    def filtered(self) -> bool:
        """Whether a table has the costs by which the page filters methods."""
        return any(STEPS.heading in table.headings for section in self.sections for table in section.tables)

    @property
    def origin(self) -> str:
        """When the report was written, and by which version."""
        return f"Reported on {self.day.isoformat()} by raysim {VERSION}."
