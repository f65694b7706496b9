"""Text between two marks of a page, which a tool writes anew."""

from __future__ import annotations


def put_between(page: str, opens: str, closes: str, text: str) -> str:
    """Return the page with this text in place of what is between the marks."""
    before, _, rest = page.partition(opens)
    return f"{before}{opens}\n\n{text}\n\n{closes}{rest.partition(closes)[2]}"
