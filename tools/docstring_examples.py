"""Docstrings' examples as code blocks in the site's pages. Griffe loads this (mkdocs.yml: extensions)."""

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class DocstringExamples(Extension):
    """Puts each example into a code block. Markdown would take `>>>` for quotes in quotes."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)


def fence(docstring: str) -> str:
    """Return the docstring with its examples in code blocks. An example ends at an empty line."""
    return EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", docstring)
