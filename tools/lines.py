"""Count lines of code in a folder, here or at a commit too, without blank lines, comments and docstrings.

    python tools/lines.py [DIR] [--by-folder] [--base COMMIT]

All code is formatted first, so that its layout does not count.
"""

from __future__ import annotations

import argparse
import ast
import io
import shutil
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(source: str) -> int:
    """Return the number of lines with a token that is no comment and no part of a docstring.

    A docstring is any expression that is only a string, also one below an attribute.
    """
    told = [
        range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
        for statement in ast.walk(ast.parse(source))
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    ]
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        first, last = token.start[0], token.end[0]
        docstring = token.type == tokenize.STRING and any(first in span and last in span for span in told)
        if token.type not in NO_CODE and not docstring:
            lines.update(range(first, last + 1))
    return len(lines)


def formatted(source: str, name: str) -> str:
    """Return source in the working tree's format. Raises RuntimeError where that cannot be done."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        raise RuntimeError("ruff is not installed: make install")
    options = ["--config", str(ROOT / "pyproject.toml"), "--stdin-filename", name]
    ended = subprocess.run(
        [ruff, "format", *options, "-"], input=source, cwd=ROOT, capture_output=True, text=True, encoding="utf-8"
    )
    if ended.returncode:
        raise RuntimeError(f"{name}: {ended.stderr.strip()}")
    return ended.stdout


def here(folder: PurePosixPath) -> Iterator[tuple[str, str]]:
    """Yield the names and sources of a folder's Python files in the working tree."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def at(commit: str, folder: PurePosixPath) -> Iterator[tuple[str, str]]:
    """Yield the names and sources of a folder's Python files in a commit. Raises RuntimeError where it has none."""
    ended = subprocess.run(["git", "archive", "--format=tar", commit, "--", str(folder)], cwd=ROOT, capture_output=True)
    if ended.returncode:
        raise RuntimeError(ended.stderr.decode().strip())
    with tarfile.open(fileobj=io.BytesIO(ended.stdout)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None and member.name.endswith(".py"):
                yield member.name, content.read().decode("utf-8")


def counted(sources: Iterator[tuple[str, str]]) -> Counter[str]:
    """Return the lines of code of each file, in the working tree's format."""
    with ThreadPoolExecutor() as pool:
        return Counter(dict(pool.map(lambda one: (one[0], code_lines(formatted(one[1], one[0]))), list(sources))))


def by_folder(files: Mapping[str, int]) -> Counter[str]:
    """Return the lines of the files in each folder, without the folders below."""
    folders: Counter[str] = Counter()
    for name, lines in files.items():
        folders[f"{PurePosixPath(name).parent}/"] += lines
    return folders


def table(columns: Sequence[Counter[str]]) -> Iterator[str]:
    """Yield a line for each name and one for the total; with two columns, before and after, their difference too."""
    names = sorted(set().union(*columns))
    for name, numbers in [
        *((name, [column[name] for column in columns]) for name in names),
        ("in all", [column.total() for column in columns]),
    ]:
        change = [f"{numbers[1] - numbers[0]:+8,}"] if len(numbers) == 2 else []
        yield " ".join([*(f"{number:8,}" for number in numbers), *change, f" {name}"])


def main(given: Sequence[str] | None = None) -> int:
    """Print the table, and return the exit status: 0, or 2 for wrong input."""
    parser = argparse.ArgumentParser(prog="lines", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", default="raysim", help="relative to the repository (raysim)"
    )
    parser.add_argument("--by-folder", action="store_true", help="a line for each folder, not for each file")
    parser.add_argument("--base", metavar="COMMIT", help="count there too, and say what was added or removed")
    asked = parser.parse_args(given)
    folder = PurePosixPath(asked.folder)
    try:
        sides = [counted(at(asked.base, folder))] if asked.base is not None else []
        sides.append(counted(here(folder)))
        if not any(sides):
            raise RuntimeError(f"{folder}: found no Python files, allowed: a folder of the repository")
    except (RuntimeError, SyntaxError) as error:
        print(error, file=sys.stderr)
        return 2
    print(*table([by_folder(side) for side in sides] if asked.by_folder else sides), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
