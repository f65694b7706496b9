"""means.csv: the result tables with all their digits, one row per group and protocol; units are the tables'."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from raysim.report.content import Report
from raysim.report.grouping import Group, Setting
from raysim.report.quantities import COSTS, FAIRNESS, LEARNING
from raysim.report.statistics import summary


def document(report: Report) -> str:
    """Return mean and sample standard deviation over seeds of every quantity as CSV; what there is none of is empty."""
    rows = [
        dict(_row(section.setting, group, protocol))
        for section in report.sections
        for protocol in section.setting.protocols
        for group in section.setting.groups
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(setting: Setting, group: Group, protocol: str) -> Iterator[tuple[str, object]]:
    yield from (("setting", setting.number), ("title", setting.title), ("protocol", protocol))
    yield from (("methods", group.label), ("seeds", len(group.runs)))
    for quantity in (*LEARNING, *FAIRNESS, *COSTS):
        found = summary([*group.by_seed(quantity.of(protocol)).values()])
        yield quantity.title, None if found is None else found.mean
        yield f"{quantity.title}, std", None if found is None else found.std
