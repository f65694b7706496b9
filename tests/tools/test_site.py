"""The documentation's site: where new pages go, where links lead, and that what is wrong with a built one is seen."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import site_access
import site_check
from gallery import make_figures

ROOT = Path(__file__).parents[2]
WITHOUT = "no Chromium to draw pages, whose HTML the other tests here read in any case: apt install chromium"
PAGE = "<!DOCTYPE html><html><head>{head}</head><body>{body}</body></html>"


def test_a_new_page_is_in_the_navigation_once() -> None:
    pages = pytest.importorskip("site_pages", reason="no MkDocs: pip install '.[docs]'")
    sections = pages.order_pages(["index.md", "tutorial.md", "brand_new.md", "methods/README.md", "methods/newest.md"])
    assert sections == [
        {"Home": ["index.md"]},
        {"Learn": ["tutorial.md"]},
        {"How to": ["brand_new.md"]},
        {"Methods": ["methods/README.md", "methods/newest.md"]},
    ]
    every = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    there = [page for page in every if not page.startswith("decisions/")]
    placed = [page for section in pages.order_pages(there) for names in section.values() for page in names]
    assert sorted(placed) == sorted(there)


def test_only_a_site_of_versions_asks_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = pytest.importorskip("site_pages", reason="no MkDocs: pip install '.[docs]'")
    monkeypatch.delenv("MIKE_DOCS_VERSION", raising=False)
    assert pages.on_config(SimpleNamespace(extra={})).extra == {}
    monkeypatch.setenv("MIKE_DOCS_VERSION", "1.0")  # as mike sets it for the build of a version
    assert pages.on_config(SimpleNamespace(extra={})).extra == {"version": {"provider": "mike", "default": "latest"}}


def test_formulas_of_a_page_become_mathml_and_a_wrong_one_ends_the_build() -> None:
    pages = pytest.importorskip("site_pages", reason="no MkDocs: pip install '.[docs]'")
    page = SimpleNamespace(file=SimpleNamespace(src_uri="methods/new.md"), meta={})
    text = "($a$). It costs `$5 or $6`\n\n```math\na = b\n```\n\n```text\n$c$\n```\n"
    made = pages.on_page_markdown(text, page, None, None)
    assert made.count("<math ") == 2
    assert made.startswith('<span class="formula">(<math ')
    assert '</math>).</span> It costs `$5 or $6`\n\n<div class="math"><math ' in made
    assert made.endswith("</math></div>\n\n```text\n$c$\n```\n")
    with pytest.raises(Exception, match=r"docs/methods/new\.md: the formula '\\\\alphabet' does not convert"):
        pages.on_page_markdown(r"$\alphabet$", page, None, None)


def test_a_link_to_a_file_of_the_repository_leads_to_its_page() -> None:
    pages = pytest.importorskip("site_pages", reason="no MkDocs: pip install '.[docs]'")
    assert [pages._page_of(ROOT / name) for name in ("CHANGELOG.md", "docs/methods/er.md", "examples/plot.py")] == [
        "changelog.md",
        "methods/er.md",
        "files/examples/plot.py.md",
    ]
    text = "a [link](one.md) `[code](two.md)`\n```\n[block](three.md)\n```\n[more](four.md)"
    seen = pages._outside_code(text, lambda part: part.replace(".md", ".html"))
    assert seen == "a [link](one.html) `[code](two.md)`\n```\n[block](three.md)\n```\n[more](four.html)"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site that has nothing wrong."""
    anchors = "".join(f'<h2 id="{name}">{name}</h2>' for name in site_check.DOCUMENTED)
    (tmp_path / "api.html").write_text(PAGE.format(head="", body=anchors + '<a href="https://arxiv.org">a link</a>'))
    (tmp_path / "site.css").write_text("@import 'other.css'; a { background: url(data:image/png;base64,AA==) }")
    (tmp_path / "site.js").write_text('const svg = "http://www.w3.org/2000/svg"')
    return tmp_path


FAULTS = {
    "a script": ("page.html", '<script src="https://unpkg.com/x.js"></script>', "https://unpkg.com/x.js"),
    "a font": ("page.html", '<link href="//fonts.gstatic.com" rel="preconnect">', "//fonts.gstatic.com"),
    "a picture": ("page.html", '<img src="https://img.shields.io/x.svg">', "https://img.shields.io/x.svg"),
    "a style": ("more.css", "@import url(https://fonts.googleapis.com/css?family=X);", "https://fonts.googleapis.com/"),
    "what a script loads": ("more.js", 'load("https://unpkg.com/mermaid@11/m.js")', "https://unpkg.com/mermaid"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_loaded_from_elsewhere_is_a_fault(site: Path, fault: str) -> None:
    assert [*site_check.find_faults(site)] == []
    name, text, loaded = FAULTS[fault]
    (site / name).write_text(text)
    (found,) = site_check.find_faults(site)
    assert found.startswith(f"{name}: it loads {loaded}")


def test_a_public_name_without_documentation_is_a_fault(site: Path) -> None:
    page = site / "api.html"
    page.write_text(page.read_text().replace('id="raysim.run"', ""))
    assert [*site_check.find_faults(site)] == ["api.html: raysim.run is missing"]


@pytest.mark.slow
@pytest.mark.skipif(site_check.BROWSER is None, reason=WITHOUT)
def test_what_is_wrong_in_a_browser_is_seen(tmp_path: Path) -> None:
    """At three widths, light and dark: too wide a page, a picture that is none, an error; and a page that is fine."""
    dark = "<style>@media (prefers-color-scheme: dark) { body { background: #000 } }</style>"
    light = "<style>body { background: #fff }</style>"
    wide = '<div style="width: 1000px">wide</div><img src="none.png"><script>undefined.x</script>'
    (tmp_path / "fine.html").write_text(PAGE.format(head=light + dark, body="fine"))
    (tmp_path / "faulty.html").write_text(PAGE.format(head=light, body=wide))
    faults = [*site_check.look(tmp_path, ["fine.html", "faulty.html"])]
    assert [fault for fault in faults if fault.startswith("fine.html")] == []
    assert sum("it is wider than the screen by" in fault for fault in faults) == 4  # at 400 and 800, light and dark
    assert sum("not drawn" in fault for fault in faults) == 6
    assert sum("Cannot read properties of undefined" in fault for fault in faults) == 6
    assert sum("dark: it is light" in fault for fault in faults) == 3


READABLE = PAGE.format(
    head="<title>a page</title><style>body { background: #fff } a { color: #0000ee } p { color: #222 }</style>",
    body='<main><h1>a page</h1><p>a <a href="#">link</a> in text</p></main>',
).replace("<html>", '<html lang="en">')


@pytest.mark.slow
@pytest.mark.skipif(site_check.BROWSER is None, reason=WITHOUT)
@pytest.mark.skipif(site_check.AXE is None, reason=site_check.WITHOUT_AXE)
def test_what_some_readers_cannot_read_or_reach_is_seen(tmp_path: Path) -> None:
    """On a phone and a desk, light and dark: grey on white, and a link that differs from text by its color alone."""
    (tmp_path / "fine.html").write_text(READABLE)
    grey = READABLE.replace("<h1>", '<h1 style="color: #aaa">')
    (tmp_path / "faulty.html").write_text(grey.replace("a { color", "a { text-decoration: none; color"))
    faults = [*site_check.look(tmp_path, ["fine.html", "faulty.html"], site_check.ACCESSIBLE)]
    found = [fault.replace(",", ":").split(": ") for fault in faults if "axe-core" in fault]
    assert {(page, impact, rule) for page, _, _, _, impact, rule, *_ in found} == {
        ("faulty.html", "serious", "color-contrast"),
        ("faulty.html", "serious", "link-in-text-block"),
    }
    assert len(found) == 2 * 2 * 2


def test_a_table_of_a_reference_is_marked_for_phones_and_an_empty_corner_is_no_header() -> None:
    keys = "<table>\n<thead>\n<tr>\n<th>key</th>\n<th>what it is</th>\n</tr>\n</thead>\n</table>"
    other = keys.replace("<th>key</th>", '<th style="text-align: right;"></th>')
    assert site_access.on_page_content(keys + other) == (
        f'<div class="stacked of-keys">{keys}</div>'
        + keys.replace("<th>key</th>", '<td style="text-align: right;"></td>')
    )


def test_the_themes_search_has_the_dialog_that_is_named() -> None:
    material = pytest.importorskip("material", reason="no MkDocs: pip install '.[docs]'")
    search = Path(material.__path__[0], "templates", "partials", "search.html").read_text(encoding="utf-8")
    assert site_access.on_post_page(search).count(' role="dialog" aria-label="Search">') == 1


def test_the_gallerys_commands_are_carried_out_in_order_and_a_failure_is_one(tmp_path: Path) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "figures"
    page.write_text("```bash\necho one > a\n```\ntext\n```bash\ncat a > b\nfalse\necho never > c\n```\n")
    with pytest.raises(Exception, match="returned non-zero exit status 1"):
        make_figures(page, folder, None)
    assert (folder / "b").read_text() == "one\n"
    assert not (folder / "c").exists()
    page.write_text("```bash\ntrue\n```\n")
    make_figures(page, folder, None)
    assert [*folder.iterdir()] == []  # nothing of before is left


@pytest.mark.slow
def test_of_another_page_only_the_streams_are_drawn(tmp_path: Path) -> None:
    page, streams, folder = tmp_path / "page.md", tmp_path / "streams.md", tmp_path / "figures"
    page.write_text("```bash\ntrue\n```\n")
    streams.write_text("```bash\nfalse\nraysim show quickstart --out a-stream.svg\n```\n")
    make_figures(page, folder, streams)
    assert [path.name for path in folder.iterdir()] == ["a-stream.svg"]


def test_a_figure_has_the_words_of_its_mark() -> None:
    pages = pytest.importorskip("site_pages", reason="no MkDocs: pip install '.[docs]'")
    text = "<!-- figures: a/*.svg -->\n<!-- figures: b.svg Two words. -->"
    found = [mark.groups() for mark in pages.PLOTS.finditer(text)]
    assert found == [("a/*.svg", None), ("b.svg", "Two words.")]
