"""The table of methods in docs/methods/README.md, by the groups of `raysim.algorithms`. `make docs` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from marked_text import put_between

from raysim.algorithms import GROUPS
from raysim.config.reference import describe_component

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "methods" / "README.md"
OPENS, CLOSES = "<!-- methods, written by make docs -->", "<!-- end of methods -->"


def render_methods() -> str:
    """Return a heading and a table for each group."""
    return "\n\n".join(f"### {group}\n\n{table}" for group, table in _tables())


def _tables() -> Iterator[tuple[str, str]]:
    for group, names in GROUPS.items():
        yield group, "\n".join(["| method | what it does |", "|---|---|", *map(_row, names)])


def _row(name: str) -> str:
    """Return a method's row: its name in a config, and the first line of its class after the colon."""
    title, _, summary = describe_component("methods", name).partition(": ")
    return f"| [`{name}`]({name}.md) | {title}: {summary} |"


def insert_methods(page: str) -> str:
    """Return the page with its present tables between the marks."""
    return put_between(page, OPENS, CLOSES, render_methods())


if __name__ == "__main__":
    PAGE.write_text(insert_methods(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
