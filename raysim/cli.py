"""What the commands do; command_line.py has their arguments."""

import errno
import json
import os
import sys
import threading
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import raysim
from raysim.command_line import ArgumentParser, HelpShown, describe_commands, find_command, fit_lines
from raysim.system.errors import ConfigError, RunError, describe_error, single_line
from raysim.system.importing import drawing, uncollected
from raysim.system.messages import describe_mistake, plain_warnings
from raysim.system.output import has_terminal

if TYPE_CHECKING:
    from raysim.actors.session import Session
    from raysim.config import Draft

RAYS_LOG = "ray.log"
LONGEST_DESCRIPTION = 84  # characters of a config's, in the list on a terminal
LOADING = "loading PyTorch"  # the longest of what is imported first
UNREACHABLE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP)  # pathlib raises these errors


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0 done, 1 the run failed, 2 wrong input, 130 interrupted."""
    given = list(sys.argv[1:] if argv is None else argv)
    if argv is None:  # the process is the command's
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for NumPy, whose last bits depend on its threads
    try:
        with plain_warnings():
            return _command(given)
    except HelpShown:
        return 0
    except ConfigError as error:
        print(describe_mistake(error), file=sys.stderr)
        return 2
    except RunError as error:
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        print(*fit_lines([f"{_what(given)} failed: {error}"], sys.stderr), sep="\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt as interrupt:
        print(*getattr(interrupt, "__notes__", ()), "interrupted", sep="\n", file=sys.stderr)
        return 130
    except BrokenPipeError:  # raysim list methods | head -1; the interpreter flushes once more at its exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Exception, SystemExit) as error:  # of custom code, or a bug in raysim
        of_a_run = hasattr(error, "where")  # `locate_errors` sets it
        if isinstance(error, OSError) and error.errno in UNREACHABLE and error.filename is not None and not of_a_run:
            path = single_line(str(error.filename))
            print(f"{path:.200}: {error.strerror}, allowed: a path that can be reached", file=sys.stderr)
            return 2
        traceback.print_exception(error)
        print(f"{_what(given)} failed: {single_line(describe_error(error))}", file=sys.stderr)
        return 1


def _what(given: Sequence[str]) -> str:
    """Return what failed, for an error message."""
    names = {"evaluate": "the evaluation", "live": "the live page", "show": "the picture"}
    same = {name: f"the {name}" for name in ("check", "download", "report", "sweep")}
    return (names | same).get(given[0] if given else "", "the run")


def _command(given: list[str]) -> int:
    if given[:1] == ["help"]:  # help run is run --help
        given = [*given[1:2], "--help"]
    if not given or given[0] in ("-h", "--help"):
        print(*describe_commands(), sep="\n")
        return 0
    if given[0] == "--version":
        print(f"raysim {raysim.__version__}")
        return 0
    try:
        os.getcwd()
    except FileNotFoundError:  # torch would end this process, with a message about a library
        raise RunError("the current folder was deleted; cd to another one, then give the command again") from None
    parser = find_command(given[0]).parser(given[0])
    for before, one in pairwise(given):
        if not one or (one.startswith("--") and one.endswith("=")):
            parser.error(f"found nothing after {one or before}, as with an unset variable, allowed: a value")
    asked = parser.parse_intermixed_args(given[1:])
    _tell_hidden(asked)
    return ACTIONS[given[0]](parser, asked)


def _tell_hidden(asked: Namespace) -> None:
    """Say whether a config is a file of the working directory or the bundled one, if both have the name."""
    source = getattr(asked, "config", None) or getattr(asked, "source", None)
    if source is None or getattr(asked, "quiet", False) or not any(map(os.path.isfile, (source, f"{source}.yaml"))):
        return  # the import below would delay the first word
    from raysim.config.bundled import describe_hidden

    if words := describe_hidden(source):
        print(single_line(words), file=sys.stderr)


def _run(parser: ArgumentParser, asked: Namespace) -> int:
    if asked.config is None and not asked.resume:
        parser.error("the following arguments are required: CONFIG")
    if asked.resume and asked.config is not None and "=" in asked.config and not os.path.exists(asked.config):
        asked.config, asked.overrides = None, [asked.config, *asked.overrides]
    asked.overrides += ["logging.profile=true"] * asked.profile
    from raysim.system.progress import show_progress

    starting = partial(show_progress, stream=sys.stdout, quiet=asked.quiet)
    source = os.path.join(asked.out or "", "config.yaml") if asked.config is None else asked.config
    with starting("reading the config"):
        from raysim.config import read_draft

        draft = None if asked.resume and not os.path.exists(source) else read_draft(source, asked.overrides)
    with _early_session(draft, asked.local) as session:
        with starting(LOADING), uncollected():
            from raysim.launch.bar import open_run_display
            from raysim.launch.display import result_console, show_result
            from raysim.launch.resolving import resolve_run
            from raysim.launch.resuming import resolve_resumed
            from raysim.launch.run import carry_out

        if draft is None or asked.resume:
            config = resolve_resumed(asked.out, asked.config, asked.overrides, asked.trust)
        else:
            config = draft.complete()
        began = time.perf_counter()
        resolved = resolve_run(config, (), asked.out, (), asked.resume, asked.trust, asked.overrides)
        try:
            with _live_page(resolved.directory, asked.live), open_run_display(config, asked.quiet) as shown:
                shown.log = RAYS_LOG
                result = resolved.ended or carry_out(resolved, shown, asked.local, began, session)
        finally:
            resolved.release()
    if not asked.quiet:
        show_result(result, result_console(), config, asked.local)
        if config.logging.profile:
            from raysim.reports.profile_table import show_profile

            show_profile(result.directory, result_console())
    return 130 if result.status == "interrupted" else 0


def _early_session(draft: "Draft | None", local: bool) -> "AbstractContextManager[Session | None]":
    """Open the session of the Ray that a run will start, before torch is imported."""
    if draft is None or local:
        return nullcontext()
    from raysim.actors.session import open_early

    return open_early(draft.config.resources)


@contextmanager
def _live_page(out: str | os.PathLike[str], wanted: bool) -> Iterator[None]:
    """Serve the page of a run that is about to begin in a directory, if it is wanted."""
    if not wanted:
        yield
        return
    from raysim.live.http_server import serve
    from raysim.live.watched import Watched

    with serve(Watched(Path(out), expected=True)) as server:
        print(f"live: {server.address}", file=sys.stderr)
        yield


def _live(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.system.progress import show_progress

    with show_progress(f"reading {asked.directory}"):
        from raysim.live.http_server import serve
        from raysim.live.watched import Watched

        watched = Watched(asked.directory)
    with serve(watched, asked.port) as server:
        print(single_line(f"Ctrl-C ends this page, and no run. {asked.directory} is at {server.address}"), flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()
    return 0


def _download(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.system.progress import show_progress

    with show_progress(LOADING) as progress:
        from raysim.data.loading import download

        progress.tell("reading the data")
        for line in download(asked.config, asked.overrides):
            print(single_line(line), flush=True)
    return 0


def _check(parser: ArgumentParser, asked: Namespace) -> int:
    if asked.schema:
        from raysim.config import build_json_schema

        _print_json(build_json_schema())
        return 0
    if asked.config is None:
        parser.error("the following arguments are required: CONFIG")
    from raysim.system.progress import show_progress

    with show_progress(LOADING, sys.stderr if asked.json else None):
        with uncollected():
            from raysim.config import load

            config = load(asked.config, asked.overrides)
            from raysim.launch.check import estimate_run

        lines = dict[str, str]()
        for label, text in estimate_run(config, asked.cluster):
            lines[label] = text
            if not asked.json:
                print(*fit_lines([f"{label:<12} {text}"], sys.stdout), sep="\n", flush=True)
    if asked.json:
        _print_json(lines)
    return 0


def _list(parser: ArgumentParser, asked: Namespace) -> int:
    if asked.kind is None:  # the other lists import what they name
        showing: AbstractContextManager[object] = nullcontext()
    else:
        from raysim.system.progress import show_progress

        showing = show_progress(LOADING, sys.stderr if asked.json else None)
    with showing, uncollected():
        from raysim.config.reference import find_components, list_components

        found = [*find_components(asked.kind, asked.name)] if asked.json or asked.name is not None else []
        lines = [] if asked.json else [*list_components(asked.kind, asked.name)]
        if asked.kind == "datasets" and asked.name is not None:
            from raysim.data.places import describe_files

            lines += describe_files(asked.name, [key["key"] for key in found])
    if asked.json:
        _print_json(found)
        return 0
    print(*fit_lines(lines, sys.stdout), sep="\n")
    return 0


def _sweep(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.system.progress import show_progress

    with show_progress(LOADING, sys.stderr if asked.list else sys.stdout, asked.quiet) as progress:
        with uncollected():
            from raysim.sweeps.directory import plan_sweep
            from raysim.sweeps.shown import carry_out_shown
            from raysim.sweeps.sweep_display import list_runs

        progress.tell("checking the runs")
        plan = plan_sweep(asked.config, asked.overrides, asked.out)
    if asked.list:
        print(*list_runs(plan), sep="\n")
        return 0
    return carry_out_shown(plan, asked.local, asked.jobs, asked.quiet, RAYS_LOG)


def _reproduce(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.system.progress import show_progress

    with show_progress(LOADING, sys.stderr), uncollected():
        from raysim.reproduce_command import reproduce

    return reproduce(parser, asked, RAYS_LOG)


def _report(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.system.progress import show_progress

    with show_progress(LOADING, sys.stderr if asked.json else None) as progress:
        with uncollected(), drawing():
            from raysim.launch.display import result_console
            from raysim.reports.formats import report_to_json
            from raysim.reports.terminal import show_report
            from raysim.reports.write import write_report

        tell = progress.tell
        report = write_report(asked.directories, asked.out, asked.against, compare=asked.compare, tell=tell)
    if asked.json:
        _print_json(report_to_json(report))
    else:
        show_report(report, result_console())
    return 0


def _show(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.system.progress import show_progress

    with show_progress(LOADING) as progress:
        from raysim.config import load

        config = load(asked.config, asked.overrides)
        with uncollected():
            from raysim.reports.stream.picture import check_file, draw_stream

        file = check_file(asked.out or f"{config.name}-stream.svg")
        progress.tell("drawing the stream")
        picture = draw_stream(config)
    print(single_line(str(picture.save(file))))
    for note in picture.notes:
        print(single_line(note), file=sys.stderr)
    return 0


def _evaluate(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.system.progress import show_progress

    with show_progress(LOADING) as progress:
        with uncollected():
            from raysim.evaluation import finished_run

        if asked.out is not None:
            finished_run.claim_file(asked.out)
        progress.tell("reading the data")
        evaluated = finished_run.evaluate(asked.directory, asked.overrides, trust=asked.trust)
    if asked.out is not None:
        finished_run.write_evaluation(evaluated, asked.out)
    print(*fit_lines(finished_run.describe_evaluation(evaluated), sys.stdout), sep="\n")
    return 0


def _configs(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.config.bundled import list_configs

    longest = LONGEST_DESCRIPTION if has_terminal(sys.stdout) else None
    print(*fit_lines(list_configs(longest), sys.stdout), sep="\n")
    return 0


def _new(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.config.bundled import copy_config

    sweep, file = copy_config(asked.source, asked.file), quote(str(asked.file))
    print(single_line(f"{asked.file} is a copy of {asked.source}"))
    print(single_line("next: edit it, then raysim " + (f"sweep {file} --list" if sweep else f"check {file}")))
    return 0


def _completion(parser: ArgumentParser, asked: Namespace) -> int:
    from raysim.shell_completion import write_script

    print(write_script(asked.shell), end="")
    return 0


def _skill(parser: ArgumentParser, asked: Namespace) -> int:
    from importlib import resources

    print(resources.files("raysim").joinpath("skill.md").read_text(encoding="utf-8"), end="")
    return 0


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, allow_nan=False))


ACTIONS: Mapping[str, Callable[[ArgumentParser, Namespace], int]] = {
    "run": _run,
    "check": _check,
    "live": _live,
    "list": _list,
    "sweep": _sweep,
    "reproduce": _reproduce,
    "show": _show,
    "report": _report,
    "evaluate": _evaluate,
    "download": _download,
    "configs": _configs,
    "new": _new,
    "completion": _completion,
    "skill": _skill,
}
