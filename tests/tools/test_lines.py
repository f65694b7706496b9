"""Lines of code, counted by hand."""

from collections import Counter

import pytest
from lines import by_folder, code_lines, formatted, main, table

# a line of code has its number in a comment; a string that is a value counts with all of its lines, the empty one too
COMMENTED = '''"""A module.

Its docstring has four lines.
"""

import os  # 1


# a comment
class Kind:  # 2
    """A docstring."""

    size = 3  # 3
    """What stands below an attribute."""

    def long(  # 4
        self,  # 5
        # none of its own
        word,  # 6
    ):  # 7
        "A docstring " "in two parts."
        text = """8

        10"""
        return text, f"{word}", "no docstring"  # 11


async def last(): ...  # 12
'''


def test_blank_lines_comments_and_docstrings_are_no_code() -> None:
    assert code_lines(COMMENTED) == 12


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("", 0),
        ('"""Only this."""\n', 0),
        ("# only this\n\n\n", 0),
        ("x = 1", 1),
        ('x = """\n"""\n', 2),
        ("x = (\n    1,\n\n    # two\n    2,\n)\n", 4),  # x = (, 1, and 2, and the bracket
        ('call("""\nno docstring\n""")\n', 3),
        ("x = 1 + \\\n    2\n", 2),
        ('def f():\n    """Says."""\n', 1),
        ('def f():\n    b"""bytes are no docstring"""\n', 2),
    ],
)
def test_small_sources(source: str, count: int) -> None:
    assert code_lines(source) == count


def test_squeezed_or_stretched_it_is_as_many() -> None:
    """Three statements and an if: 4 lines, however they are written."""
    squeezed = "x=1;y=2\nif x: z=3\n"
    stretched = "x = (\n    1\n)\ny = \\\n    2\nif x:\n\n    z = 3\n"
    assert [code_lines(formatted(source, "a.py")) for source in (squeezed, stretched)] == [4, 4]


def test_a_folder_has_its_own_files_only() -> None:
    assert by_folder({"a/x.py": 2, "a/y.py": 3, "a/b/z.py": 4}) == {"a/": 5, "a/b/": 4}


def test_before_and_after() -> None:
    """What is gone and what is new has nothing on the other side."""
    rows = [line.split() for line in table([Counter(gone=2, kept=1000), Counter(kept=1001, new=5)])]
    assert rows == [
        ["2", "0", "-2", "gone"],
        ["1,000", "1,001", "+1", "kept"],
        ["0", "5", "+5", "new"],
        ["1,002", "1,006", "+4", "in", "all"],
    ]


def test_what_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nowhere"]) == 2
    assert "nowhere: found no Python files" in capsys.readouterr().err
