"""The command line: `raysim run`, `check`, `download`, `list`, `sweep`, `report`, `evaluate`, `configs` and `new`."""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from raysim.system.errors import ConfigError, RunError, describe_error, single_line
from raysim.system.importing import uncollected
from raysim.system.output import has_terminal, paint

if TYPE_CHECKING:
    from raysim.actors.session import Session
    from raysim.config import Draft

USAGE = """usage: raysim COMMAND ...

  run CONFIG [KEY=VALUE ...] [--out DIR] [--local] [--quiet]   run a scenario
  run --resume --out DIR [KEY=VALUE ...] [--local] [--quiet]   resume from a run's newest checkpoint
        [--trust]
  check CONFIG [KEY=VALUE ...] [--cluster] [--schema]          validate; say what would start; start nothing
  download CONFIG [KEY=VALUE ...]                              download what is missing of a config's data
  list KIND [NAME]                                             what a config can name: methods, models, ...; NAME's keys
  sweep CONFIG [KEY=VALUE ...] [--out DIR] [--jobs N]          run a grid of runs, without those that are done
        [--local] [--list] [--quiet]
  report DIR ... [--out DIR] [--against PAPER]                 tables and plots over every finished run below the DIRs
  evaluate DIR [KEY=VALUE ...] [--out FILE] [--trust]          a finished run's model on other data, or another split
  configs                                                      list the configs that raysim comes with: their names
  new FILE [--from CONFIG]                                     write your own config, a copy of another

CONFIG is a YAML file's path or a name that `raysim configs` lists
KEY is dotted and VALUE is YAML: training.optimizer.lr=0.1, 'methods={fedprox: {mu: 0.1}}'
raysim COMMAND --help says more; raysim --version the version"""
RAYS_LOG = "ray.log"
CONFIG = "a YAML file, or the name of a config that raysim comes with"
OVERRIDE = "a dotted key and its value, in YAML"
TRUST = "import custom components that the run's config.yaml names; this executes their code"


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0 done, 1 the run failed, 2 wrong input, 130 interrupted."""
    given = list(sys.argv[1:] if argv is None else argv)
    try:
        return _command(given)
    except HelpShown:
        return 0
    except ConfigError as error:
        print(describe_mistake(error), file=sys.stderr)
        return 2
    except RunError as error:
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        print(f"the run failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print(*getattr(interrupt, "__notes__", ()), "interrupted", sep="\n", file=sys.stderr)
        return 130
    except BrokenPipeError:  # raysim list methods | head -1; the interpreter flushes once more at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, SystemExit) as error:  # of custom code, or a bug in raysim
        traceback.print_exception(error)
        print(f"the run failed: {single_line(describe_error(error))}", file=sys.stderr)
        return 1


def describe_mistake(error: ConfigError) -> str:
    """Return an error for standard error: in up to three lines on a terminal, and in one elsewhere."""
    if not has_terminal(sys.stderr):
        return f"error: {error}"
    lines = (line.partition(": ") for line in error.lines())
    styles = {"error": "red", "help": "cyan"}
    return "\n".join(
        paint(f"{label}:", styles[label], sys.stderr) + f" {text}" if label in styles else label + colon + text
        for label, colon, text in lines
    )


def _command(given: list[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if given else 2
    if given[0] == "--version":
        from importlib.metadata import version

        print(f"raysim {version('raysim')}")
        return 0
    if given[0] not in COMMANDS:
        raise ConfigError(f"raysim: found {given[0]!r}, allowed: {', '.join(COMMANDS)}; see raysim --help")
    return COMMANDS[given[0]](given[1:])


def _run(given: Sequence[str]) -> int:
    parser = ArgumentParser("run", "Run a scenario.")
    parser.add_argument("config", metavar="CONFIG", nargs="?", help=f"{CONFIG}; with --resume, DIR's own")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help=OVERRIDE)
    parser.add_argument("--out", metavar="DIR", help="a new or empty directory (runs/NAME/seed-SEED/DATE-TIME-LABEL)")
    parser.add_argument("--local", action="store_true", help="run every client in this process, without Ray")
    parser.add_argument("--resume", action="store_true", help="resume from DIR's newest checkpoint")
    parser.add_argument("--quiet", action="store_true", help="show nothing")
    parser.add_argument("--profile", action="store_true", help="print the seconds that each hook and part takes")
    parser.add_argument("--trust", action="store_true", help=TRUST)
    asked = parser.parse_intermixed_args(given)
    if asked.config is None and not asked.resume:
        parser.error("the following arguments are required: CONFIG")
    if asked.resume and asked.config is not None and "=" in asked.config and not os.path.exists(asked.config):
        asked.config, asked.overrides = None, [asked.config, *asked.overrides]
    asked.overrides += ["logging.profile=true"] * asked.profile
    from raysim.config import read_draft

    source = os.path.join(asked.out or "", "config.yaml") if asked.config is None else asked.config
    draft = None if asked.resume and not os.path.exists(source) else read_draft(source, asked.overrides)
    with _early_session(draft, asked.local) as session:
        with uncollected():
            from raysim.launch.bar import open_run_display
            from raysim.launch.display import result_console, show_result
            from raysim.launch.resuming import resolve_resumed, resume_command
            from raysim.launch.run import run

        if draft is None or asked.resume:
            config = resolve_resumed(asked.out, asked.config, asked.overrides, asked.trust)
        else:
            config = draft.complete()
        with open_run_display(config, asked.quiet) as shown:
            shown.log = RAYS_LOG
            how = {"local": asked.local, "resume": asked.resume, "trust": asked.trust}
            result = run(config, out=asked.out, display=shown, session=session, **how)
    if not asked.quiet:
        show_result(result, result_console(), resume_command(config, result.directory))
        if config.logging.profile:
            from raysim.reports.profile import show_profile

            show_profile(result.directory, result_console())
    return 130 if result.status == "interrupted" else 0


def _early_session(draft: "Draft | None", local: bool) -> "AbstractContextManager[Session | None]":
    """Open the session of the Ray that a run will start, before torch is imported."""
    if draft is None or local:
        return nullcontext()
    from raysim.actors.session import open_early

    return open_early(draft.config.resources)


def _download(given: Sequence[str]) -> int:
    asked = _with_config("download", "Download what is missing of a config's data.").parse_intermixed_args(given)
    from raysim.data.loading import download
    from raysim.launch.bar import show_downloads

    show_downloads(download(asked.config, asked.overrides))
    return 0


def _check(given: Sequence[str]) -> int:
    parser = _with_config("check", "Validate a config, say what would start and what it would cost; start nothing.")
    words = "look at the software, the memory and the free space of each node at resources.address"
    parser.add_argument("--cluster", action="store_true", help=words)
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of all configs instead")
    asked = parser.parse_intermixed_args(given)
    from raysim.config import build_json_schema, load

    config = load(asked.config, asked.overrides)
    if asked.schema:
        import json

        print(json.dumps(build_json_schema(), indent=2))
        return 0
    from raysim.launch.check import estimate_run

    for label, text in estimate_run(config, asked.cluster):
        print(single_line(f"{label:<12} {text}"))
    return 0


def _list(given: Sequence[str]) -> int:
    parser = ArgumentParser("list", "Say what a config can name.")
    parser.add_argument("kind", metavar="KIND", help="methods, datasets, models, partitions, ...")
    parser.add_argument("name", metavar="NAME", nargs="?", help="say which keys this one has, or package.module:name")
    asked = parser.parse_args(given)
    from raysim.config.reference import list_components

    print(*map(single_line, list_components(asked.kind, asked.name)), sep="\n")
    return 0


def _sweep(given: Sequence[str]) -> int:
    parser = _with_config("sweep", "Run a grid of runs; those that are done already are not run again.")
    parser.add_argument("--out", metavar="DIR", help="the sweep's directory (runs/NAME)")
    parser.add_argument(
        "--jobs", metavar="N", type=parse_count, help="the most runs at a time (as many as there are CPUs)"
    )
    parser.add_argument("--local", action="store_true", help="one run after the other in this process, without Ray")
    parser.add_argument("--list", action="store_true", help="say what would be run, and what is done; start nothing")
    parser.add_argument("--quiet", action="store_true", help="show nothing")
    asked = parser.parse_intermixed_args(given)
    from raysim.sweeps.directory import plan_sweep
    from raysim.sweeps.display import describe_outcome, list_runs, open_sweep_display, summarise_outcomes
    from raysim.sweeps.sweep import carry_out

    plan = plan_sweep(asked.config, asked.overrides, asked.out)
    if asked.list:
        print(*list_runs(plan), sep="\n")
        return 0
    with open_sweep_display(plan, asked.quiet) as shown:
        shown.log = RAYS_LOG
        outcomes = carry_out(plan, asked.local, asked.jobs, shown)
    if not asked.quiet:
        print(summarise_outcomes(outcomes, plan))
        print(f"sweep directory: {plan.out}")
    for outcome in outcomes:
        if outcome.status == "failed":
            print(describe_outcome(outcome), file=sys.stderr)
    statuses = {outcome.status for outcome in outcomes}
    return 130 if statuses & {"interrupted", "not started"} else int("failed" in statuses)


def _report(given: Sequence[str]) -> int:
    description = "Write tables and plots over every finished run at any depth below some directories."
    parser = ArgumentParser("report", description)
    parser.add_argument("directories", metavar="DIR", nargs="+", help="a directory with runs below it, or a run's own")
    parser.add_argument("--out", metavar="DIR", help="where the report's files go (the first DIR)")
    parser.add_argument("--against", metavar="PAPER", help="put the published figures of a paper beside the measured")
    asked = parser.parse_args(given)
    with uncollected():
        from raysim.launch.display import result_console
        from raysim.reports.terminal import open_report_display, show_report
        from raysim.reports.write import write_report

    with open_report_display() as tell:
        report = write_report(asked.directories, asked.out, asked.against, tell=tell)
    show_report(report, result_console())
    return 0


def _evaluate(given: Sequence[str]) -> int:
    description = "Evaluate a finished run's model on another data set or split: keys of dataset, scenario, evaluation."
    parser = ArgumentParser("evaluate", description)
    parser.add_argument("directory", metavar="DIR", help="the run's directory")
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help=OVERRIDE)
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the accuracies as JSON too, to a new file")
    parser.add_argument("--local", action="store_true", help="in this process, as it always is: it needs no Ray")
    parser.add_argument("--trust", action="store_true", help=TRUST)
    asked = parser.parse_intermixed_args(given)
    from raysim.evaluation import evaluate

    if asked.out is not None:
        evaluate.claim_file(asked.out)
    evaluated = evaluate.evaluate(asked.directory, asked.overrides, trust=asked.trust)
    if asked.out is not None:
        evaluate.write_evaluation(evaluated, asked.out)
    print(*map(single_line, evaluate.describe_evaluation(evaluated)), sep="\n")
    return 0


def _configs(given: Sequence[str]) -> int:
    ArgumentParser("configs", "List the configs and sweeps that raysim comes with.").parse_args(given)
    from raysim.config.bundled import list_configs

    print(*map(single_line, list_configs()), sep="\n")
    return 0


def _new(given: Sequence[str]) -> int:
    parser = ArgumentParser("new", "Write your own config, which starts as a copy of another.")
    parser.add_argument("file", metavar="FILE", type=Path, help="the file to write, which must not exist")
    words = "a config's name (`raysim configs` lists them) or path; by default the quickstart"
    parser.add_argument("--from", dest="source", metavar="CONFIG", default="quickstart", help=words)
    asked = parser.parse_args(given)
    from raysim.config.bundled import copy_config

    copy_config(asked.source, asked.file)
    print(single_line(f"{asked.file} is a copy of {asked.source}"))
    return 0


def _with_config(command: str, description: str) -> ArgumentParser:
    parser = ArgumentParser(command, description)
    parser.add_argument("config", metavar="CONFIG", help=CONFIG)
    parser.add_argument("overrides", metavar="KEY=VALUE", nargs="*", help=OVERRIDE)
    return parser


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {
    "run": _run,
    "check": _check,
    "list": _list,
    "sweep": _sweep,
    "report": _report,
    "evaluate": _evaluate,
    "download": _download,
    "configs": _configs,
    "new": _new,
}
