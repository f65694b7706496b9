"""The commands, their arguments and their help, without what they do."""

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TextIO

from raysim.system.errors import ConfigError, single_line
from raysim.system.output import has_terminal, paint, wrap_words

CONFIG = "a YAML file, or a name that `raysim configs` lists"
OVERRIDE = "a dotted key and its value in YAML, such as training.optimizer.lr=0.1"
TRUST = "import custom components that the run's config.yaml names; this executes their code"
JSON = "print one JSON document instead of text"
GROUPS = ("Run", "Look", "Start")
SHELLS = ("bash", "zsh", "fish")
ABOUT = "simulate continual federated learning on Ray"
NOTES = (
    "CONFIG is a YAML file or a name that `raysim configs` lists, such as quickstart.",
    "KEY=VALUE changes a key of it: training.optimizer.lr=0.1, 'methods={fedprox: {mu: 0.1}}'.",
    "`raysim help COMMAND` explains a command. `raysim --version` prints the version.",
)


class HelpShown(Exception):
    """--help was requested and printed."""


class ArgumentParser(argparse.ArgumentParser):
    """The argument parser of a raysim command.

    Args:
        command: the command's name.
        description: the command's description.
    """

    def __init__(self, command: str, description: str) -> None:
        super().__init__(prog=f"raysim {command}", description=description, allow_abbrev=False)

    def add_config(self, **more: Any) -> None:
        """Add CONFIG and KEY=VALUE."""
        self.add_argument("config", metavar="CONFIG", **{"help": CONFIG, **more})
        self.add_overrides(OVERRIDE)

    def add_overrides(self, words: str) -> None:
        """Add KEY=VALUE. Without a default, argparse would name it among the required arguments."""
        self.add_argument("overrides", metavar="KEY=VALUE", nargs="*", default=[], help=words)

    def print_help(self, file: Any = None) -> None:
        """Print the help, with colored headings and options on a terminal."""
        stream = sys.stdout if file is None else file
        text = re.sub(r"^\w[\w ]*:", lambda found: paint(found[0], "bold", stream), self.format_help(), flags=re.M)
        text = re.sub(r"(?<=^  )-\S.*?(?=  |$)", lambda found: paint(found[0], "cyan", stream), text, flags=re.M)
        print(text, end="", file=stream)

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError for a wrong command line."""
        near = ""
        if unknown := re.match(r"unrecognized arguments: (--[\w.-]+)(?:[= ](\S+))?", message):
            near = self._meant(unknown[1], unknown[2] or "VALUE")
        raise ConfigError(f"{self.prog}: {message}{near or ';'} see {self.prog} --help")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise HelpShown."""
        raise HelpShown

    def _meant(self, option: str, value: str) -> str:
        """Return the suggestion for an unknown option: another one, or KEY=VALUE."""
        from raysim.config.brought_names import KEYS, NONE_NEEDED
        from raysim.config.error_text import either, find_brought, find_nearest, find_slip, quote_meant
        from raysim.config.schema import Config

        key = option.removeprefix("--").replace("-", "_")
        if key.partition(".")[0] in Config.model_fields:
            return f"; did you mean '{key}={value}'?"
        known = [known for known in self._option_string_actions if known.startswith("--")]
        slip = find_slip(option, known)
        if not slip and (brought := find_brought(key, KEYS)):
            typed = (meant if "=" in meant else f"{meant}={value}" for meant in brought)
            return f"; did you mean {either(map(quote_meant, typed))}?"
        if not slip and key in NONE_NEEDED:
            return f"; {NONE_NEEDED[key]};"
        near = slip or find_nearest(option, known)
        return f"; did you mean '{near}'?" if near else ""


@dataclass(frozen=True)
class Command:
    """A command's place in the help, its one-line summary and its arguments."""

    group: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]

    def parser(self, name: str) -> ArgumentParser:
        """Return the parser of its arguments."""
        parser = ArgumentParser(name, self.summary[:1].upper() + self.summary[1:] + ".")
        self.add_arguments(parser)
        return parser


def _run(parser: ArgumentParser) -> None:
    parser.add_config(nargs="?", help=f"{CONFIG}; with --resume, DIR's own")
    parser.add_argument("--out", metavar="DIR", help="a new or empty directory (runs/NAME/seed-SEED/DATE-TIME-LABEL)")
    parser.add_argument("--local", action="store_true", help="run every client in this process, without Ray")
    parser.add_argument("--resume", action="store_true", help="resume from DIR's newest checkpoint")
    parser.add_argument("--quiet", action="store_true", help="show nothing")
    parser.add_argument("--live", action="store_true", help="also serve a page that follows the run; see raysim live")
    parser.add_argument("--profile", action="store_true", help="print the seconds that each hook and part takes")
    parser.add_argument("--trust", action="store_true", help=TRUST)


def _check(parser: ArgumentParser) -> None:
    parser.add_config(nargs="?", help=f"{CONFIG}; --schema needs none")
    words = "also check the software, the memory and the free space of each node at resources.address"
    parser.add_argument("--cluster", action="store_true", help=words)
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of all configs instead")
    parser.add_argument("--json", action="store_true", help=JSON)


def _list(parser: ArgumentParser) -> None:
    parser.add_argument("kind", metavar="KIND", nargs="?", help="methods, datasets, ...; without it, all kinds")
    parser.add_argument("name", metavar="NAME", nargs="?", help="a name, or package.module:name: print its keys")
    parser.add_argument("--json", action="store_true", help=JSON)


def _sweep(parser: ArgumentParser) -> None:
    parser.add_config()
    parser.add_argument("--out", metavar="DIR", help="the sweep's directory (runs/NAME)")
    parser.add_argument(
        "--jobs", metavar="N", type=parse_count, help="the most runs at a time (as many as there are CPUs)"
    )
    parser.add_argument("--local", action="store_true", help="one run after the other in this process, without Ray")
    parser.add_argument("--list", action="store_true", help="list the runs and their progress; start nothing")
    parser.add_argument("--quiet", action="store_true", help="show nothing")


def _reproduce(parser: ArgumentParser) -> None:
    words = "a paper's name; without it, all papers are listed"
    parser.add_argument("paper", metavar="PAPER", nargs="?", help=words)
    words = "a row's number or name, or a setting; without it, all rows are listed"
    parser.add_argument("row", metavar="ROW", nargs="?", help=words)
    parser.add_overrides(f"{OVERRIDE}, for all runs")
    parser.add_argument("--hours", metavar="H", type=float, help="run the rows that fit, the shortest first")
    parser.add_argument("--list", action="store_true", help="list the rows that ROW names, with all metrics; run none")
    parser.add_argument("--quick", action="store_true", help="list without hours; their estimates take minutes")
    parser.add_argument("--seeds", metavar="N", type=parse_count, help="run only the first N seeds (all)")
    parser.add_argument("--out", metavar="DIR", help="the folder of the rows' directories (runs/reproduce/PAPER)")
    words = "the most runs at a time (as many as there are CPUs)"
    parser.add_argument("--jobs", metavar="N", type=parse_count, help=words)
    parser.add_argument("--local", action="store_true", help="one run after the other in this process, without Ray")
    parser.add_argument("--quiet", action="store_true", help="show nothing but the comparison")


def _live(parser: ArgumentParser) -> None:
    words = "the directory of a run or of a sweep, or any folder with runs below it"
    parser.add_argument("directory", metavar="RUN_OR_SWEEP", type=Path, help=words)
    words = "the port on this machine's loopback (8090, or a free one if that is taken)"
    parser.add_argument("--port", metavar="N", type=int, help=words)


def _report(parser: ArgumentParser) -> None:
    parser.add_argument("directories", metavar="DIR", nargs="+", help="a directory with runs below it, or a run's own")
    parser.add_argument("--out", metavar="DIR", help="where the report's files go (the first DIR)")
    parser.add_argument("--against", metavar="PAPER", help="compare with the published figures of a paper")
    also, pair = "also compare two rows of the tables, by their names; repeatable", ("ROW", "OTHER")
    parser.add_argument("--compare", nargs=2, action="append", default=[], metavar=pair, help=also)
    parser.add_argument("--json", action="store_true", help=JSON)


def _evaluate(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the run's directory")
    parser.add_overrides("a key of dataset, scenario, objective or evaluation")
    parser.add_argument("--out", metavar="FILE", type=Path, help="also write the accuracies as JSON, to a new file")
    parser.add_argument("--trust", action="store_true", help=TRUST)


def _show(parser: ArgumentParser) -> None:
    parser.add_config()
    words = "the picture's file, FILE.svg (NAME-stream.svg in the current folder)"
    parser.add_argument("--output", "--out", dest="out", metavar="FILE", type=Path, help=words)


def _new(parser: ArgumentParser) -> None:
    words = "the file to write, NAME.yaml, which must not exist"
    parser.add_argument("file", metavar="FILE", type=Path, help=words)
    words = "a config's name (`raysim configs` lists them) or path; by default the quickstart"
    parser.add_argument("--from", dest="source", metavar="CONFIG", default="quickstart", help=words)


def _completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


COMMANDS: Mapping[str, Command] = {
    "run": Command("Run", "run a config, or resume a run", _run),
    "sweep": Command("Run", "run a grid of runs, without those that are done", _sweep),
    "reproduce": Command("Run", "list the rows of papers' tables, and run them next to the paper's values", _reproduce),
    "check": Command("Run", "validate a config and estimate its cost; start nothing", _check),
    "download": Command("Run", "download the data that a config needs", ArgumentParser.add_config),
    "evaluate": Command("Run", "evaluate a finished run's model on other data or another split", _evaluate),
    "show": Command("Look", "draw the stream of a config before a run: clients, tasks, rounds; start nothing", _show),
    "report": Command("Look", "write tables, plots and a page over the finished runs below directories", _report),
    "live": Command("Look", "serve a page that follows a run or a sweep while it runs, and replays it", _live),
    "list": Command("Look", "list what a config can name, such as methods, datasets and models", _list),
    "configs": Command("Look", "list the configs and sweeps that raysim comes with", lambda parser: None),
    "new": Command("Start", "write your own config, a copy of another", _new),
    "skill": Command(
        "Start", "print how to use raysim, on one page, for coding agents and people", lambda parser: None
    ),
    "completion": Command("Start", "print the script by which a shell completes raysim's commands", _completion),
}


def parse_count(text: str) -> int:
    """Return a whole number >= 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"found '{text}', allowed: a whole number >= 1")
    return int(text)


def fit_lines(lines: Iterable[str], stream: TextIO) -> Iterator[str]:
    """Yield lines of two columns; on a terminal, wrapped to its width below the second column."""
    width = shutil.get_terminal_size().columns
    for line in map(single_line, lines):
        if has_terminal(stream) and len(line) > width:
            indent = len(line) - len(re.sub(r"^ *\S+(\s\S+)? +", "", line))
            yield from wrap_words(line, width, indent)
        else:
            yield line


def find_command(name: str) -> Command:
    """Return the command of this name. Raises ConfigError."""
    if name not in COMMANDS:
        from raysim.config import brought_names
        from raysim.config.error_text import describe_unknown, find_brought

        meant = find_brought(name, brought_names.COMMANDS)
        raise ConfigError(f"raysim: {describe_unknown('command', name, COMMANDS, meant=meant, all_in='raysim --help')}")
    return COMMANDS[name]


def describe_commands() -> Iterator[str]:
    """Yield the lines of `raysim --help`, as wide as the terminal."""
    width = shutil.get_terminal_size().columns

    column = max(map(len, COMMANDS)) + 4
    yield from wrap_words(f"usage: raysim COMMAND ...   ({ABOUT})", width)
    for group in GROUPS:
        yield from ("", paint(group, "bold", sys.stdout))
        for name, command in COMMANDS.items():
            if command.group == group:
                first, *others = wrap_words(f"  {name:<{column - 2}}{command.summary}", width, column)
                yield first.replace(name, paint(name, "cyan", sys.stdout), 1)
                yield from others
    yield ""
    for note in NOTES:
        yield from wrap_words(note, width, 2)
