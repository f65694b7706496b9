"""report.html in a real browser, headless, on a wide and a narrow screen: complaints, what is seen, where links lead.

A script is added to a copy of the page: it looks at the page when everything is loaded and leaves what it saw as JSON
in the page, which Chromium then prints.
"""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run
from written_report import Written

from raysim.report.write import write_report

WITHOUT = "no Chromium to draw the page, whose HTML test_report_page.py reads in any case: apt install chromium"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--disable-dev-shm-usage"),
    *("--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--virtual-time-budget=5000"),
]
SCRIPT = """
<script>
addEventListener("load", () => {
  const box = (element) => element.getBoundingClientRect();
  const seen = (element) => element.checkVisibility() && box(element).width > 100 && box(element).height > 100;
  const images = [...document.images].map((image) => ({
    drawn: image.complete && image.naturalWidth > 0, seen: seen(image), inside: box(image).right <= innerWidth + 1 }));
  const links = [...document.links].map((link) => {
    link.click();
    return { hash: location.hash, there: document.querySelector(":target") !== null };
  });
  const tables = [...document.querySelectorAll(".scroll")].map((scroll) => box(scroll).right <= innerWidth + 1);
  const found = { width: document.documentElement.scrollWidth, room: innerWidth, images, links, tables };
  const result = document.createElement("pre");
  result.id = "found";
  result.textContent = JSON.stringify(found);
  document.body.append(result);
});
</script>
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason=WITHOUT)]


@dataclass(frozen=True)
class Seen:
    """What the script saw, and what the browser's console said."""

    found: dict[str, Any]
    console: list[str]


def look(page: Path, width: int, folder: Path) -> Seen:
    copy = folder / "page.html"
    copy.write_text(page.read_text().replace("</head>", f"{SCRIPT}</head>"))
    options = [f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900", "--dump-dom", copy.as_uri()]
    done = subprocess.run([str(BROWSER), *QUIET, *options], capture_output=True, text=True, timeout=120)
    result = re.search(r'<pre id="found">(.*?)</pre>', done.stdout)
    assert result is not None, done.stderr
    return Seen(json.loads(unescape(result[1])), [line for line in done.stderr.splitlines() if "CONSOLE" in line])


@pytest.fixture(scope="module", params=[1280, 500])
def seen(written: Written, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return look(written.out / "report.html", request.param, tmp_path_factory.mktemp("browser"))


def test_the_console_is_silent(seen: Seen) -> None:
    assert seen.console == []


def test_every_plot_is_seen_and_inside_the_screen(seen: Seen, written: Written) -> None:
    assert len(seen.found["images"]) == len(written.report.sections[0].plots)
    assert all(image == {"drawn": True, "seen": True, "inside": True} for image in seen.found["images"])


def test_the_page_is_no_wider_than_the_screen(seen: Seen) -> None:
    assert seen.found["width"] <= seen.found["room"]
    assert seen.found["tables"]
    assert all(seen.found["tables"])


def test_links_lead_to_their_targets(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "one")
    make_run(tmp_path / "runs" / "other", {"clients.count": 5})
    write_report([tmp_path / "runs"], tmp_path / "out")
    seen = look(tmp_path / "out" / "report.html", 1280, tmp_path)
    assert [link["hash"] for link in seen.found["links"]] == ["#setting-1", "#setting-2"]
    assert all(link["there"] for link in seen.found["links"])


def test_a_faulty_page_is_noticed(tmp_path: Path) -> None:
    """The script sees what is there: an error on the console, a picture that is none, a dead link, a wide page."""
    page = tmp_path / "faulty.html"
    faults = '<script>undefined.x</script><img src="data:image/svg+xml;base64,AA=="><div style="width: 3000px">x</div>'
    page.write_text(f"<!DOCTYPE html><html><head></head><body>{faults}<a href='#nowhere'>link</a></body></html>")
    seen = look(page, 1280, tmp_path)
    assert len(seen.console) == 1
    assert seen.found["images"][0]["drawn"] is False
    assert seen.found["links"] == [{"hash": "#nowhere", "there": False}]
    assert seen.found["width"] > seen.found["room"]
