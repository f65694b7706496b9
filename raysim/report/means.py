"""means.csv: the result tables with all their digits, one row per group and protocol; units are the tables'."""

from __future__ import annotations

from collections.abc import Iterator

from raysim.report.content import Report
from raysim.report.grouping import Group, Setting
from raysim.report.quantities import COSTS, FAIRNESS, LEARNING
from raysim.report.statistics import summary
from raysim.report.tidy import as_csv


def document(report: Report) -> str:
    """Return mean and sample standard deviation over seeds of every quantity as CSV; what there is none of is empty."""
    return as_csv(
        [
            dict(_row(section.setting, group, protocol))
            for section in report.sections
            for protocol in section.setting.protocols
            for group in section.setting.groups
        ]
    )


def _row(setting: Setting, group: Group, protocol: str) -> Iterator[tuple[str, object]]:
    yield from (("setting", setting.number), ("title", setting.title), ("protocol", protocol))
    yield from (("methods", group.label), ("seeds", len(group.runs)))
    for quantity in (*LEARNING, *FAIRNESS, *COSTS):
        found = summary([*group.by_seed(quantity.of(protocol)).values()])
        yield quantity.title, None if found is None else found.mean
        yield f"{quantity.title}, std", None if found is None else found.std
