"""Parse command lines, with one-line errors."""

import argparse
from typing import NoReturn

from raysim.system.errors import ConfigError


class ArgumentParser(argparse.ArgumentParser):
    """The argument parser of a raysim command.

    Args:
        command: the command's name.
        description: the command's description.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"raysim {command}", description=description, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError for a wrong command line."""
        raise ConfigError(f"{self.prog}: {message}; see {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise HelpShown."""
        raise HelpShown


class HelpShown(Exception):
    """--help was requested and printed."""


def parse_count(text: str) -> int:
    """Return a whole number >= 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"found '{text}', allowed: a whole number >= 1")
    return int(text)
