"""The figures of the page on sizes are measured ones: each stands in the README beside what measured it."""

import re

from pages import ROOT

FIGURE = re.compile(r"\d[\d.]*(?= ?(?:[KMG]iB|ms|%| to \d+(?: KiB|%)))|\b\d\.\d{3}\b")


def test_every_figure_stands_in_the_readme() -> None:
    figures = FIGURE.findall((ROOT / "docs" / "sizing.md").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(figures) > 20
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]*\d)", readme)] == []
