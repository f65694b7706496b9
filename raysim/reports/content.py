"""What a report consists of, before it is written in any format."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from raysim.reports.grouping import ExperimentSetting
from raysim.reports.naming import join_names
from raysim.reports.statistics import MeanOverSeeds
from raysim.reports.tables import ReportTable, tabulate_settings


@dataclass(frozen=True)
class Plot:
    """A plot that was written: FOLDER/STEM.svg, what it shows in words, its width in inches."""

    folder: Path
    stem: str
    caption: str
    width: float

    @property
    def file(self) -> Path:
        """Where it was written."""
        return self.folder / f"{self.stem}.svg"


@dataclass(frozen=True, eq=False)
class ComparedPair:
    """A published figure and the measured one, of one metric and row, both in %, and what they can be at all.

    Their `std` is half of their bars.
    """

    kind: Literal["gain", "level"]
    metric: str
    label: str
    published: MeanOverSeeds
    measured: MeanOverSeeds
    bounds: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A setting beside a published one: the tables of gains, where the paper claims some, and of levels, with the pairs
    that are in them; what the runs do differently from the paper; where it is from; and a plot of the pairs.
    """

    title: str
    tables: Sequence[ReportTable]
    pairs: Sequence[ComparedPair]
    departures: Sequence[str]
    citation: str
    plots: Sequence[Plot] = ()


@dataclass(frozen=True, eq=False)
class Section:
    """One setting: its comparisons with a paper, its tables (the results, then what add-ons change), its plots.

    `shown_before` has a line for each plot that would be one of an earlier section.
    """

    setting: ExperimentSetting
    tables: Sequence[ReportTable]
    comparisons: Sequence[Comparison]
    plots: Sequence[Plot]
    shown_before: Sequence[str] = ()

    @property
    def all_tables(self) -> list[ReportTable]:
        """The tables of the comparisons, then the others."""
        return [*(table for comparison in self.comparisons for table in comparison.tables), *self.tables]

    @property
    def heading(self) -> str:
        """The number and the title of the setting."""
        return f"Setting {self.setting.number}: {self.setting.title}"


@dataclass(frozen=True, eq=False)
class Report:
    """The sections, one line for everything that is not in them, and the directory that the report is written to."""

    sections: Sequence[Section]
    left_out: Sequence[str]
    out: Path

    @property
    def title(self) -> str:
        """What the sweeps are called that the runs are of, or the runs themselves."""
        return join_names(run.sweep or run.summary.name for one in self.sections for run in one.setting.runs)

    @property
    def extent(self) -> str:
        """How many runs of how many methods there are in how many settings."""
        settings = [section.setting for section in self.sections]
        runs, labels = sum(len(one.runs) for one in settings), {g.label for one in settings for g in one.groups}
        counts = ((runs, "run"), (len(labels), "method"), (len(settings), "setting"))
        return ", ".join(f"{count} {word}{'s' * (count > 1)}" for count, word in counts)

    @property
    def settings(self) -> ReportTable | None:
        """The table of what differs between the settings."""
        return tabulate_settings([section.setting for section in self.sections])
