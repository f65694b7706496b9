"""report.html: well formed, whole without a network, and legible without seeing its pictures."""

import re
from html.parser import HTMLParser

import pytest
from written_report import Written

EMPTY = {"meta", "link", "img", "br", "hr", "wbr"}
LOADS = {"src", "href", "srcset", "data", "poster", "action", "xlink:href"}


class Page(HTMLParser):
    """Collects what is opened, with its attributes, and checks that all is closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.around: list[tuple[str, ...]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.around.append(tuple(self._open))
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & {*self._open}:
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def source(written: Written) -> str:
    return (written.out / "report.html").read_text()


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


def test_it_loads_nothing(page: Page, source: str) -> None:
    loaded = [value or "" for _, attributes in page.found for key, value in attributes.items() if key in LOADS]
    assert len(loaded) > 5
    assert all(value.startswith(("data:", "#")) for value in loaded)
    assert {tag for tag, _ in page.found}.isdisjoint({"iframe", "object", "embed", "base", "video", "audio"})
    assert page.all("script") == [{}]  # written into the page
    style = source[source.index("<style>") : source.index("</style>")]
    assert not re.search(r"url\(|@import|@font-face", style)
    assert not [key for _, attributes in page.found for key in attributes if key.startswith("on")]


def test_it_has_a_language_a_title_and_the_width_of_its_reader(page: Page) -> None:
    assert page.all("html")[0]["lang"] == "en"
    titles = [around for (tag, _), around in zip(page.found, page.around, strict=True) if tag == "title"]
    assert sum("svg" not in around for around in titles) == 1
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all("meta")


def test_wide_tables_and_figures_scroll_in_their_box(page: Page) -> None:
    found = [*zip(page.found, page.around, strict=True)]
    tables = [around for (tag, _), around in found if tag in ("table", "svg")]
    assert len(tables) >= 8
    assert all(around[-2:] == ("div", "div") for around in tables)
    boxes = [attributes for attributes in page.all("div") if attributes.get("class") == "scroll"]
    assert len(boxes) == len(tables)
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    assert page.text.count("scrolls sideways") == len(boxes)  # which the browser shows where it is so


def test_plots_are_inside_once_with_words_for_them(page: Page, source: str, written: Written) -> None:
    section = written.report.sections[0]
    assert section.stream is not None
    assert section.first_plot is not None
    images, plots = page.all("svg"), [section.first_plot, *section.other_plots, section.stream]
    assert [(image["role"], image["aria-label"]) for image in images] == [("img", plot.caption) for plot in plots]
    found = re.findall(r"<svg.*?</svg>", source, re.DOTALL)
    for shown, plot in zip(found, plots, strict=True):
        file = (written.out / "plots" / plot.file.name).read_text()
        for element in ("<path", "<text", "<use"):
            assert shown.count(element) == file.count(element)
        assert shown.count("<text") > 5
        assert "#1a1a1a" in file
        assert "#1a1a1a" not in shown  # ink, which is light on a dark page


def test_it_is_called_as_its_runs_and_says_its_extent(page: Page) -> None:
    """Three runs of the name `made`, and a real one of that name, by FedAvg and FedProx."""
    assert "\nmade\n4 runs, 2 methods, 1 setting; 1 more did not finish." in page.text.replace("\n\n", "\n")


def test_the_anchors_lead_somewhere_and_ids_are_unique(page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {str(a["href"])[1:] for a in page.all("a")} <= set(ids)


def test_what_was_left_out_commands_and_configs_are_on_it(page: Page, written: Written) -> None:
    assert "runs/<b>failed</b>: found the status failed, counted: done" in page.text  # as text, not as markup
    for run in written.report.sections[0].setting.runs:
        assert f"raysim run {run.directory}/config.yaml\n" in page.text
    for group in written.report.sections[0].setting.groups:
        assert (written.out.parent / group.runs[0].directory / "config.yaml").read_text() in page.text


def test_the_best_are_bold_and_the_second_underlined(page: Page, written: Written) -> None:
    section = written.report.sections[0]
    assert section.lead is not None
    cells = [cell for table in (section.lead.table, *section.tables) for row in table.rows for cell in row]
    for tag, marked in (("b", [cell for cell in cells if cell.best]), ("u", [cell for cell in cells if cell.second])):
        assert marked != []
        found = [around for (name, _), around in zip(page.found, page.around, strict=True) if name == tag]
        assert len(found) == len(marked)
        assert all(around[-1] == "td" for around in found)


def test_the_result_comes_first_and_the_rest_is_folded(page: Page, source: str) -> None:
    parts = [attributes["id"] for attributes in page.all("details") if attributes.get("class") == "part"]
    names = ("results", "plots", "runs", "what", "commands")
    assert parts == [*(f"setting-1-{name}" for name in names), "left-out"]
    assert not any("open" in attributes for attributes in page.all("details"))
    found = [*zip(page.found, page.around, strict=True)]
    assert ["details" in around for (tag, _), around in found if tag == "table"][:2] == [False, True]
    assert source.index('class="first"') < source.index("<table") < source.index("<details")
    assert [around for (tag, _), around in found if tag == "main"] == [("html", "body")]
