"""The command: python -m twins [--page FILE], with tools/ on PYTHONPATH. It runs all twins and prints their tables."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from twins.loop import BOUND, Compared, Loop
from twins.loop_methods import LOOPS
from twins.twins import TWINS, Twin

OPENS, CLOSES = "<!-- twins, written by make twins -->", "<!-- end of twins -->"
LOOPS_OPEN, LOOPS_CLOSE = "<!-- loops, written by make twins -->", "<!-- end of loops -->"


def table(found: Sequence[tuple[Twin, float, float]]) -> Iterator[str]:
    """Yield the lines of the table, given each twin's differences from its reference and from FedAvg."""
    yield "| method | settings | written from | difference | FedAvg's |"
    yield "|---|---|---|---:|---:|"
    for twin, difference, plain in found:
        yield f"| {twin.name} | `{written(twin.methods)}` | {source(twin.reference)} | {difference:.0e} | {plain:.0e} |"


def loop_table(found: Sequence[tuple[Loop, Compared, Compared]]) -> Iterator[str]:
    """Yield the lines of the loops' table, given how far raysim and its FedAvg are from each reference."""
    yield "| method | settings | written from | difference | FedAvg's | equal accuracies | FedAvg's |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for loop, own, plain in found:
        far = f"{own.difference:.0e} | {plain.difference:.0e} | {own.equal} | {plain.equal}"
        yield f"| {loop.name} | `{written(loop.methods)}` | {source(loop.rounds)} | {far} |"


def source(reference: Any) -> str:
    """Return what a reference is written from."""
    return (reference.__doc__ or "").strip().rstrip(".")


def written(methods: Mapping[str, Any]) -> str:
    """Return a config's methods in one line of YAML."""
    return str(yaml.safe_dump(dict(methods), default_flow_style=True, width=1000)).strip()[1:-1]


def replaced(text: str, opens: str, closes: str, lines: Iterator[str]) -> str:
    """Return a page's text with other lines between two marks."""
    before, rest = text.split(opens)
    _, after = rest.split(closes)
    return "\n".join([f"{before}{opens}", "", *lines, "", f"{closes}{after}"])


def main(given: Sequence[str] | None = None) -> int:
    """Print the tables, or write them into a page between their marks. Return 1 if a difference is beyond its bound."""
    parser = argparse.ArgumentParser(prog="twins", description=__doc__, allow_abbrev=False)
    parser.add_argument("--page", type=Path, help="the page whose tables are replaced")
    page = parser.parse_args(given).page
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(twin, *twin.compare()) for twin in TWINS]
        loops = [(loop, loop.compare(), loop.compare(methods={})) for loop in LOOPS]
    wrong = [twin.name for twin, difference, _ in found if not difference < twin.bound]
    wrong += [f"the loop of {loop.name}" for loop, own, _ in loops if own.wrong or not own.difference < BOUND]
    if wrong:
        print(f"beyond their bounds: {', '.join(wrong)}", file=sys.stderr)
        return 1
    if page is None:
        print("\n".join([*table(found), "", *loop_table(loops)]))
        return 0
    text = replaced(page.read_text(encoding="utf-8"), OPENS, CLOSES, table(found))
    page.write_text(replaced(text, LOOPS_OPEN, LOOPS_CLOSE, loop_table(loops)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
