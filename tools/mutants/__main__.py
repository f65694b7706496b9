"""Draw mutants, run the tests against them, and tabulate which die. tools/ must be on PYTHONPATH.

- `python -m mutants draw COMMIT` writes tools/mutants/drawn.json, and leaves the chosen mutants in it.
- `python -m mutants check` asks whether every mutant of the list can be applied to the working tree.
- `python -m mutants run COMMIT FILE` applies them to the code of COMMIT and runs its tests. FILE gets a JSON line for
  each mutant. If it is stopped, the same command resumes it.
- `python -m mutants table FILE ...` prints a table with a column for each file.

`carried.json` is the list of `drawn.json` at the lines that make the same decisions today; `--list` takes it.
`before.jsonl` has the results at the drawn commit, as far as they were run.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mutants.drawing import FOLDERS, draw_mutants
from mutants.mutant import DRAWN, Mutant, read_list, write_list
from mutants.running import ROOT, Tree, read_results, run_all


def main(given: Sequence[str] | None = None) -> int:
    """Do what is asked, and return the exit status."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--list", type=Path, default=DRAWN, help="the list of mutants")
    asked = parser.add_subparsers(dest="command", required=True)
    drawing = asked.add_parser("draw")
    drawing.add_argument("commit")
    drawing.add_argument("--seed", type=int, default=63)
    drawing.add_argument("--count", type=int, default=60)
    asked.add_parser("check")
    running = asked.add_parser("run")
    running.add_argument("commit")
    running.add_argument("results", type=Path)
    running.add_argument("--through", type=shlex.split, default=[], help="words before commands that start Ray")
    running.add_argument("--only", type=lambda text: text.split(","), help="ids, with commas between them")
    asked.add_parser("table").add_argument("results", type=Path, nargs="+")
    found = parser.parse_args(given)
    if found.command == "draw":
        commit = git("rev-parse", "--verify", f"{found.commit}^{{commit}}").strip()
        write_list(found.list, commit, found.seed, draw_mutants(sources_of(commit), found.seed, found.count))
        return 0
    mutants = read_list(found.list)
    if found.command == "check":
        return check(mutants)
    if found.command == "table":
        print(table(mutants, found.results))
        return 0
    chosen = [one for one in mutants if found.only is None or one.id in found.only]
    chosen.sort(key=lambda one: one.on_ray)  # those take longest
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as folder:
        run_all(chosen, Tree(found.commit, Path(folder), found.through), found.results)
    return 0


def git(*given: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *given], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def sources_of(commit: str) -> dict[str, str]:
    """Return the modules that mutants are drawn from, by file, as they are at a commit."""
    files = git("ls-tree", "-r", "--name-only", commit, *FOLDERS).splitlines()
    return {file: git("show", f"{commit}:{file}") for file in files if file.endswith(".py")}


def check(mutants: Sequence[Mutant]) -> int:
    """Say which mutants cannot be applied to the working tree, and return 1 if there are some."""
    wrong = 0
    for mutant in mutants:
        try:
            mutant.apply((ROOT / mutant.file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            wrong = 1
    return wrong


def table(mutants: Sequence[Mutant], files: Sequence[Path]) -> str:
    """Return a Markdown table of mutants, with a column for each file of results, and the counts below it."""
    columns = [{one["id"]: one for one in read_results(file)} for file in files]
    head = ["id", "function", "line", "changed to", *(file.stem for file in files)]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for mutant in mutants:
        found = [column.get(mutant.id, {"result": "not run", "test": None}) for column in columns]
        cells = [": ".join(filter(None, (one["result"], one["test"]))) for one in found]
        place = f"{mutant.file.removeprefix('raysim/')} {mutant.function}"
        texts = [f"`{text.replace('|', chr(92) + '|')}`" for text in (mutant.before, mutant.after)]
        lines.append(f"| {' | '.join([mutant.id, place, *texts, *cells])} |")
    for file, column in zip(files, columns, strict=True):
        counts = Counter(column[one.id]["result"] for one in mutants if one.id in column)
        lines.append(f"\n{file.stem}: {', '.join(f'{count} {result}' for result, count in counts.items())}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
