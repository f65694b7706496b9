"""The command: python -m twins [--page FILE], with tools/ on PYTHONPATH. It runs all twins and prints their table."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from twins.twins import TWINS, Twin

OPENS, CLOSES = "<!-- twins, written by make twins -->", "<!-- end of twins -->"


def table(found: Sequence[tuple[Twin, float, float]]) -> Iterator[str]:
    """Yield the lines of the table, given each twin's differences from its reference and from FedAvg."""
    yield "| method | settings | written from | difference | FedAvg's |"
    yield "|---|---|---|---:|---:|"
    for twin, difference, plain in found:
        source = (twin.reference.__doc__ or "").strip().rstrip(".")
        yield f"| {twin.name} | `{written(twin.methods)}` | {source} | {difference:.0e} | {plain:.0e} |"


def written(methods: Mapping[str, Any]) -> str:
    """Return a config's methods in one line of YAML."""
    return str(yaml.safe_dump(dict(methods), default_flow_style=True, width=1000)).strip()[1:-1]


def main(given: Sequence[str] | None = None) -> int:
    """Print the table, or write it into a page between its marks. Return 1 if a difference is beyond its bound."""
    parser = argparse.ArgumentParser(prog="twins", description=__doc__, allow_abbrev=False)
    parser.add_argument("--page", type=Path, help="the page whose table is replaced")
    page = parser.parse_args(given).page
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [(twin, *twin.compare()) for twin in TWINS]
    lines = "\n".join(table(found))
    wrong = [twin.name for twin, difference, _ in found if not difference < twin.bound]
    if wrong:
        print(f"beyond their bounds: {', '.join(wrong)}", file=sys.stderr)
        return 1
    if page is None:
        print(lines)
        return 0
    before, rest = page.read_text(encoding="utf-8").split(OPENS)
    _, after = rest.split(CLOSES)
    page.write_text(f"{before}{OPENS}\n\n{lines}\n\n{CLOSES}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
