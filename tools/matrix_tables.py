"""Tables of whole matrices: a metric on each task after each task, as means over seeds. `make docs` writes them.

A page asks for those of a packed sweep with the marks `<!-- matrix of NAME, written by make docs -->` and
`<!-- end of matrix -->`. Each row of the table is a row of the sweep after one task, and a column is a task.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from markdown_rows import head, line
from marked_text import put_between

from raysim.reports.packed import SUFFIX, PackedFile, read_packed
from raysim.reports.quantity_tables import NOTHING
from raysim.sweeps.cells import SPLIT_KEY

ROOT = Path(__file__).parents[1]
OPENS, CLOSES = re.compile(r"<!-- matrix of (?P<sweep>\w+), written by make docs -->"), "<!-- end of matrix -->"

Matrix = Sequence[Sequence[float | None]]


def render_matrices(packed: PackedFile) -> str:
    """Return the table for a sweep of one setting. Its runs have one protocol."""
    found: dict[str, list[Matrix]] = defaultdict(list)
    scale = 1.0
    for run in packed.runs:
        names = packed.sweep.runs[run.path] if packed.sweep else {"methods": run.path}
        if run.summary.status == "done" and SPLIT_KEY not in names:
            block = next(iter(run.summary.evaluation.values()))
            scale = 1.0 if "metric" in block else 100.0  # accuracies are fractions
            found[names["methods"]].append(block["accuracy"])
    tasks = len(next(iter(found.values()))[0])
    rows = (_row(name, task, matrices, scale) for name, matrices in found.items() for task in range(tasks))
    return "\n".join([*head("", "after task", *(f"on task {task + 1}" for task in range(tasks))), *rows])


def _row(name: str, task: int, matrices: Sequence[Matrix], scale: float) -> str:
    """Return a row of the table; its first one has the method's name."""
    by_task = zip(*(matrix[task] for matrix in matrices), strict=True)
    return line(name if task == 0 else "", str(task + 1), *(_show(values, scale) for values in by_task))


def _show(values: Sequence[float | None], scale: float) -> str:
    """Return the mean over the seeds, unless a seed has no value."""
    known = [one for one in values if one is not None]
    return NOTHING if len(known) < len(values) else f"{scale * fmean(known):.1f}"


def pages() -> Iterator[Path]:
    """Yield the pages that ask for such a table."""
    yield from (page for page in sorted((ROOT / "docs").rglob("*.md")) if OPENS.search(page.read_text("utf-8")))


def insert_matrices(page: str) -> str:
    """Return the page with its tables as they are now."""
    for mark in OPENS.finditer(page):
        packed = read_packed(ROOT / "results" / f"{mark['sweep']}{SUFFIX}")
        page = put_between(page, mark[0], CLOSES, render_matrices(packed))
    return page


if __name__ == "__main__":
    for path in pages():
        path.write_text(insert_matrices(path.read_text("utf-8")), encoding="utf-8")
