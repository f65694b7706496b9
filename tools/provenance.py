"""Where the tables of results come from: a table at the foot of each page with results. `make docs` writes it.

A page with marks `<!-- results/NAME ... -->` has a row for each sweep: its runs, seeds, versions, commits and hours.
Below it are the rows with keys that are not the methods' published values or defaults.
The index of the pages has the hours of all sweeps. The index of the methods has the remarks on rows of other pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from marked_text import put_between
from row_remarks import render_remarks

from raysim.records.result import Result
from raysim.reports.packed import SUFFIX, read_packed

ROOT = Path(__file__).parents[1]
MARK = re.compile(r"<!-- (results/[^\n]*?) -->")
INDEX = ROOT / "docs" / "results" / "README.md"
METHODS = ROOT / "docs" / "methods" / "README.md"
REMARKS, END = "<!-- remarks, written by make docs -->", "<!-- end of remarks -->"
TOTAL = re.compile(r"(<!-- hours, written by make docs -->\n).*?(?=\n\n)", re.DOTALL)
OPENS, CLOSES = "<!-- provenance, written by make docs -->", "<!-- end of provenance -->"


def pages() -> list[Path]:
    """Return the pages of docs/results/ that have tables of results."""
    return [page for page in sorted((ROOT / "docs" / "results").glob("*.md")) if MARK.search(page.read_text("utf-8"))]


def render_provenance(page: str) -> str:
    """Return the table for a page's sweeps."""
    rows = [" | ".join(_cells(name)) for name in sweeps_of(page)]
    head = [
        "| sweep | runs | seeds | `normalize` | raysim commits | torch | Ray | hours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *(f"| {row} |" for row in rows)])


def sweeps_of(page: str) -> list[str]:
    """Return the names of a page's sweeps."""
    words = [word for mark in MARK.findall(page) for word in mark.split() if "results/" in word]
    return list(dict.fromkeys(word.removeprefix("results/") for word in words))


def _cells(sweep: str) -> Iterator[str]:
    packed = read_packed(ROOT / "results" / f"{sweep}{SUFFIX}")
    done = [run for run in packed.runs if run.summary.status == "done"]
    runs = [run.summary for run in done]
    yield f"`{sweep}`"
    yield str(len(runs))
    yield ", ".join(map(str, sorted({run.seed for run in runs})))
    yield ", ".join(sorted({_inputs(run.config) for run in done}))
    yield ", ".join(sorted({_version(run, "git", 8) for run in runs}))
    yield ", ".join(sorted({_version(run, "torch").partition("+")[0] for run in runs}))
    yield ", ".join(sorted({_version(run, "ray") for run in runs}))
    yield f"{sum(run.seconds for run in runs) / 3600:.1f}"


def _inputs(config: Mapping[str, Any]) -> str:
    """Return how the inputs of a run are normalized: `dataset.normalize`, or what is done in its place."""
    if config["dataset"]["name"] == "text_jsonl":
        return "texts"
    if config["model"]["name"] == "timm":
        return "the network's"  # models/timm_network.py has the moments of its training
    found = config["dataset"].get("normalize", "none")
    return found if isinstance(found, str) else "given moments"


def _version(run: Result, of: str, letters: int | None = None) -> str:
    found = run.versions.get(of)
    return str(found)[:letters] if found else "not recorded"


def insert_provenance(page: str) -> str:
    """Return the page with its present table at its foot, and the remarks on its rows."""
    body = page.partition("## Provenance")[0].rstrip()
    parts = [body, "## Provenance", OPENS, render_provenance(page), render_remarks(sweeps_of(page)), CLOSES]
    return "\n\n".join(filter(None, parts)) + "\n"


def sweeps_elsewhere() -> list[str]:
    """Return the sweeps with tables on other pages of docs/ alone, the methods' and some guides."""
    here = {sweep for page in pages() for sweep in sweeps_of(page.read_text(encoding="utf-8"))}
    everywhere = sorted((ROOT / "docs").rglob("*.md"))
    return sorted({sweep for page in everywhere for sweep in sweeps_of(page.read_text(encoding="utf-8"))} - here)


def insert_remarks(index: str) -> str:
    """Return the index of the methods with the present remarks on the rows of these sweeps."""
    return put_between(index, REMARKS, END, render_remarks(sweeps_elsewhere()))


def insert_total(index: str) -> str:
    """Return the index with the present number of runs and hours of all sweeps."""
    packs = map(read_packed, sorted((ROOT / "results").glob(f"*{SUFFIX}")))
    seconds = [run.summary.seconds for pack in packs for run in pack.runs if run.summary.status == "done"]
    line = (
        f"The {len(seconds):,} finished runs in `results/` took {sum(seconds) / 3600:.0f} hours, each on one core or a"
    )
    return TOTAL.sub(
        lambda found: (
            f"{found[1]}{line}\nshare of a GPU. Searches that were repeated with longer lists are not among them."
        ),
        index,
    )


if __name__ == "__main__":
    INDEX.write_text(insert_total(INDEX.read_text(encoding="utf-8")), encoding="utf-8")
    METHODS.write_text(insert_remarks(METHODS.read_text(encoding="utf-8")), encoding="utf-8")
    for each in pages():
        each.write_text(insert_provenance(each.read_text(encoding="utf-8")), encoding="utf-8")
