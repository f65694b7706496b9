"""report.html in a real browser, headless, at three widths, light and dark: what is seen, and what is wrong with it.

tools/site_check.py, which looks at the documentation's site, looks for what is wrong with any page. Here it asks beside
that whether figures and text can be seen, whether links lead somewhere and whether what scrolls says so.
"""

import shutil
from pathlib import Path

import pytest
import site_check
from made_runs import make_run
from written_report import Written

from raysim.reports.write import write_report

WITHOUT = "no Chromium to draw the page, whose HTML test_report_page.py reads in any case: apt install chromium"
SCRIPT = r"""
  for (const part of document.querySelectorAll("details")) part.open = true;
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\d.]+/g).slice(0, 3).map((part) => {
      const of = part / 255;
      return of <= 0.04045 ? of / 12.92 : ((of + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (element) => {
    for (let around = element; around; around = around.parentElement) {
      const colour = getComputedStyle(around).backgroundColor;
      if (!/, 0\)$/.test(colour)) return colour;
    }
  };
  const words = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  for (const element of document.body.querySelectorAll("*")) {
    if (!words(element) || !element.checkVisibility()) continue;
    const inside = element.closest("svg");
    const colour = getComputedStyle(element)[inside ? "fill" : "color"];
    if (inside && /rgb\((0, 0, 0|255, 255, 255)\)/.test(colour)) continue;  // a number on a field of colour
    if (contrast(colour, behind(inside ? inside.parentElement : element)) < 4.5)
      faults.push("hard to read: " + element.textContent);
  }
  for (const line of document.querySelectorAll("svg [style*='currentColor']"))
    if (contrast(getComputedStyle(line).color, behind(line.closest("figure"))) < 4.5) faults.push("a faint line");
  for (const figure of document.querySelectorAll("figure")) {
    const drawn = figure.querySelector("svg");
    const { width, height } = drawn ? drawn.getBoundingClientRect() : { width: 0, height: 0 };
    if (width < 200 || height < 100) faults.push("a figure is not seen");
    const small = [...figure.querySelectorAll("text")].some((text) => text.getBoundingClientRect().height < 5);
    if (small) faults.push("a figure's text is too small");
  }
  for (const link of document.querySelectorAll("a[href^='#']"))
    if (!document.getElementById(link.hash.slice(1))) faults.push("a dead link: " + link.hash);
  for (const box of document.querySelectorAll(".scroll")) {
    if (!box.checkVisibility()) continue;
    const wide = box.scrollWidth > box.clientWidth + 1;
    const said = box.querySelector(".hint").getBoundingClientRect().height > 15;
    if (wide !== said) faults.push((wide ? "does not say" : "says wrongly") + " that it scrolls: " + box.ariaLabel);
    if (wide && box.closest("figure:not(.wide)")) faults.push("a chart does not fit: " + box.ariaLabel);
    if (wide && innerWidth >= 1400) faults.push("it scrolls sideways on a wide screen: " + box.ariaLabel);
    if (box.getBoundingClientRect().right > innerWidth) faults.push("a box sticks out");
  }
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(site_check.BROWSER is None, reason=WITHOUT)]


@pytest.fixture(scope="module")
def pages(written: Written, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One setting, whose figures are of every kind; and several settings, with tables too wide for a phone."""
    folder = tmp_path_factory.mktemp("pages")
    for name, overrides in {"one": {}, "other": {"clients.count": 5}, "more": {"methods": {"er": {}}}}.items():
        make_run(folder / "runs" / name, overrides)
    write_report([folder / "runs"], folder / "site")
    shutil.copy(written.out / "report.html", folder / "site" / "one.html")
    return folder / "site"


ALL = ["one.html", "report.html", "settings/made.html", "settings/made-2.html"]


FIRST_SCREEN = r"""
  const result = document.querySelector("table").getBoundingClientRect();
  if (result.top > 500) faults.push("the result begins at " + result.top);
  if (document.querySelector(".first").getBoundingClientRect().bottom > result.top)
    faults.push("the sentence is below the table");
  for (const part of document.querySelectorAll(".part"))
    if (part.open || part.getBoundingClientRect().top < result.bottom) faults.push("not below and folded: " + part.id);
"""


def test_the_result_comes_first_and_nothing_is_wrong_with_the_pages(pages: Path) -> None:
    assert [*site_check.look(pages, ALL, FIRST_SCREEN + SCRIPT + site_check.ACCESSIBLE)] == []


FILTER = r"""
  const [bytes, steps] = document.querySelectorAll("input[type=number]");
  const say = () => {
    const rows = [...bytes.closest("p").nextElementSibling.tBodies[0].rows].filter((row) => !row.hidden);
    faults.push(document.querySelector("output").textContent + " " + rows.length);
  };
  const give = (input, value) => {
    input.value = value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
    say();
  };
  say(); give(bytes, "4.5"); give(bytes, ""); give(steps, "100"); give(steps, "99");
"""
PARTS = r"""
  const closed = () => [...document.querySelectorAll("details")].filter((part) => !part.open).length;
  const all = closed();
  location.hash = "#setting-1-plots";
  dispatchEvent(new Event("hashchange"));
  faults.push(document.getElementById("setting-1-plots").open && closed() === all - 1 ? "opened" : "still closed");
  dispatchEvent(new Event("beforeprint"));
  const printed = closed();
  dispatchEvent(new Event("afterprint"));
  faults.push(`${printed} closed in print, then ${closed() === all - 1 ? "as before" : "others"}`);
"""
RUNS = r"""
  const table = document.querySelector(".runs"), rows = table.tBodies[0].rows;
  const heads = () => [...table.tHead.rows[0].cells].filter((head) => !head.hidden);
  const shown = () => [...rows].filter((row) => !row.hidden).map((row) => row.cells[0].textContent.trim()).join(" ");
  const sort = heads()[2].querySelector("button");
  sort.click();
  faults.push(`${shown()} ${heads()[2].ariaSort}`);
  sort.click();
  faults.push(`${shown()} ${heads()[2].ariaSort}`);
  const compare = table.parentElement.querySelector("p button");
  faults.push(compare.disabled ? "nothing chosen" : "enabled");
  for (const row of [...rows].slice(1, 3)) row.querySelector("input").click();
  compare.click();
  faults.push(`${shown()}, ${heads().map((head) => head.textContent.trim()).join(", ")}`);
  compare.click();
  faults.push(shown());
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """What the scripts say of a page, at each width and in each scheme.

    MiB and steps: ER 5 and 200 with 80%, FedProx 6 and 100 with 70%, FedAvg 4 and 100 with 50%.
    """
    folder = tmp_path_factory.mktemp("said")
    for name, average, up, steps in (("er", 0.8, 2, 200), ("fedprox", 0.7, 3, 100), ("", 0.5, 1, 100)):
        methods: dict[str, object] = {name: {}} if name else {}
        matrices = {"domain_il": [[average, 0], [average, average]]}
        make_run(folder / f"runs/{name or 'fedavg'}", {"methods": methods}, matrices, bytes_up=up * 2**20, steps=steps)
    write_report([folder / "runs"], folder / "out")
    (folder / "site").mkdir()
    shutil.copy(folder / "out" / "report.html", folder / "site" / "page.html")
    found = [
        fault.partition(": ")[2] for fault in site_check.look(folder / "site", ["page.html"], FILTER + PARTS + RUNS)
    ]
    assert found
    return [found[begin : begin + 12] for begin in range(0, len(found), 12)]


def test_the_filter_shows_the_best_within_a_budget(said: list[list[str]]) -> None:
    assert {tuple(text.removeprefix(": ") for text in one[:5]) for one in said} == {
        ("the best is ER. 3", "the best is FedAvg. 1", "the best is ER. 3", "the best is FedProx. 2", "no method. 0")
    }


def test_links_and_printing_open_the_folded_parts(said: list[list[str]]) -> None:
    assert {tuple(one[5:7]) for one in said} == {("opened", "0 closed in print, then as before")}


def test_runs_are_sorted_and_compared(said: list[list[str]]) -> None:
    """The third column is the accuracy. FedProx and FedAvg differ in it, in bytes and in a hyperparameter."""
    assert {tuple(one[7:]) for one in said} == {
        (
            "FedAvg FedProx ER ascending",
            "ER FedProx FedAvg descending",
            "nothing chosen",
            "FedProx FedAvg, methods, average accuracy, %, sent, MiB, fedprox.mu",
            "ER FedProx FedAvg",
        )
    }


def test_a_faulty_page_is_noticed(written: Written, tmp_path: Path) -> None:
    """For light screens only, with a dead link, small figures, faint words and tables that do not say that they scroll.

    At 1,400 pixels all tables fit and have nothing to say.
    """
    page = (written.out / "report.html").read_text()
    for sound, broken in {
        "prefers-color-scheme: dark": "prefers-color-scheme: none",
        'id="setting-1"': 'id="nowhere"',
        "<h1>": '<a href="#setting-1">x</a><h1>',
        "padding-top: clamp(": "--none: clamp(",
        "figure svg { display: block; width: 100%": "figure svg { display: block; width: 90px",
        "--dim: #505050": "--dim: #d0d0d0",
    }.items():
        assert page.count(sound) == 1
        page = page.replace(sound, broken)
    (tmp_path / "faulty.html").write_text(page)
    faults = [*site_check.look(tmp_path, ["faulty.html"], SCRIPT)]
    assert sum(fault.endswith("dark: it is light") for fault in faults) == 3
    assert sum("a dead link: #setting-1" in fault for fault in faults) == 6
    assert sum("does not say that it scrolls: domain-IL: mean" in fault for fault in faults) == 4
    figures = 1 + len(written.report.sections[0].plots)  # the stream is the first
    assert sum("a figure is not seen" in fault for fault in faults) == 6 * figures
    assert any("hard to read: " in fault for fault in faults)
