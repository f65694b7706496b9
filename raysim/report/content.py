"""What a report consists of, before it is written in any format."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from raysim.report.grouping import ExperimentSetting
from raysim.report.tables import ReportTable


@dataclass(frozen=True)
class Plot:
    """A plot that was written: FOLDER/STEM.png and FOLDER/STEM.svg, what it shows in words, its width in inches."""

    folder: Path
    stem: str
    caption: str
    width: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """A setting beside a published one: a table, what the runs do differently from the paper, and where it is from."""

    table: ReportTable
    departures: Sequence[str]
    citation: str


@dataclass(frozen=True, eq=False)
class Section:
    """One setting: its tables (the results, then what add-ons change), its comparisons with a paper, its plots."""

    setting: ExperimentSetting
    tables: Sequence[ReportTable]
    comparisons: Sequence[Comparison]
    plots: Sequence[Plot]

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
