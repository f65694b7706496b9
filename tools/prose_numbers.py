"""Numbers in the text of pages, from the runs in results/. `make docs` writes them.

A number stands between two comments: `<!-- =digits.late -->5.6 (1.6 to 9.7)<!-- / -->`. It is the comparison `late` of
the family `digits`. A comment at the foot of the page has the families, in YAML:

    <!-- numbers, written by make docs
    digits: {of: re_fed, in: class_il, pairs: {late: [early, average]}}
    -->

`of` is one sweep or several, and `in` the protocol, if there are several. `metric` is a key of the summary
(average_accuracy by default). A pair is a row and the row that is subtracted; `SETTING / ROW` is in one setting, and
`SWEEP: ROW` in one sweep. The pairs of a family are corrected together. `rows` are means, each by its name.

A family may also be of a table that `make docs` has written into the page. Its cells are a row and a column:

    ranks: {table: differences from FedAvg, cells: {ewc: [EWC, digits-split]}}

`<!-- =digits.late: points -->` asks for another form of the same number; see FORMS. No comment may begin a line, as
Markdown would end the paragraph there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from raysim.records.result import Result
from raysim.reports.families import adjust_family
from raysim.reports.gains import show_p
from raysim.reports.packed import SUFFIX, read_packed
from raysim.reports.quantity_tables import ACCURACY, FAIRNESS, LEARNING, Quantity
from raysim.reports.statistics import MeanOverSeeds, PairedDifference, average, compare_pairs
from raysim.sweeps.cells import SPLIT_KEY

ROOT = Path(__file__).parents[1]
FAMILIES = re.compile(r"<!-- numbers, written by make docs\n(?P<text>.*?)\n-->", re.DOTALL)
MARK = re.compile(r"<!-- =(?P<family>\w+)\.(?P<name>[\w-]+)(?:: (?P<form>\w+))? -->(?P<text>.*?)<!-- / -->", re.DOTALL)
OPENS, OWN_FORM = re.compile(r"<!--\s*="), "`<!-- =family.name -->5.6<!-- / -->`"
TABLE_KEYS, SWEEP_KEYS = {"table", "cells"}, {"of", "in", "metric", "setting", "pairs", "rows"}
CELL = re.compile(r"(?P<mean>-?[\d.]+) \((?P<low>-?[\d.]+) to (?P<high>-?[\d.]+)\)")
QUANTITIES = {quantity.key: replace(quantity, digits=1) for quantity in (ACCURACY, *LEARNING, *FAIRNESS)}
FORMS = {
    "interval": "{mean} ({low} to {high})",
    "listed": "{mean}, {low} to {high}",
    "points": "{mean} points ({low} to {high})",
    "behind": "{less} ({least} to {most})",
    "alone": "{mean}",
    "less": "{less}",
    "ends": "{low} to {high}",
    "tested": "{mean} ({low} to {high}, p {p})",
    "p": "p {p}",
    "std": "{mean} ± {std}",
}
"""What is written of a number. `behind` and `less` have the other sign."""


class Wrong(Exception):
    """A mark or a family that means nothing."""


@dataclass(frozen=True)
class Number:
    """A mean over seeds, with its interval and p if it is of a comparison, as texts."""

    texts: Mapping[str, str]

    def show(self, form: str) -> str:
        """Return the number in one of the forms."""
        if form not in FORMS:
            raise Wrong(f"found the form {form}, allowed: {', '.join(FORMS)}")
        try:
            return FORMS[form].format(**self.texts)
        except KeyError as missing:
            raise Wrong(f"the form {form} needs {missing}, which this number has not") from missing


def pages() -> list[Path]:
    """Return the pages that have such numbers."""
    found = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
    return [page for page in found if FAMILIES.search(page.read_text(encoding="utf-8"))]


def insert_numbers(page: str) -> str:
    """Return the page with the present numbers.

    Raises:
        Wrong: a mark has no number, has no end, begins a line, or a family names what is not in the sweep.
    """
    numbers = dict(measure(page))
    if unread := len(OPENS.findall(page)) - len(MARK.findall(page)):
        raise Wrong(f"found {unread} marks that begin as `<!-- =`, allowed: as in {OWN_FORM}")

    def written(mark: re.Match[str]) -> str:
        name = f"{mark['family']}.{mark['name']}"
        if name not in numbers:
            raise Wrong(f"found the mark {name}, allowed: {', '.join(numbers)}")
        if "<!--" in mark["text"]:
            raise Wrong(f"the mark {name} has no end, allowed: as in {OWN_FORM}")
        if page[: mark.start()].rpartition("\n")[2].strip() == "":
            raise Wrong(f"the mark {name} begins a line, allowed: within one, as Markdown ends a paragraph there")
        shown = numbers[name].show(mark["form"] or "interval")
        same = " ".join(mark["text"].split()) == shown  # which may be on two lines
        return mark[0] if same else mark[0].replace(f"-->{mark['text']}<!--", f"-->{shown}<!--")

    return MARK.sub(written, page)


def measure(page: str) -> Iterator[tuple[str, Number]]:
    """Yield the names and numbers of all families of a page."""
    for found in FAMILIES.finditer(page):
        for family, keys in yaml.safe_load(found["text"]).items():
            known = TABLE_KEYS if "table" in keys else SWEEP_KEYS
            if unknown := keys.keys() - known:
                raise Wrong(f"found {', '.join(unknown)} in {family}, allowed: {', '.join(sorted(known))}")
            for name, number in read_table(page, **keys) if "table" in keys else measure_family(keys):
                yield f"{family}.{name}", number


def read_table(page: str, table: str, cells: Mapping[str, tuple[str, str]]) -> Iterator[tuple[str, Number]]:
    """Yield the names and numbers of cells of a table that `make docs` has written into the page."""
    opens, closes = f"<!-- {table}, written by make docs -->", f"<!-- end of {table} -->"
    lines = [line for line in page.partition(opens)[2].partition(closes)[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    for name, (row, column) in cells.items():
        values = [of[rows[0].index(column)] for of in rows if of[0] == row and column in rows[0]]
        found = CELL.match(values[0]) if len(values) == 1 else None
        if found is None:
            raise Wrong(f"found no number in the row {row} and the column {column} of the table {table}")
        yield name, Number(with_other_sign(found.groupdict()))


def with_other_sign(texts: dict[str, str]) -> dict[str, str]:
    """Return the texts of a number, and of the number with the other sign."""

    def turned(text: str) -> str:
        return text[1:] if text.startswith("-") else text if not float(text) else f"-{text}"

    others = {"less": "mean", "least": "high", "most": "low"}
    return texts | {name: turned(texts[of]) for name, of in others.items() if of in texts}


def measure_family(keys: Mapping[str, Any]) -> Iterator[tuple[str, Number]]:
    """Yield the names and numbers of one family."""
    key = keys.get("metric", ACCURACY.key)
    if key not in QUANTITIES:
        raise Wrong(f"found the metric {key}, allowed: {', '.join(QUANTITIES)}")
    sweeps = [keys["of"]] if isinstance(keys["of"], str) else keys["of"]

    def by_seed(row: str) -> tuple[dict[int, float], Quantity]:
        return values_of(find_runs(sweeps, row, keys.get("setting")), QUANTITIES[key], keys.get("in"))

    pairs = keys.get("pairs", {})
    compared, shown = [], []
    for row, other in pairs.values():
        (more, quantity), (less, _) = by_seed(row), by_seed(other)
        compared.append(compare_pairs(less, more))
        shown.append(quantity)
    for name, difference, quantity in zip(pairs, adjust_family(compared), shown, strict=True):
        if difference is None:
            raise Wrong(f"the rows of {name} have no common seed")
        yield name, Number(texts_of(difference, quantity))
    for name, row in keys.get("rows", {}).items():
        found, quantity = by_seed(row)
        mean = average([*found.values()])
        assert mean is not None
        yield name, Number(texts_of(mean, quantity))


def find_runs(sweeps: Sequence[str], row: str, setting: str | None) -> dict[int, Result]:
    """Return the finished test runs of a row by seed. The row and the setting are named as in the sweep's file."""
    before, divided, after = row.partition(": ")
    if divided and before in sweeps:
        sweeps, row = [before], after
    before, divided, after = row.partition(" / ")
    if divided:
        setting, row = before, after
    found: dict[int, Result] = {}
    for names, run in (named for sweep in sweeps for named in runs_of(sweep)):
        if row in names and setting in (None, *names):
            if run.seed in found:
                raise Wrong(f"found several rows {row} in {', '.join(sweeps)}, allowed: one; name its setting or sweep")
            found[run.seed] = run
    if not found:
        raise Wrong(f"found no row {row} in {', '.join(sweeps)}" + (f", {setting}" if setting else ""))
    return found


@cache
def runs_of(sweep: str) -> list[tuple[set[str], Result]]:
    """Return the finished test runs of a packed sweep, each with the names of its values on the sweep's axes."""
    packed = read_packed(ROOT / "results" / f"{sweep}{SUFFIX}")
    if packed.sweep is None:
        raise Wrong(f"found no names of rows in {sweep}, allowed: sweeps")
    found = []
    for run in packed.runs:
        axes = packed.sweep.runs[run.path]
        if run.summary.status == "done" and SPLIT_KEY not in axes:
            names = [name for axis, name in axes.items() if axis != "seed"]
            found.append(({*names, ", ".join(names)}, run.summary))  # two axes may make the rows
    return found


def values_of(
    runs: Mapping[int, Result], quantity: Quantity, protocol: str | None
) -> tuple[dict[int, float], Quantity]:
    """Return a row's values by seed as they are shown, and the quantity. Another metric than accuracy has 3 digits."""
    found: dict[int, float] = {}
    for seed, run in runs.items():
        blocks: Mapping[str, Mapping[str, Any]] = getattr(run, quantity.block or "evaluation") or {}
        if protocol is None and len(blocks) != 1:
            raise Wrong(f"found no protocol (in), allowed: {', '.join(blocks)}")
        block = blocks.get(protocol or next(iter(blocks)), {})
        if block.get(quantity.key) is None:
            raise Wrong(f"found no {quantity.key} in {protocol}, allowed: {', '.join(blocks)}")
        if "metric" in block:
            quantity = replace(quantity, scale=1, digits=3)
        found[seed] = quantity.scale * block[quantity.key]
    return found, quantity


def texts_of(found: MeanOverSeeds, quantity: Quantity) -> dict[str, str]:
    """Return the texts of a number by their names in FORMS."""
    texts = {"mean": quantity.show(found.mean)}
    if found.std is not None:
        texts["std"] = quantity.show(found.std)
    if isinstance(found, PairedDifference) and found.half is not None and found.p is not None:
        texts["low"], texts["high"] = (quantity.show(found.mean + sign * found.half) for sign in (-1, 1))
        texts["p"] = show_p(found.p)
    return with_other_sign(texts)


if __name__ == "__main__":
    for each in pages():
        each.write_text(insert_numbers(each.read_text(encoding="utf-8")), encoding="utf-8")
