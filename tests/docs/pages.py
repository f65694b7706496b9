"""The pages of the documentation, and what is in them: commands, code, links, headings."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"(?P<mark><!-- not run: [^\n]*-->\n)?^ *```(?P<kind>\w*)\n(?P<text>.*?)^ *```", re.DOTALL | re.MULTILINE
)
INDENTED = re.compile(r"^    (raysim .*)$", re.MULTILINE)
SPAN = re.compile(r"`(raysim [^`]*)`")
STANDS_FOR_MORE = re.compile(r"\b[A-Z]{2,}\b|\.\.\.|^\w+ \w+$")
LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")


def names(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, kind: str) -> list[str]:
    """The fenced blocks of a language, but those below `<!-- not run: why -->`."""
    found = FENCE.finditer(page.read_text(encoding="utf-8"))
    return [block["text"] for block in found if block["kind"] == kind and not block["mark"]]


def commands(page: Path) -> Iterator[list[str]]:
    """Every shell command of a page as its words: in bash blocks, indented lines and spans of code.

    In running text CONFIG, DIR and the like stand for something, "..." for more, and two words only name a command.
    """
    lines = [line for block in blocks(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    lines += INDENTED.findall(prose)
    lines += [span for span in SPAN.findall(prose.replace("\n", " ")) if not STANDS_FOR_MORE.search(span)]
    for line in lines:
        words = shlex.split(line, comments=True)
        if words:
            yield words


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}
