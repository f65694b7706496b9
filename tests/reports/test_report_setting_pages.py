"""A report of several settings: a first page without their plots, and a page for each."""

from pathlib import Path

import pytest
from made_runs import make_run
from test_report_page import Page

from raysim.reports.naming import name_files
from raysim.reports.write import write_report


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of three settings; a page of an earlier report and a user's page are in its folder."""
    folder = tmp_path_factory.mktemp("pages")
    for count in (3, 4, 5):
        for methods in ({}, {"er": {}}):
            name = f"{count}-{len(methods)}"
            matrix = [[count / 10, 0.0], [0.1, 0.1 * len(methods) + count / 10]]  # equal plots are shown once
            overrides = {"clients.count": count, "methods": methods}
            make_run(folder / "runs" / name, overrides, {"domain_il": matrix}, name="A/b <i>")
    kept = folder / "out" / "settings"
    kept.mkdir(parents=True)
    (kept / "old.html").write_text('<meta name="generator" content="raysim report">')
    (kept / "mine.html").write_text("mine")
    return write_report(folder / "runs", folder / "out").out


def links(file: Path) -> list[str]:
    return [str(attributes["href"]) for attributes in Page(file.read_text()).all("a")]


def test_every_setting_has_a_page_and_an_earlier_one_is_deleted(out: Path) -> None:
    names = ["a-b-i-2.html", "a-b-i-3.html", "a-b-i.html", "mine.html"]
    assert sorted(file.name for file in (out / "settings").iterdir()) == names


def test_all_links_lead_to_a_page_and_to_a_part_of_it(out: Path) -> None:
    first = out / "report.html"
    assert links(first) == ["settings/a-b-i.html", "settings/a-b-i-2.html", "settings/a-b-i-3.html"]
    middle = out / "settings" / "a-b-i-2.html"
    assert {"../report.html#setting-2", "a-b-i.html", "a-b-i-3.html"} <= {*links(middle)}
    for file in (first, *(out / path for path in links(first))):
        for link in links(file):
            path, _, part = link.partition("#")
            page = Page((file.parent / path if path else file).read_text())
            assert not part or part in {attributes.get("id") for _, attributes in page.found}


def test_the_first_page_has_no_plots_of_settings_and_their_pages_have_them(out: Path) -> None:
    first = Page((out / "report.html").read_text())
    assert first.all("svg") == []
    for path in links(out / "report.html"):
        text = (out / path).read_text()
        page = Page(text)
        assert len(page.all("svg")) >= 3
        parts = [details["id"] for details in page.all("details") if details.get("class") == "part"]
        assert [str(part).rpartition("-")[2] for part in parts] == ["results", "plots", "runs", "what", "commands"]
        assert "A/b &lt;i&gt;" in text
        assert "<i>" not in text


def test_one_setting_is_one_page(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "one")
    out = write_report(tmp_path / "runs", tmp_path / "out").out
    assert not (out / "settings").exists()


def test_names_of_pages_are_safe_and_different() -> None:
    titles = ["Ä b", "a/B", "../x", "", "日本", "a-b-2", "q" * 200]
    assert name_files(titles) == ["a-b", "a-b-2", "x", "setting", "setting-2", "a-b-2-2", "q" * 80]
