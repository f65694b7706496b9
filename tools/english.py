"""Check the project's English: phrases that readers had to decode, and sentences that are too long.

    python tools/english.py

tools/english.txt has the phrases.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHRASES = ROOT / "tools" / "english.txt"
MOST_WORDS = 25
PAGES = ("*.md", "docs/**/*.md")
CODE = ("raysim/**/*.py", "tools/**/*.py", "benchmarks/*.py", "examples/**/*.py")
NOT_PROSE = re.compile(
    r"^ *(?:```|~~~).*?^ *(?:```|~~~)|^(?: {4,}|\t|>>> |\.\.\. ).*?$|^ *\|.*?$|^#+ .*?$|<[^>]+>",
    re.DOTALL | re.MULTILINE,
)
SPAN = re.compile(r"`[^`]*`|\$[^$\n]+\$")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) )")
SENTENCE = re.compile(r"(?<=[.!?:])\s+(?=[\"'(*A-Z`])")
SECTION = re.compile(r"(?:Args|Attributes|Raises|Returns|Yields):\n")  # of a docstring, with a field on each line
FIELD = re.compile(r"\n(?= {4}\S)")
WORD = re.compile(r"[\w'’/%.-]*\w[\w'’%.-]*")


def read_phrases() -> dict[str, str]:
    """Return what to write instead of each phrase."""
    lines = [line for line in PHRASES.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    phrases = {}
    for line in lines:
        phrase, plain = line.split(" -> ", 1)
        phrases[phrase] = plain
    return phrases


def prose_of(path: Path) -> Iterator[str]:
    """Yield the blocks of prose in a Markdown page, or the docstrings of a Python file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from BLOCK.split(NOT_PROSE.sub("", text))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for block in BLOCK.split(ast.get_docstring(node) or ""):
                yield from FIELD.split(block) if SECTION.match(block) else (NOT_PROSE.sub("", block),)


def find_faults(block: str, phrases: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong in a block of prose."""
    plain = " ".join(SPAN.sub("`code`", LINK.sub(r"\1", block)).split())
    for phrase, instead in phrases.items():
        for _ in re.finditer(rf"\b{re.escape(phrase)}\b", plain, re.IGNORECASE):
            yield f"'{phrase}': write {instead}"
    for sentence in SENTENCE.split(plain):
        words = len(WORD.findall(sentence))
        if words > MOST_WORDS:
            yield f"{words} words, at most {MOST_WORDS}: {sentence[:70]}..."


def find_in_files() -> dict[str, list[str]]:
    """Return the findings by file."""
    phrases = read_phrases()
    files = sorted({path for pattern in (*PAGES, *CODE) for path in ROOT.glob(pattern)})
    found = {}
    for path in files:
        if path.name != "config.md":  # generated from the schema
            found[path.relative_to(ROOT).as_posix()] = [
                fault for block in prose_of(path) for fault in find_faults(block, phrases)
            ]
    return found


def main() -> int:
    """Print the findings, and return the exit status."""
    found = {path: faults for path, faults in find_in_files().items() if faults}
    for path, faults in found.items():
        print(f"{path}:", *faults, sep="\n    ")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
