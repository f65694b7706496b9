"""The lines of a table in Markdown."""

from __future__ import annotations

from collections.abc import Iterator


def head(*headings: str) -> Iterator[str]:
    """Yield the line of headings, and the line below it."""
    yield line(*headings)
    yield "|" + "---|" * len(headings)


def line(*cells: str) -> str:
    """Return the line of some cells."""
    return f"| {' | '.join(cells)} |"
