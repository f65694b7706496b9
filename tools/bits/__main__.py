"""The command: python -m bits COMMIT [--only PATTERN] [--no-ray], with tools/ on PYTHONPATH."""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn

from bits.comparing import difference
from bits.kept import Kept
from bits.reference import chosen
from bits.run import Run
from bits.trees import TOOLS, carried_out, copied, git, tree_of


def main(given: Sequence[str] | None = None) -> int:
    """Compare, and return the exit status: 0 no bit moved, 1 some did, 2 wrong input, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="bits", description=__doc__, allow_abbrev=False)
    parser.add_argument("base", metavar="COMMIT", help="the working tree is compared with this commit")
    parser.add_argument("--only", metavar="PATTERN", help="a regular expression in the names of runs")
    parser.add_argument("--no-ray", action="store_true", help="leave out the runs on Ray")
    asked = parser.parse_args(given)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        runs = chosen(asked.only, ray=not asked.no_ray)
        if not runs:
            raise ValueError(f"no run's name has a match of {asked.only}")
        commit = git("rev-parse", "--verify", "--end-of-options", f"{asked.base}^{{commit}}")
        began = time.monotonic()
        base, here = both_sides(commit, runs)
        lines = told(runs, base, here)
        print(*lines, sep="\n", end=f" ({time.monotonic() - began:.0f} s)\n")
    except (RuntimeError, ValueError, re.error) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return int(len(lines) > 1)


def both_sides(commit: str, runs: Mapping[str, Run]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the results of the runs with the code of a commit, and with the code of the working tree."""
    kept = Kept(commit)
    known = kept.of(runs)
    missing = {name: run for name, run in runs.items() if name not in known}
    with ExitStack() as leaving:
        folder = Path(leaving.enter_context(tempfile.TemporaryDirectory(prefix="bits-", ignore_cleanup_errors=True)))
        sides = {"here": (copied(TOOLS.parent / "raysim", folder / "here"), runs)}
        if missing:
            sides = {"base": (leaving.enter_context(tree_of(commit, folder / "base")), missing), **sides}
        parts = [
            (side, tree, part)
            for on_ray in (False, True)
            for side, (tree, wanted) in sides.items()
            if (part := {name: run for name, run in wanted.items() if run.on_ray is on_ray})
        ]
        found = carried_out(parts, folder / "runs")
    kept.keep(runs, found.get("base", {}))
    return {**known, **found.get("base", {})}, found["here"]


def told(runs: Mapping[str, Run], base: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Return a line for each run that moved, and one that sums up."""
    new = [name for name in runs if base[name].get("refused") and "error" not in here[name]]
    compared = [name for name in runs if name not in new]
    moved = {name: text for name in compared if (text := difference(base[name], here[name])) is not None}
    counted = f"{len(compared)} runs: {f'{len(moved)} moved' if moved else 'no bit moved'}"
    if new:
        counted += f"; BASE refuses {', '.join(new)}, of which it has nothing to compare"
    return [*(f"{name}: {text}" for name, text in moved.items()), counted]


def _interrupted(signum: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
