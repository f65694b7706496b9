"""Numbers in the text of pages are those of the runs in results/, or of the page's tables."""

import re
from math import sqrt
from statistics import fmean, stdev

import prose_numbers
import pytest
from pages import ROOT, names

from raysim.reports.packed import SUFFIX, read_packed

PAGE = """# Page

It is <!-- =pacs.peak: points -->0.1 points (0.0 to 0.2)<!-- / --> ahead.

<!-- numbers, written by make docs
pacs: {of: special_pacs, pairs: {peak: [lambda 0.1, lambda 0]}}
-->
"""
TABLE = """<!-- gains, written by make docs -->

| method | one | two |
|---|---|---|
| ER | **1.0 (0.5 to 1.5)** | -2.0 (-4.0 to -0.0) |

<!-- end of gains -->

ER is <!-- =gains.er: behind -->9.9 (1.1 to 2.2)<!-- / --> behind.

<!-- numbers, written by make docs
gains: {table: gains, cells: {er: [ER, two]}}
-->
"""
INTERVAL = re.compile(r"-?\d+\.\d+(?: points)?,? \(?-?\d+\.\d+\s+to\s+-?\d+\.\d+")
WRITTEN = re.compile(r"<!-- (?P<name>[\w -]+), written by make docs -->.*?<!-- end of (?P=name) -->", re.DOTALL)
OTHERS = {"detection.md": 8, "fed_a_gem.md": 4}  # in rounds before the last, in points of mAP50, or means over rows
GAINS = re.compile(r"<!-- gains results/[^\n]*\n\n(?:\|[^\n]*\n)+")


@pytest.mark.parametrize("page", prose_numbers.pages(), ids=lambda page: page.stem)
def test_they_are_those_of_the_runs(page):
    text = page.read_text(encoding="utf-8")
    assert text == prose_numbers.insert_numbers(text), "run `make docs`"


@pytest.mark.parametrize(
    "page", [*(ROOT / "docs" / "results").glob("*.md"), ROOT / "docs" / "leaderboard.md"], ids=names
)
def test_every_interval_on_a_page_of_results_has_its_source(page):
    """An interval is in a mark, in a table of gains, or in a part that `make docs` writes."""
    text = page.read_text(encoding="utf-8")
    for sourced in (prose_numbers.FAMILIES, prose_numbers.MARK, WRITTEN, GAINS):
        text = sourced.sub("", text)
    found = INTERVAL.findall(text)
    assert len(found) == OTHERS.get(page.name, 0), found


def test_a_stale_number_is_written_anew():
    """The mean of the paired differences d, and half the interval: t(0.975, 2) = 4.30265 times stdev(d) / sqrt(3)."""
    packed = read_packed(ROOT / "results" / f"special_pacs{SUFFIX}")
    found = {}
    for run in packed.runs:
        row = packed.sweep.runs[run.path]["methods"]
        found.setdefault(row, {})[run.summary.seed] = 100 * run.summary.evaluation["domain_il"]["average_accuracy"]
    d = [found["lambda 0.1"][seed] - value for seed, value in found["lambda 0"].items()]
    half = 4.30265 * stdev(d) / sqrt(3)
    wanted = f"{fmean(d):.1f} points ({fmean(d) - half:.1f} to {fmean(d) + half:.1f})"
    assert len(d) == 3
    assert prose_numbers.insert_numbers(PAGE) == PAGE.replace("0.1 points (0.0 to 0.2)", wanted)


def test_a_number_of_a_table_follows_it():
    assert prose_numbers.insert_numbers(TABLE) == TABLE.replace("9.9 (1.1 to 2.2)", "2.0 (0.0 to 4.0)")


def test_a_number_on_two_lines_stays_there():
    page = prose_numbers.insert_numbers(PAGE)
    parted = page.replace(" points (", " points\n(")
    assert prose_numbers.insert_numbers(parted) == parted


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("It is <!--", "It is\n<!--", "the mark pacs.peak begins a line"),
        ("=pacs.peak", "=pacs.low", "found the mark pacs.low, allowed: pacs.peak"),
        ("<!-- / --> ahead", " ahead <!-- =pacs.peak -->0.1<!-- / -->", "found 1 marks that begin as `<!-- =`"),
        ("<!-- / --> ahead", " <!-- note --> ahead <!-- / -->", "the mark pacs.peak has no end"),
        ("<!-- =pacs.peak", "<!-- = pacs.peak", "found 1 marks that begin as `<!-- =`"),
        (": points -->", ": plain -->", "found the form plain, allowed: interval"),
        ("lambda 0.1,", "lambda 7,", "found no row lambda 7 in special_pacs"),
        ("pairs:", "pair:", "found pair in pacs, allowed: in, metric, of"),
        ("of: special_pacs", "of: special_pacs, metric: accurate", "found the metric accurate, allowed: average_acc"),
        ("of: special_pacs", "of: special_orders", "found several rows lambda 0.1 in special_orders"),
        ("of: special_pacs", "of: data_free", "found no row lambda 0.1 in data_free"),
        (
            "of: special_pacs",
            "of: special_pacs, in: class_il",
            "found no average_accuracy in class_il, allowed: domain",
        ),
    ],
)
def test_a_mark_that_means_nothing_is_refused(old, new, words):
    with pytest.raises(prose_numbers.Wrong, match=re.escape(words)):
        prose_numbers.insert_numbers(PAGE.replace(old, new))


def test_a_mean_has_its_deviation_and_no_interval():
    page = PAGE.replace("pairs: {peak: [lambda 0.1, lambda 0]}", "rows: {peak: lambda 0.1}")
    with pytest.raises(prose_numbers.Wrong, match="the form points needs 'low'"):
        prose_numbers.insert_numbers(page)
    assert "35.5 ± 1.3<!--" in prose_numbers.insert_numbers(page.replace(": points", ": std"))  # as in special.md
