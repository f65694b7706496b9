"""The hashes in the documentation's tables are those of the runs in results/.

A table with hashes stands below `<!-- results/NAME -->`, a packed sweep. A row's first cell is a setting of the sweep. A
column's heading is a row of the sweep's methods, and its cells are the first digits of the final model's SHA-256.
"""

import re
from collections.abc import Iterator

import pytest
from pages import GUIDES, ROOT, names

from raysim.reports.packed import SUFFIX, read_packed

TABLE = re.compile(r"<!-- (?P<sweep>results/\w+) -->\n\n(?P<rows>(?:\|[^\n]*\n)+)")
HASH = re.compile(r"`([0-9a-f]{8,64})`")


def tables() -> Iterator[tuple[str, str, str]]:
    for page in GUIDES:
        for found in TABLE.finditer(page.read_text(encoding="utf-8")):
            if HASH.search(found["rows"]):
                yield names(page), found["sweep"], found["rows"]


def models(sweep: str) -> dict[tuple[str, str], str | None]:
    """By setting and row, the hash of the final model."""
    packed = read_packed(ROOT / f"{sweep}{SUFFIX}")
    summaries = {run.path: run.summary for run in packed.runs}
    axes_of = {folder: axes for folder, axes in packed.sweep.runs.items() if folder in summaries}
    return {(axes["setting"], axes["methods"]): summaries[path].model_sha256 for path, axes in axes_of.items()}


@pytest.mark.parametrize(("page", "sweep", "rows"), [*tables()])
def test_hashes_are_those_of_the_runs(page: str, sweep: str, rows: str) -> None:
    known = models(sweep)
    head, _, *body = rows.splitlines()
    _, *headings = (cell.strip() for cell in head.strip("|").split("|"))
    checked = 0
    for row in body:
        setting, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        for heading, cell in zip(headings, cells, strict=True):
            for digits in HASH.findall(cell):
                measured = known[setting, heading]
                assert measured is not None
                assert measured.startswith(digits), f"{page}, {setting}, {heading}: {digits} is not {measured}"
                checked += 1
    assert checked
