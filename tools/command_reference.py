"""The commands and their options in docs/command_line.md, from the parsers. `make docs` writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from marked_text import put_between

from raysim.command_line import COMMANDS, GROUPS

PAGE = Path(__file__).parents[1] / "docs" / "command_line.md"
OPENS, CLOSES = "<!-- commands, written by make docs -->", "<!-- end of commands -->"
COLUMNS = 100  # the width of the help's lines


def render_commands() -> str:
    """Return a section for each command: its summary, and its help as a terminal shows it."""
    with mock.patch.dict(os.environ, {"COLUMNS": str(COLUMNS)}):
        return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    for group in GROUPS:
        for name, command in COMMANDS.items():
            if command.group == group:
                summary = command.summary[:1].upper() + command.summary[1:]
                yield f"### raysim {name}\n\n{summary}.\n\n```text\n{_help(name)}```"


def _help(name: str) -> str:
    """Return a command's help without its summary."""
    usage, _, arguments = COMMANDS[name].parser(name).format_help().split("\n\n", 2)
    return f"{usage}\n\n{arguments}"


def insert_commands(page: str) -> str:
    """Return the page with the present commands between the marks."""
    return put_between(page, OPENS, CLOSES, render_commands())


if __name__ == "__main__":
    PAGE.write_text(insert_commands(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
