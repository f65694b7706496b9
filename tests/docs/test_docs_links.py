"""Links inside the documentation have targets, the README leads to every page, and paths to code exist."""

import re
from pathlib import Path

import pytest
from pages import LINK, PAGES, ROOT, headings, names


def links(page: Path) -> list[tuple[Path, str]]:
    """Where the links of a page inside the project lead: file and anchor."""
    found = (link.partition("#") for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link)
    return [((page.parent / file).resolve() if file else page, anchor) for file, _, anchor in found]


def test_links_lead_somewhere() -> None:
    nowhere = [
        f"{names(page)} links to {target}{f'#{anchor}' if anchor else ''}"
        for page in PAGES
        for target, anchor in links(page)
        if not target.exists() or (anchor and anchor not in headings(target))
    ]
    assert nowhere == []


def test_pictures_are_there() -> None:
    """Also those of `<picture>`, of which a browser takes the first that fits: dark and narrow before narrow."""
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        shown = re.findall(r'(?:srcset|src)="([^"]+)"', page.read_text(encoding="utf-8"))
        assert [Path(path).stem for path in shown[:4]] == [
            "hero-phone-dark",
            "hero-phone-light",
            "hero-dark",
            "hero-light",
        ]
        assert [path for path in shown if not (page.parent / path).is_file()] == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached, new = set(), {ROOT / "README.md"}
    while new:
        reached |= new
        new = {target for page in new for target, _ in links(page) if target.suffix == ".md"} - reached
    assert {page.resolve() for page in PAGES if page.is_relative_to(ROOT / "docs")} <= reached


CODE = re.compile(r"`((?:\w+/)+(?:\w+\.py)?)`")


@pytest.mark.parametrize(
    "page",
    [
        ROOT / "ARCHITECTURE.md",
        ROOT / "AGENTS.md",
        ROOT / "docs" / "security.md",
        *(ROOT / "docs" / "decisions").glob("*.md"),
    ],
    ids=names,
)
def test_the_code_that_it_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page.name == "names.md":  # only the last column has present names
        text = "\n".join(line.split("|")[-2] for line in text.splitlines() if line.startswith("|"))
    for path in CODE.findall(text.replace("NAME", "fedprox")):
        assert (ROOT / path).exists() or (ROOT / "raysim" / path).exists(), f"{names(page)} names {path}"
