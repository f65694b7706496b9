"""The verdicts on the page of claims follow from the runs in results/, and no other page has verdicts of its own."""

import re

import claims_page
import prose_numbers
import pytest
from claims_page import FAILS, HOLDS, IN_PART, OPEN, UNSEEN, Claim, judge, outcome
from pages import ROOT
from prose_numbers import Number

METHODS = {"fed_a_gem": "Fed-A-GEM", "special": "SPECIAL", "re_fed": "Re-Fed", "c_flag": "C-FLAG"}
NUMBERS = """<!-- numbers, written by make docs
pacs: {of: special_pacs, pairs: {peak: [lambda 0.1, lambda 0]}}
-->
"""
CLAIMS = """<!-- claims, written by make docs
special: {title: S, not_run: VLCS, claims: [{claim: peaks, settings: {PACS: pacs.peak}}]}
-->
"""


@pytest.fixture(scope="module")
def page():
    return claims_page.PAGE.read_text(encoding="utf-8")


def verdict_of(page, words):
    """The cell of verdicts in the line of a claim."""
    (line,) = [line for line in page.partition("<!-- end of verdicts -->")[0].splitlines() if words in line]
    return line.split(" | ")[1].strip("*")


def test_they_are_those_of_the_runs(page):
    assert page == claims_page.render_page(page), "run `make docs`"


@pytest.mark.parametrize(
    ("signs", "verdict"),
    [
        ([1, 1], HOLDS),
        ([1, 0], IN_PART),
        ([1, -1], IN_PART),
        ([0, -1], FAILS),
        ([-1], FAILS),
        ([0, 0], OPEN),
    ],
)
def test_a_verdict_follows_from_the_tests(signs, verdict):
    assert judge(signs) == verdict


def test_runs_that_are_too_short_decide_nothing():
    decided = {"one": Number({"mean": "1.0"}, (1,))}
    assert (Claim("is ahead", decided).verdict, Claim("is ahead", decided, "too short").verdict) == (HOLDS, OPEN)


def test_a_claim_that_does_not_hold_shows_what_speaks_against_it():
    """And every line counts the tests of all its settings, not only those of the shown one."""
    open_, contrary = Number({"mean": "-0.6"}, (0,)), Number({"mean": "-9.0"}, (-1, 0))
    assert Claim("is ahead", {"large": open_, "small": contrary}).shown == ("small", contrary)
    partly = Claim("is ahead", {"large": open_, "small": contrary, "least": Number({"mean": "1.0"}, (1,))})
    assert (partly.verdict, partly.shown[0]) == (IN_PART, "large")
    assert outcome(partly.signs) == "1 yes, 2 undecided, 1 no"


def test_a_line_that_does_not_hold_has_an_interval_below_0_or_a_no(page):
    lines = [one for one in page.partition("<!-- end of verdicts -->")[0].splitlines() if f"| **{FAILS}** |" in one]
    assert lines
    assert [one for one in lines if not re.search(r"\(-[\d.]+ to -[\d.]+\)|\d no\b", one.split(" | ")[3])] == []


def test_verdicts_agree_with_the_pages_of_results(page):
    """Of special.md: 5.6 (1.6 to 9.7) on PACS, no peak elsewhere. Re-Fed's rows on CIFAR-100 have not converged."""
    assert verdict_of(page, "raises all four baselines on CIFAR-100") == HOLDS
    assert verdict_of(page, "is best at a lambda in between") == IN_PART
    assert verdict_of(page, "is ahead of its rivals on CIFAR-100") == OPEN
    assert verdict_of(page, "is ahead of NCCL") == FAILS


def test_each_paper_has_a_line_of_what_was_not_run(page):
    assert page.partition("<!-- end of verdicts -->")[0].count(f"| **{UNSEEN}** |") == len(METHODS)


def test_the_summary_counts_the_verdicts(page):
    lines = re.findall(r"\| \*\*([a-z ]+)\*\* \|", page.partition("<!-- end of verdicts -->")[0])
    holds, in_part, fails, undecided = map(lines.count, (HOLDS, IN_PART, FAILS, OPEN))
    total = holds + in_part + fails + undecided
    wanted = f"Of {total} claims, {holds} hold, {in_part} hold in part, {fails} do not hold and {undecided} are not "
    assert f"{wanted}decided." in page
    assert total == len(lines) - len(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_page_of_results_leaves_the_verdicts_to_the_page_of_claims(name, page):
    text = (ROOT / "docs" / "results" / f"{name}.md").read_text(encoding="utf-8")
    assert "](../claims.md)" in text.partition("\n## ")[0]
    assert f"**[{METHODS[name]}](results/{name}.md)**" in page
    assert not re.search(rf"\| (?:\*\*)?(?:{HOLDS}|{IN_PART}|{FAILS}|{OPEN})\b", text)


def test_a_stale_verdict_is_written_anew():
    blocks = "\n".join(
        f"<!-- {name}, written by make docs -->\n<!-- end of {name} -->" for name in ("summary", "verdicts", "settings")
    )
    written = claims_page.render_page(f"{blocks}\n{NUMBERS}{CLAIMS}")
    assert "| **S** peaks | **holds** | yes | PACS: 5.6 (1.6 to 9.7) |" in written  # as in special.md
    stale = written.replace("**holds**", "**does not hold**").replace("5.6 (", "6.5 (")
    assert claims_page.render_page(stale) == written


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (NUMBERS, "found no claims, allowed: a comment"),
        (NUMBERS + CLAIMS.replace("pacs.peak", "pacs.low"), "found pacs.low in peaks, allowed: pacs.all, pacs.peak"),
        (NUMBERS + CLAIMS.replace("{PACS: pacs.peak}", "{}"), "found no settings of the claim peaks, allowed"),
    ],
)
def test_a_claim_that_means_nothing_is_refused(page, words):
    with pytest.raises(prose_numbers.Wrong, match=re.escape(words)):
        claims_page.read_claims(page)
