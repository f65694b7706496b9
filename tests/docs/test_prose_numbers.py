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
P_VALUE = re.compile(r"\bp (?:<|at most|0)[ \d.]*")
WRITTEN = re.compile(r"<!-- (?P<name>[\w -]+), written by make docs -->.*?<!-- end of (?P=name) -->", re.DOTALL)
GAINS = re.compile(r"<!-- gains results/[^\n]*\n\n(?:\|[^\n]*\n)+")


@pytest.mark.parametrize("page", prose_numbers.pages(), ids=lambda page: page.stem)
def test_they_are_those_of_the_runs(page):
    text = page.read_text(encoding="utf-8")
    assert text == prose_numbers.insert_numbers(text), "run `make docs`"


@pytest.mark.parametrize(
    "page", [page for page in (ROOT / "docs").rglob("*.md") if page.name != "statistics.md"], ids=names
)
def test_every_interval_and_p_on_a_page_has_its_source(page):
    """It is in a mark, in a table of gains, or in a part that `make docs` writes. docs/statistics.md has an example,
    and a decision says what was written before it."""
    text = page.read_text(encoding="utf-8")
    for sourced in (prose_numbers.FAMILIES, prose_numbers.MARK, WRITTEN, GAINS):
        text = sourced.sub("", text)
    assert INTERVAL.findall(text) == []
    assert "decisions" in page.parts or P_VALUE.findall(text) == []


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
        ("=pacs.peak", "=pacs.low", "found the mark pacs.low, allowed: pacs.all, pacs.peak"),
        ("<!-- / --> ahead", " ahead <!-- =pacs.peak -->0.1<!-- / -->", "found 1 marks that begin as `<!-- =`"),
        ("<!-- / --> ahead", " <!-- note --> ahead <!-- / -->", "the mark pacs.peak has no end"),
        ("<!-- =pacs.peak", "<!-- = pacs.peak", "found 1 marks that begin as `<!-- =`"),
        (": points -->", ": plain -->", "found the form plain, allowed: interval"),
        ("lambda 0.1,", "lambda 7,", "found no row lambda 7 in special_pacs"),
        ("pairs:", "pair:", "found pair in pacs, allowed: against, changes, in, levels, metric, of"),
        ("of: special_pacs", "of: special_pacs, metric: accurate", "found the metric accurate, allowed: average_acc"),
        ("of: special_pacs", "of: special_orders", "found several rows lambda 0.1 in special_orders"),
        ("of: special_pacs", "of: special_pacs, unit: MiB", "found the unit MiB, allowed: %"),
        ("of: special_pacs, ", "together: [digits], ", "found pairs in pacs, allowed: together"),
        ("{of: special_pacs, pairs: {peak: [lambda 0.1, lambda 0]}}", "{together: [digits]}", "found digits, allowed:"),
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


def numbers_of(families):
    return dict(prose_numbers.measure(f"<!-- numbers, written by make docs\n{families}\n-->"))


def accuracies(sweep):
    """By row and seed: the matrix of accuracies on MNIST's rotations, row t after task t."""
    packed = read_packed(ROOT / "results" / f"{sweep}{SUFFIX}")
    found = {}
    for run in packed.runs:
        row = packed.sweep.runs[run.path]["methods"]
        found.setdefault(row, {})[run.summary.seed] = run.summary.evaluation["domain_il"]["accuracy"]
    return found


def test_what_a_gain_has_grown_is_the_difference_of_two_gains():
    rows = "[FL + DER + Fed-A-GEM, FL + DER, FL + Fed-A-GEM, FL]"
    found = numbers_of(f"of_der: {{of: fed_a_gem_full, pairs: {{more: {rows}}}}}")["of_der.more"]
    last = {row: [100 * fmean(by[seed][-1]) for seed in range(3)] for row, by in accuracies("fed_a_gem_full").items()}
    d = [
        one - other - (two - three)
        for one, other, two, three in zip(
            last["FL + DER + Fed-A-GEM"], last["FL + DER"], last["FL + Fed-A-GEM"], last["FL"], strict=True
        )
    ]
    assert found.texts["seeds"] == ", ".join(f"{one:.1f}" for one in d)
    assert found.texts["low"] == f"{fmean(d) - 4.30265 * stdev(d) / sqrt(3):.1f}"
    assert found.signs == (1,)


def test_a_row_against_one_run_is_compared_at_every_seed():
    """Less the one value, by hand with Student's t of 2 degrees of freedom."""
    family = (
        "a: {of: [pretrained_clinc150, closed_form_clinc150], in: class_il, "
        "against: {er: [ER, '5 clients, IID, 10 tasks / Analytic']}}"
    )
    found = numbers_of(family)["a.er"]
    tested = {run.path: run.summary for run in read_packed(ROOT / "results" / f"pretrained_clinc150{SUFFIX}").runs}
    last = [fmean(tested[f"ER/seed-{seed}"].evaluation["class_il"]["accuracy"][-1]) for seed in range(3)]
    d = [100 * (one - 4091 / 4500) for one in last]  # the closed form is right on 4,091 of the 4,500 texts
    assert found.texts["mean"] == f"{fmean(d):.1f}"
    assert found.texts["low"] == f"{fmean(d) - 4.30265 * stdev(d) / sqrt(3):.1f}"
    several = family.replace("'5 clients, IID, 10 tasks / Analytic'", "ER")
    with pytest.raises(prose_numbers.Wrong, match="found 3 runs of ER for er, allowed: one run"):
        numbers_of(several)


def test_quantities_of_the_matrix():
    """The mean of the rows up to the diagonal, and the last row less the row before without the last task."""
    wanted = {"all_rows": [], "last_change": []}
    for matrix in (accuracies("fed_a_gem_full")["FL"][seed] for seed in range(3)):
        wanted["all_rows"].append(100 * fmean(fmean(row[: t + 1]) for t, row in enumerate(matrix)))
        wanted["last_change"].append(100 * (fmean(matrix[9][:9]) - fmean(matrix[8][:9])))
    for metric, values in wanted.items():
        found = numbers_of(f"fl: {{of: fed_a_gem_full, metric: {metric}, changes: {{fl: FL}}}}")["fl.fl"]
        assert found.texts["seeds"] == ", ".join(f"{one:.1f}" for one in values)
        assert found.texts["mean"] == f"{fmean(values):.1f}"
    assert found.signs == (0,)  # the changes in the last task are of both signs


def test_families_of_another_page_and_families_together():
    found = numbers_of("a: {page: results/special.md}\nb: {page: results/detection.md}\nboth: {together: [a, b]}")
    assert found["a.pacs-peak"].texts["mean"] == "5.6"  # as on the page
    names = ("pacs-peak", "steps_usps-special_c", "permuted-peak")
    assert [found[f"a.{name}"].signs for name in names] == [(1,), (-1,), (0,)]
    whole = found["both.all"].texts
    single = [one for name, one in found.items() if "both" not in name and "mean" in one.texts]
    assert int(whole["tested"]) == sum(len(one.signs) for one in single)
    assert whole["last"] == "21.1"  # points that the ideal is ahead, on the page of detection


def test_a_level_agrees_within_both_deviations():
    """Here 62.0 ± 8.3 and 26.6 ± 3.6; published 68.0 ± 3.1 and, of another setting, 25.9 ± 2.1."""
    families = """
rotated: {of: fed_a_gem_full, levels: {fl: [FL, fed_a_gem, "1", rotated-MNIST, FL]}}
permuted: {of: fed_a_gem_full, levels: {fl: [FL, fed_a_gem, "1", permuted-MNIST, FL]}}"""
    found = numbers_of(families)
    assert found["rotated.fl"].show("level") == "62.0 ± 8.3, published 68.0 ± 3.1"
    assert (found["rotated.fl"].signs, found["permuted.fl"].signs) == ((1,), (-1,))


def test_lines_of_a_table_are_all_its_columns():
    found = dict(prose_numbers.measure(TABLE.replace("cells: {er: [ER, two]}", "lines: {er: ER}")))
    assert {name: one.signs for name, one in found.items()} == {
        "gains.all": (1, 0),
        "gains.er-one": (1,),
        "gains.er-two": (0,),
    }
