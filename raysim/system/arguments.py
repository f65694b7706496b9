"""Command lines taken apart, what is wrong with them in one line."""

import argparse
from typing import NoReturn

from raysim.system.errors import ConfigError


class ArgumentParser(argparse.ArgumentParser):
    """The arguments of one of raysim's commands.

    Args:
        command: its name.
        description: what it does.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"raysim {command}", description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError: the command line is wrong."""
        raise ConfigError(f"{self.prog}: {message}; see {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise HelpShown."""
        raise HelpShown


class HelpShown(Exception):
    """--help was asked for, and printed."""


def parse_count(text: str) -> int:
    """Return a whole number >= 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"found '{text}', allowed: a whole number >= 1")
    return int(text)
