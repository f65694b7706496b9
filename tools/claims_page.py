"""The verdicts of docs/claims.md: which claims of four papers hold, from the runs in results/. `make docs` writes them.

A comment on the page has the claims, in YAML. Each has settings, the one with the most data first:

    <!-- claims, written by make docs
    re_fed:
      title: "[Re-Fed](results/re_fed.md)"
      not_run: "CIFAR-10, Tiny-ImageNet"
      claims:
        - claim: is ahead of a random cache (Table 1)
          settings: {"a fifth of MNIST": re_fed.mnist_5-random, digits: re_fed.samples_20-all}
    -->

A setting's number is one that tools/prose_numbers.py knows on the page: a difference in the claimed direction, a family
of them, or a level. The verdict follows from the tests of all settings, see `judge`. `too_short` gives a reason why
runs decide nothing, whatever their tests say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from markdown_rows import head, line
from marked_text import put_between
from prose_numbers import Number, Wrong, measure

PAGE = Path(__file__).parents[1] / "docs" / "claims.md"
CLAIMS = re.compile(r"<!-- claims, written by make docs\n(?P<text>.*?)\n-->", re.DOTALL)
HOLDS, IN_PART, FAILS, OPEN, UNSEEN = "holds", "holds in part", "does not hold", "not decided", "could not look"
COUNTED = {HOLDS: "hold", IN_PART: "hold in part", FAILS: "do not hold", OPEN: "are not decided"}
OUTCOMES = {1: "yes", 0: "undecided", -1: "no"}


@dataclass(frozen=True)
class Claim:
    """A claim, the numbers of its settings by their names, and why its runs decide nothing, if they do not."""

    text: str
    settings: Mapping[str, Number]
    too_short: str | None = None

    @property
    def verdict(self) -> str:
        """The verdict on the claim."""
        return OPEN if self.too_short else judge(self.signs)

    @property
    def signs(self) -> tuple[int, ...]:
        """What all tests say; see `judge`."""
        return tuple(sign for one in self.settings.values() for sign in one.signs)

    @property
    def shown(self) -> tuple[str, Number]:
        """The strongest setting, or the strongest that speaks against a claim that does not hold."""
        against = (named for named in self.settings.items() if self.verdict == FAILS and -1 in named[1].signs)
        return next(against, next(iter(self.settings.items())))


@dataclass(frozen=True)
class Paper:
    """A paper's method, its claims, and what was not run."""

    title: str
    claims: Sequence[Claim]
    not_run: str


def judge(signs: Sequence[int]) -> str:
    """Return the verdict on a claim.

    Args:
        signs: for each test 1 if it is significant in the claimed direction, -1 in the other, else 0.
    """
    if all(sign > 0 for sign in signs):
        return HOLDS
    if any(sign > 0 for sign in signs):
        return IN_PART
    return FAILS if any(sign < 0 for sign in signs) else OPEN


def read_claims(page: str) -> list[Paper]:
    """Return the papers of a page, with the numbers of their claims.

    Raises:
        Wrong: the page has no claims, or a claim names a number that the page's families do not have.
    """
    found = CLAIMS.search(page)
    if found is None:
        raise Wrong("found no claims, allowed: a comment `<!-- claims, written by make docs`")
    numbers = dict(measure(page))
    return [
        Paper(of_paper["title"], [_claim(one, numbers) for one in of_paper["claims"]], of_paper["not_run"])
        for of_paper in yaml.safe_load(found["text"]).values()
    ]


def _claim(keys: Mapping[str, Any], numbers: Mapping[str, Number]) -> Claim:
    settings = keys["settings"]
    if not settings:
        raise Wrong(f"found no settings of the claim {keys['claim']}, allowed: at least one, or a part of not_run")
    if unknown := [name for name in settings.values() if name not in numbers]:
        raise Wrong(f"found {', '.join(unknown)} in {keys['claim']}, allowed: {', '.join(numbers)}")
    return Claim(keys["claim"], {title: numbers[name] for title, name in settings.items()}, keys.get("too_short"))


def render_summary(papers: Sequence[Paper]) -> str:
    """Return the sentence that counts the verdicts."""
    counts = Counter(claim.verdict for paper in papers for claim in paper.claims)
    *most, last = [f"{counts[verdict]} {words}" for verdict, words in COUNTED.items()]
    return f"Of {counts.total()} claims, {', '.join(most)} and {last}."


def render_verdicts(papers: Sequence[Paper]) -> str:
    """Return the table with a line for each claim, and one for what was not run of each paper."""
    return "\n".join([*head("claim", "verdict", "tests support it", "strongest setting, in points"), *_lines(papers)])


def _lines(papers: Sequence[Paper]) -> Iterator[str]:
    for paper in papers:
        for place, claim in enumerate(paper.claims):
            text = f"**{paper.title}** {claim.text}" if place == 0 else claim.text
            title, number = claim.shown
            share = f", {outcome(number.signs)}" if len(number.signs) > 1 else ""
            shown = f"{title}: {claim.too_short or show(number) + share}"
            yield line(text, f"**{claim.verdict}**", outcome(claim.signs), shown)
        yield line(f"claims on {paper.not_run}", f"**{UNSEEN}**", "-", "[not run](reproducing.md#not-run)")


def show(number: Number) -> str:
    """Return a number, a level with the published one, or a family as a whole, as a cell has it."""
    if "published" in number.texts:
        return number.show("level")
    if "mean" in number.texts:
        return number.show("interval")
    return number.show("span")


def render_settings(papers: Sequence[Paper]) -> str:
    """Return a folded table for each paper, with all settings of its claims."""
    return "\n\n".join(_fold(paper) for paper in papers)


def _fold(paper: Paper) -> str:
    rows = [
        line(claim.text if place == 0 else "", title, show(number), outcome(number.signs))
        for claim in paper.claims
        for place, (title, number) in enumerate(claim.settings.items())
    ]
    name = paper.title.partition("](")[0].lstrip("[")
    table = "\n".join([*head("claim", "setting", "in points", "supports it"), *rows])
    return f"<details markdown>\n<summary>{name}: all settings</summary>\n\n{table}\n\n</details>"


def outcome(signs: Sequence[int]) -> str:
    """Return whether tests support a claim: yes, no or undecided of one, and how many of several do what."""
    if len(signs) == 1:
        return OUTCOMES[signs[0]]
    counts = Counter(signs)
    return ", ".join(f"{counts[sign]} {word}" for sign, word in OUTCOMES.items() if counts[sign])


def render_page(page: str) -> str:
    """Return the page with its present verdicts."""
    papers = read_claims(page)
    for name, text in (
        ("summary", render_summary(papers)),
        ("verdicts", render_verdicts(papers)),
        ("settings", render_settings(papers)),
    ):
        page = put_between(page, f"<!-- {name}, written by make docs -->", f"<!-- end of {name} -->", text)
    return page


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
