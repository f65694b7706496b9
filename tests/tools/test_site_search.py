"""The site's search is asked 31 questions in a browser, and a page that is not among the first three is a miss."""

from pathlib import Path

import pytest
import site_check
import site_search

ROOT = Path(__file__).parents[2]
# a search as the theme's: it lists a page for each letter that is typed, its parts below it
FAKE = """<!DOCTYPE html><html><head></head><body><input id="__search" type="checkbox"><input class="md-search__input">
<ol></ol><script>
document.querySelector(".md-search__input").addEventListener("keyup", ({ target }) => {
  const show = (letter) => `<li class="md-search-result__item"><a href="${letter}.html?h=x#part">${letter}</a></li>`;
  document.querySelector("ol").innerHTML = [...target.value].map(show).join("");
});
</script></body></html>"""


def test_there_are_as_many_questions_as_said_about_pages_that_exist() -> None:
    wanted = site_search.read_questions()
    assert len(wanted) == 31
    pages = {page.removesuffix(".html") + ".md" for found in wanted.values() for page in found}
    names = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= names


def test_a_page_below_the_first_three_is_a_miss() -> None:
    wanted = {"here": ["a.html"], "either": ["b.html", "c.html"], "below": ["d.html"], "never": ["e.html"]}
    found = {question: ["x.html", "a.html", "c.html", "d.html"] for question in ("here", "either", "below")}
    assert [*site_search.find_misses(wanted, found)] == [
        "search 'below': found x.html, a.html, c.html, wanted d.html",
        "search 'never': found nothing, wanted e.html",
    ]


@pytest.mark.skipif(site_check.BROWSER is None, reason="no Chromium: apt install chromium")
def test_questions_are_typed_in_a_browser(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(FAKE)
    browser = [str(site_check.BROWSER), *site_check.QUIET, site_check.TYPING]
    assert site_search.search(tmp_path, ["aba", "c"], browser) == {"aba": ["a.html", "b.html"], "c": ["c.html"]}


def test_a_letter_without_a_page_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = site_search.read_questions()
    found = {**wanted, **{letter: ["a.html"] for letter in site_search.LETTERS}, "c": []}
    monkeypatch.setattr(site_search, "search", lambda *asked: found)
    assert [*site_check.ask(Path())] == ["the search finds nothing for 'c'"]
