"""`raysim configs` and `raysim new`: the configs that raysim comes with."""

from collections.abc import Sequence
from pathlib import Path

from raysim.system.arguments import ArgumentParser
from raysim.system.errors import single_line


def show_configs(given: Sequence[str]) -> int:
    """Print a line for each config."""
    ArgumentParser("configs", "List the configs and sweeps that raysim comes with.").parse_args(given)
    from raysim.config.bundled import list_configs

    print(*map(single_line, list_configs()), sep="\n")
    return 0


def make_config(given: Sequence[str]) -> int:
    """Copy a config to a new file."""
    parser = ArgumentParser("new", "Write a config of one's own that starts as a copy of another.")
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to write, which must not exist")
    words = "a config's name (`raysim configs` lists them) or path; by default the quickstart"
    parser.add_argument("--from", dest="source", metavar="CONFIG", default="quickstart", help=words)
    asked = parser.parse_args(given)
    from raysim.config.bundled import copy_config

    copy_config(asked.source, asked.file)
    print(single_line(f"{asked.file} is a copy of {asked.source}"))
    return 0
