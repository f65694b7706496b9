"""The check of the project's English: what it finds in prose."""

from pathlib import Path

import english
import pytest

PHRASES = {"beside": "besides", "so many": "n"}
LONG = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
LONG += "eighteen nineteen twenty more words than are allowed here."


@pytest.mark.parametrize(
    ("block", "found"),
    [
        ("A client sends its update.", []),
        ("The server stands beside it.", ["'beside': write besides"]),
        ("Besides, `beside` is code.", []),
        (f"Short. {LONG} Short.", ["26 words"]),
        ("See [so many](page.md) of them.", ["'so many': write n"]),
    ],
)
def test_what_is_found_in_a_block(block, found):
    faults = [*english.find_faults(block, PHRASES)]
    assert len(faults) == len(found)
    assert all(fault.startswith(start) for fault, start in zip(faults, found, strict=True))


def test_code_tables_and_headings_are_no_prose(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# beside\n\nA text.\n\n```\nbeside\n```\n\n    beside\n\n| beside |\n|---|\n\n- an item\n")
    assert "beside" not in " ".join(english.prose_of(page))


def test_docstrings_are_prose(tmp_path):
    code = tmp_path / "code.py"
    code.write_text(
        '"""A module."""\n\ndef f():\n    """A function.\n\n    Args:\n        x: beside.\n    """\n    "beside"\n'
    )
    assert [block.strip() for block in english.prose_of(code)] == ["A module.", "A function.", "Args:", "x: beside."]


def test_each_field_of_a_docstring_is_a_block_of_its_own(tmp_path):
    """One sentence of 30 words in a field is found, and two fields of 15 words each are not one of 30."""
    field = "x: " + " ".join(["word"] * 14)
    code = tmp_path / "code.py"
    code.write_text(f'"""A module.\n\nAttributes:\n    {field}\n    {field}\n        {field}\n"""\n')
    assert [len([*english.find_faults(block, {})]) for block in english.prose_of(code)] == [0, 0, 0, 1]


def test_indented_lines_and_examples_of_a_docstring_are_code(tmp_path):
    code = tmp_path / "code.py"
    code.write_text('"""A module.\n\n    beside = 1\n\n>>> beside\n... beside\n\nThe end.\n"""\n')
    assert "".join(english.prose_of(code)).split() == ["A", "module.", "The", "end."]


@pytest.mark.parametrize(("words", "status"), [("besides", 0), ("beside", 1)])
def test_a_finding_fails_the_check(
    words: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("english.txt", "beside -> besides\n"), ("page.md", f"It is {words} it.\n")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(english, "ROOT", tmp_path)
    monkeypatch.setattr(english, "PHRASES", tmp_path / "english.txt")
    assert english.main() == status
    assert capsys.readouterr().out == ("page.md:\n    'beside': write besides\n" if status else "")
