"""The site shows the examples of docstrings as code."""

import pytest

examples = pytest.importorskip("docstring_examples", reason="no griffe: pip install '.[docs]'")


def test_an_example_ends_at_an_empty_line_and_text_stays() -> None:
    text = "Return 2.\n\n>>> for one in [2]:\n...     one\n2\n\nThen >>> stays."
    code = "```pycon\n>>> for one in [2]:\n...     one\n2\n```"
    assert examples.fence(text) == f"Return 2.\n\n{code}\n\nThen >>> stays."
    assert examples.fence("no example") == "no example"
