"""Every link inside the documentation leads somewhere, and every page can be reached from the README."""

from pathlib import Path

import pytest
from pages import LINK, PAGES, ROOT, headings, names


def links(page: Path) -> list[tuple[Path, str]]:
    """Where the links of a page inside the project lead: file and anchor."""
    found = (link.partition("#") for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link)
    return [((page.parent / file).resolve() if file else page, anchor) for file, _, anchor in found]


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_its_links_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), f"{names(page)} links to {target}"
        if anchor:
            assert anchor in headings(target), f"{names(page)} links to #{anchor} of {target.name}"


def test_every_page_is_reached_from_the_readme() -> None:
    reached, new = set(), {ROOT / "README.md"}
    while new:
        reached |= new
        new = {target for page in new for target, _ in links(page) if target.suffix == ".md"} - reached
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} <= reached
