"""The requests to forget of a setting: what each did, before and after it, as means over seeds."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from raysim.engine.events import Forgotten
from raysim.reports.grouping import ExperimentSetting
from raysim.reports.quantity_tables import NOTHING, ReportTable, TableCell

MOST = 100  # rows


def tabulate_forgetting(setting: ExperimentSetting) -> ReportTable | None:
    """Return a row for each method and request. None if there were no requests."""
    rows: list[list[TableCell]] = []
    said: dict[str, None] = {}
    for group in setting.groups:
        by_request: dict[int, list[Forgotten]] = defaultdict(list)
        for run in group.runs:
            for each in run.summary.forgotten:
                by_request[each["request"]].append(each)
        for found in sorted(by_request.values(), key=lambda each: (each[0]["round"], each[0]["request"])):
            rows.append([*map(TableCell, (group.label, *_describe(found)))])
            said[found[0]["said"]] = None
    if not rows:
        return None
    left = f" {len(rows) - MOST:,} more rows are in summary.json." * (len(rows) > MOST)
    return ReportTable(
        "Forgetting: each request, before and after it",
        (
            "methods",
            "request",
            "samples",
            "accuracy on what is forgotten, %",
            "on the rest, %",
            "attack, AUC",
            "sent up, KiB",
            "sent down, KiB",
            "time, s",
        ),
        rows[:MOST],
        "Accuracies are of training samples so far. The attack tells forgotten samples from test samples by the loss: "
        f"0.5 is chance. Numbers are means over seeds.{left}",
        texts=2,
        sentences=[*said][:MOST],
    )


def _describe(found: Sequence[Forgotten]) -> list[str]:
    """Return the cells of a request, given what it did with each seed."""
    first = found[0]
    return [
        f"round {first['round']}: {first['what']}",
        f"{fmean(each['samples'] for each in found):.0f}",
        _show_pair([each["accuracy_forgotten"] for each in found], 100, 1),
        _show_pair([each["accuracy_rest"] for each in found], 100, 1),
        _show_pair([each["attack"] for each in found], 1, 3),
        f"{fmean(each['bytes_up'] for each in found) / 1024:.1f}",
        f"{fmean(each['bytes_down'] for each in found) / 1024:.1f}",
        f"{fmean(each['seconds'] for each in found):.2f}",
    ]


def _show_pair(pairs: Sequence[Sequence[float | None]], scale: float, digits: int) -> str:
    """Return the means before and after, such as "81.2 to 79.8", or the one number that both are."""
    columns = [[value for value in column if value is not None] for column in zip(*pairs, strict=True)]
    before, after = (f"{scale * fmean(column):.{digits}f}" if column else NOTHING for column in columns)
    return before if before == after else f"{before} to {after}"
