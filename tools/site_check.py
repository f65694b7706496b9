"""Is the built site whole, and does it load nothing from elsewhere? Exit status 1 and a line for each fault if not.

    python tools/site_check.py [FOLDER]

Where there is a Chromium, some pages are opened in it, on a phone's, a tablet's and a desk's width, light and dark.
Questions are typed into the site's search. Where axe-core is installed too, it looks for what some readers cannot see,
read or reach in the pages.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from html import unescape
from html.parser import HTMLParser
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import site_search

import raysim
import raysim.api

LOADS = {**dict.fromkeys(("script", "img", "iframe", "source", "video", "audio"), "src"), "link": "href"}
ELSEWHERE = re.compile(r"(?:\w+:)?//")
IN_STYLES = re.compile(r"""(?:@import\s+["']?|url\(\s*["']?)((?:https?:)?//[^"')\s]+)""")
# in a script w3.org's are names of namespaces, and one with a place for a name ($) asks a forge about a repository
IN_SCRIPTS = re.compile(r"""["'`](https?://(?!www\.w3\.org/)[^"'`\s$]+)["'`]""")
METHODS_OWN = [name for name in raysim.api.__all__ if name not in raysim.__all__]
DOCUMENTED = [*(f"raysim.{name}" for name in raysim.__all__), *(f"raysim.api.{name}" for name in METHODS_OWN)]
SEEN = (
    *("index.html", "choose.html", "metrics.html", "gallery.html", "scenarios.html", "methods/index.html"),
    *("config.html", "api.html", "leaderboard.html"),
    *("coming_from.html", "methods/icarl.html"),  # a wide table, and wide formulas
)
WIDTHS = (400, 800, 1400)  # a phone's, a tablet's, a desk's
SCHEMES = ("light", "dark")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--disable-dev-shm-usage"),
    *("--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--virtual-time-budget=20000",
]
TYPING = "--virtual-time-budget=120000"  # the last value of an option counts
LOOK = r"""<script>
const faults = [];
addEventListener("error", (event) => faults.push(event.message || "not loaded: " + event.target.outerHTML), true);
addEventListener("load", () => setTimeout(async () => {
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) faults.push("it is wider than the screen by " + wide + " pixels");
  for (const image of document.images) if (!image.naturalWidth) faults.push("not drawn: " + image.outerHTML);
  for (const { name } of performance.getEntriesByType("resource"))
    if (!name.startsWith("file:") && !name.startsWith("data:")) faults.push("loaded from elsewhere: " + name);
  const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/[\d.]+/g).map(Number);
  const scheme = red + green + blue > 384 ? "light" : "dark";
  MORE
  parent.postMessage({ page: PAGE, width: innerWidth, scheme, faults }, "*");
}, 2000));
</script>"""
LOAD_AXE = """
  const script = Object.assign(document.createElement("script"), { src: "ADDRESS" });
  await new Promise((loaded) => { script.onload = loaded; document.head.append(script); });
"""
ASK_AXE = r"""
  for (const { id, impact, nodes } of (await axe.run(document, { resultTypes: ["violations"] })).violations)
    if (impact === "serious" || impact === "critical")
      faults.push(`axe-core: ${impact}: ${id}, ${nodes.length} times, first ${nodes[0].target}: `
        + nodes[0].failureSummary.split("\n").slice(1).map((line) => line.trim()).join("; "));
"""
COLLECT = """<!DOCTYPE html><meta name="color-scheme" content="SCHEME"><pre id="found"></pre><script>
const found = [];
addEventListener("message", ({ data }) => {
  found.push(data);
  document.getElementById("found").textContent = JSON.stringify(found);
});
</script>"""


def _find_axe() -> Path | None:
    """Return axe-core's script, which a package for another browser driver carries, without importing the package."""
    package = find_spec("axe_playwright_python")
    return Path(package.origin).with_name("axe.min.js") if package and package.origin else None


AXE = _find_axe()
ACCESSIBLE = f"if (innerWidth !== {WIDTHS[1]}) {{{LOAD_AXE.replace('ADDRESS', AXE.as_uri())}{ASK_AXE}}}" if AXE else ""
"""For `look`: what axe-core finds serious or critical on a phone and a desk. Empty where axe-core is not installed."""
WITHOUT_AXE = "no axe-core to look for what some readers cannot read or reach: pip install axe-playwright-python"


class _Page(HTMLParser):
    """What a page loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag loads, and its name."""
        given = dict(attrs)
        self.anchors.add(given.get("id") or "")
        self.loads += [given.get(LOADS.get(tag, "")) or "", *(given.get("srcset") or "").split(",")]
        self.loads += IN_STYLES.findall(given.get("style") or "")


def find_faults(site: Path) -> Iterator[str]:
    """Yield what the site's files load from elsewhere, and which public names the API page does not have."""
    for path in sorted(site.rglob("*")):
        if path.suffix not in (".html", ".css", ".js"):
            continue
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            found = [load for load in _Page(text).loads if ELSEWHERE.match(load.strip())]
        else:
            found = (IN_STYLES if path.suffix == ".css" else IN_SCRIPTS).findall(text)
        yield from (f"{path.relative_to(site)}: it loads {load}" for load in found)
    there = _Page((site / "api.html").read_text(encoding="utf-8")).anchors
    yield from (f"api.html: {name} is missing" for name in DOCUMENTED if name not in there)


def look(site: Path, pages: Sequence[str] = SEEN, more: str = "") -> Iterator[str]:
    """Yield what is wrong with pages in a browser, at every width, light and dark.

    `more` is script that adds to the list `faults` what else is wrong with a page; it may wait for something.
    """
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made) / "site"
        shutil.copytree(site, copy)
        frames = ""
        for page in pages:
            whole = (copy / page).read_text(encoding="utf-8")
            script = LOOK.replace("PAGE", json.dumps(page)).replace("MORE", more)
            (copy / page).write_text(whole.replace("<head>", "<head>" + script, 1))
            frames += "".join(f'<iframe src="site/{page}" width="{width}" height="900"></iframe>' for width in WIDTHS)
        for scheme in SCHEMES:  # frames have the scheme of the page around them
            around = Path(made) / f"{scheme}.html"
            around.write_text(COLLECT.replace("SCHEME", scheme) + frames)
            command = [str(BROWSER), *QUIET, f"--user-data-dir={made}/{scheme}", "--dump-dom", around.as_uri()]
            shown = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True).stdout
            found = json.loads(unescape(shown.partition('<pre id="found">')[2].partition("</pre>")[0]) or "[]")
            seen = {(one["page"], one["width"]) for one in found}
            for page, width in product(pages, WIDTHS):
                if (page, width) not in seen:
                    yield f"{page}, {width} pixels, {scheme}: it was not drawn"
            for one in found:
                wrong = [*one["faults"], *([f"it is {one['scheme']}"] if one["scheme"] != scheme else [])]
                yield from (f"{one['page']}, {one['width']} pixels, {scheme}: {fault}" for fault in wrong)


def ask(site: Path) -> Iterator[str]:
    """Yield the questions that the site's search does not answer, if they are too many, and where it breaks down."""
    wanted = site_search.read_questions()
    found = site_search.search(site, [*wanted, *site_search.LETTERS], [str(BROWSER), *QUIET, TYPING])
    yield from (f"the search finds nothing for {letter!r}" for letter in site_search.LETTERS if not found.get(letter))
    misses = [*site_search.find_misses(wanted, found)]
    print(f"search: {len(wanted) - len(misses)} of {len(wanted)} questions find their page", *misses, sep="\n  ")
    if len(misses) > site_search.MAY_MISS:
        yield f"the search misses the pages of {len(misses)} questions, allowed: {site_search.MAY_MISS}"


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "site")
    faults = [*find_faults(folder), *((*look(folder, more=ACCESSIBLE), *ask(folder)) if BROWSER else ())]
    print(*faults, sep="\n", file=sys.stderr)
    missing = [] if BROWSER else ["no Chromium to look at its pages with"]
    missing += [] if AXE else [WITHOUT_AXE]
    print("; ".join([f"{folder}: {len(faults)} faults", *missing]))
    sys.exit(bool(faults))
