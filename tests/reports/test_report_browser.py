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
    if (box.getBoundingClientRect().right > innerWidth) faults.push("a box sticks out");
  }
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(site_check.BROWSER is None, reason=WITHOUT)]


def test_nothing_is_wrong_with_the_page(written: Written, tmp_path: Path) -> None:
    """One setting, whose figures are of every kind; and two settings, one of them with tables too wide for a phone."""
    shutil.copy(written.out / "report.html", tmp_path / "one.html")
    for name, overrides in {"one": {}, "other": {"clients.count": 5}, "more": {"methods": {"er": {}}}}.items():
        make_run(tmp_path / "runs" / name, overrides)
    write_report([tmp_path / "runs"], tmp_path / "out")
    shutil.copy(tmp_path / "out" / "report.html", tmp_path / "two.html")
    # the contents name both and three parts of each
    assert (tmp_path / "two.html").read_text().count('href="#setting-') == 2 * 4
    assert [*site_check.look(tmp_path, ["one.html", "two.html"], SCRIPT)] == []


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


def test_the_filter_shows_the_best_within_a_budget(tmp_path: Path) -> None:
    """MiB and steps: ER 5 and 200 with 80%, FedProx 6 and 100 with 70%, FedAvg 4 and 100 with 50%."""
    for name, average, up, steps in (("er", 0.8, 2, 200), ("fedprox", 0.7, 3, 100), ("", 0.5, 1, 100)):
        methods: dict[str, object] = {name: {}} if name else {}
        matrices = {"domain_il": [[average, 0], [average, average]]}
        make_run(
            tmp_path / f"runs/{name or 'fedavg'}", {"methods": methods}, matrices, bytes_up=up * 2**20, steps=steps
        )
    write_report([tmp_path / "runs"], tmp_path / "out")
    shutil.copy(tmp_path / "out" / "report.html", tmp_path / "page.html")
    said = [*site_check.look(tmp_path, ["page.html"], FILTER)]
    texts = [text.rpartition(": ")[2] for text in said]
    per_view = [
        "the best is ER. 3",
        "the best is FedAvg. 1",
        "the best is ER. 3",
        "the best is FedProx. 2",
        "no method. 0",
    ]
    assert texts == per_view * (len(texts) // 5)
    assert texts


def test_a_faulty_page_is_noticed(written: Written, tmp_path: Path) -> None:
    """For light screens only, with a dead link, small figures, faint words and tables that do not say that they scroll.

    At 1,400 pixels most tables fit and have nothing to say.
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
    assert sum("a dead link: #setting-1" in fault for fault in faults) == 12  # that one, and the contents'
    assert sum("does not say that it scrolls: domain-IL: mean" in fault for fault in faults) == 6
    figures = 1 + len(written.report.sections[0].plots)  # the stream is the first
    assert sum("a figure is not seen" in fault for fault in faults) == 6 * figures
    assert any("hard to read: " in fault for fault in faults)
