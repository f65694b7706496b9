"""The reference of commands in docs/command_line.md."""

import command_reference
import pytest


def test_the_page_is_what_the_parsers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")  # the page has its own width
    page = command_reference.PAGE.read_text(encoding="utf-8")
    assert page == command_reference.insert_commands(page), "run `make docs`"


def test_each_command_has_its_usage_and_its_options() -> None:
    text = command_reference.render_commands()
    assert text.index("### raysim run\n") < text.index("### raysim report\n") < text.index("### raysim new\n")
    section = text.partition("### raysim evaluate\n")[2].partition("###")[0]
    assert section.startswith(
        "\nEvaluate a finished run's model on other data or another split.\n\n```text\nusage: raysim "
    )
    assert section.count("finished run's model") == 1
    assert "--out FILE" in section
    assert section.endswith("```\n\n")
