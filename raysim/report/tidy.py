"""report.csv: one row per run, for whoever goes on with the numbers; units are summary.json's (fractions, bytes, s)."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence

from raysim.report.content import Report
from raysim.report.grouping import Group, Setting
from raysim.report.reading import Evaluation, OverClients, Run

METRICS = [name for name in Evaluation.model_fields if name != "accuracy"]
OF_THE_RUN = ("rounds", "updates", "seconds", "seconds_per_round", "bytes_up", "bytes_down", "peak_memory_bytes")


def document(report: Report) -> str:
    """Return the runs as CSV. Every number reads back as the one in summary.json; what a run does not have is empty."""
    rows = [
        dict(_row(section.setting, group, run))
        for section in report.sections
        for group in section.setting.groups
        for run in group.runs
    ]
    return as_csv(rows)


def as_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV, with a column for every key that one of them has; None and what is absent are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(setting: Setting, group: Group, run: Run) -> Iterator[tuple[str, object]]:
    yield from (("directory", str(run.directory)), ("setting", setting.number), ("label", group.label))
    yield from (("name", run.summary.name), ("seed", run.summary.seed), ("methods", json.dumps(run.methods)))
    for key, value in setting.differing.items():
        yield key, value if isinstance(value, str | int | float | None) else json.dumps(value)
    for protocol, values in run.evaluation.items():
        yield from ((f"{protocol}.{metric}", getattr(values, metric)) for metric in METRICS)
    for protocol, over in run.summary.per_client.items():
        yield from ((f"{protocol}.clients.{key}", getattr(over, key)) for key in OverClients.model_fields)
    yield from ((key, getattr(run.summary, key)) for key in OF_THE_RUN)
    yield "model_sha256", run.summary.model_sha256
