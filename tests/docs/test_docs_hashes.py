"""The hashes in the documentation's tables are those of the runs in results/.

A table stands below `<!-- hashes results/NAME ... -->`, the packed sweeps. A row's first cell is a setting of a sweep.
A column's heading is a row of the sweep's methods, and its cells are the first digits of the final model's SHA-256.
"""

import re
from collections.abc import Iterator

import pytest
from pages import GUIDES, ROOT, names

from raysim.reports.packed import SUFFIX, read_packed

TABLE = re.compile(r"<!-- hashes (?P<sweeps>results/[^\n]*) -->\n\n(?P<rows>(?:\|[^\n]*\n)+)")
HASH = re.compile(r"`([0-9a-f]{8,64})`")


def tables() -> Iterator[tuple[str, str, str]]:
    for page in GUIDES:
        for found in TABLE.finditer(page.read_text(encoding="utf-8")):
            yield names(page), found["sweeps"], found["rows"]


def models(sweeps: str) -> dict[tuple[str, str], str | None]:
    """By setting and row, the hash of the final model."""
    found = {}
    for sweep in sweeps.split():
        packed = read_packed(ROOT / f"{sweep}{SUFFIX}")
        summaries = {run.path: run.summary for run in packed.runs}
        for folder, axes in packed.sweep.runs.items():
            if folder in summaries:
                found[axes["setting"], axes["methods"]] = summaries[folder].model_sha256
    return found


@pytest.mark.parametrize(("page", "sweeps", "rows"), [*tables()])
def test_hashes_are_those_of_the_runs(page: str, sweeps: str, rows: str) -> None:
    known = models(sweeps)
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
