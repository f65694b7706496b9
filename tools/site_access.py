"""What the theme leaves out for readers with a screen reader, a keyboard or a phone, put into the site's pages.

MkDocs calls the functions with names that begin with on_ (mkdocs.yml: hooks). docs/assets/site.css and
docs/assets/scrollable.js have the rest. tools/site_check.py asks axe-core about the result.
"""

from __future__ import annotations

import re
from typing import Any

DIALOG = 'role="dialog"'
# the tables that tools/config_reference.py writes
STACKED = re.compile(r"<table>\n<thead>\n<tr>\n<th>(key|method)</th>\n<th>what it is</th>.*?</table>", re.DOTALL)
WITHOUT_NAVIGATION = ("index.md",)  # the only page of its section: the column beside it would be empty


def on_page_markdown(markdown: str, page: Any, **context: Any) -> str:
    """Take the empty column of navigation from the home page."""
    if page.file.src_uri in WITHOUT_NAVIGATION:
        page.meta["hide"] = ["navigation"]
    return markdown


def on_page_content(html: str, **context: Any) -> str:
    """Mark the tables of a reference for the phone, which stacks their rows. Make a header without text a cell."""
    marked = STACKED.sub(lambda table: f'<div class="stacked of-{table[1]}s">{table[0]}</div>', html)
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", marked)


def on_post_page(output: str, **context: Any) -> str:
    """Name the dialog of the search."""
    return output.replace(DIALOG, f'{DIALOG} aria-label="Search"')
