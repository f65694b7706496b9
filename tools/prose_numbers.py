"""Numbers in the text of pages, from the runs in results/. `make docs` writes them.

A number stands between two comments: `<!-- =digits.late -->5.6 (1.6 to 9.7)<!-- / -->`. It is the comparison `late` of
the family `digits`. A comment at the foot of the page has the families, in YAML:

    <!-- numbers, written by make docs
    digits: {of: re_fed, in: class_il, pairs: {late: [early, average]}}
    -->

`of` is one sweep or several, and `in` the protocol, if there are several. `metric` is a key of the summary
(average_accuracy by default), or of tools/matrix_quantities.py. `unit: "%"` shows fractions of another metric in %.

- `pairs`: a row and the row that is subtracted. Four rows a, b, c, d are (a - b) - (c - d), what a gain has grown.
- `changes`: a row alone. The metric is a change, which is compared with 0.
- `against`: a row, and a row of one run that is the same for all seeds, such as a closed form.
- `rows`: the mean of a row, without a test.
- `levels`: a row, and the paper, table, setting and method that it is compared with. It agrees within both deviations.

`SETTING / ROW` is in one setting, and `SWEEP: ROW` in one sweep. The pairs, changes and rows against one run of a
family are corrected together. A family may also have another source:

    ranks: {table: differences from FedAvg, cells: {ewc: [EWC, digits-split]}}
    tenth: {together: [rotated, permuted]}
    re_fed: {page: results/re_fed.md}

- `table`: one that `make docs` has written into this page, or into `page`. Its cells are a row and a column. `lines`
  are whole rows: `special-digits-split` is the number of the line `special` in that column.
- `together`: families named before, as one.
- `page`: another page below docs/. Its number `cifar.er` is `re_fed.cifar-er` here.

`tenth.all` has the range of a family's means, and how many of its differences are significantly above 0.

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
from matrix_quantities import OF_MATRIX, of_matrix

from raysim.records.result import Result
from raysim.reports.families import adjust_family
from raysim.reports.gains import show_p
from raysim.reports.packed import SUFFIX, read_packed
from raysim.reports.published import load_paper
from raysim.reports.quantity_tables import ACCURACY, FAIRNESS, LEARNING, Quantity
from raysim.reports.statistics import MeanOverSeeds, PairedDifference, average, compare_pairs
from raysim.sweeps.cells import SPLIT_KEY

ROOT = Path(__file__).parents[1]
FAMILIES = re.compile(r"<!-- numbers, written by make docs\n(?P<text>.*?)\n-->", re.DOTALL)
MARK = re.compile(r"<!-- =(?P<family>\w+)\.(?P<name>[\w-]+)(?:: (?P<form>\w+))? -->(?P<text>.*?)<!-- / -->", re.DOTALL)
OPENS, OWN_FORM = re.compile(r"<!--\s*="), "`<!-- =family.name -->5.6<!-- / -->`"
SWEEP_KEYS = {"of", "in", "metric", "unit", "setting", "pairs", "changes", "against", "rows", "levels"}
SOURCES = {"table": {"table", "cells", "lines", "page"}, "together": {"together"}, "page": {"page"}}
CELL = re.compile(r"(?P<mean>-?[\d.]+) \((?P<low>-?[\d.]+) to (?P<high>-?[\d.]+)\)")
QUANTITIES = {
    quantity.key: replace(quantity, digits=1) for quantity in (ACCURACY, *LEARNING, *FAIRNESS, *OF_MATRIX.values())
}
read_paper = cache(load_paper)
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
    "seeds": "{seeds}",
    "span": "{first} to {last}",
    "share": "{supported} of {tested}",
    "level": "{mean} ± {std}, published {published}",
}
"""What is written of a number. `behind` and `less` have the other sign, and `seeds` are the differences by seed."""


class Wrong(Exception):
    """A mark or a family that means nothing."""


@dataclass(frozen=True)
class Number:
    """A mean over seeds, with its interval and p if it is of a comparison, as texts.

    `signs` are those of the tested differences: 1 or -1 if one is significantly above or below 0, else 0. A family as a
    whole has several. A level has 1 if it agrees with the published one, else -1.
    """

    texts: Mapping[str, str]
    signs: tuple[int, ...] = ()

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
    texts = {page: page.read_text(encoding="utf-8") for page in found}
    return [page for page, text in texts.items() if FAMILIES.search(text) and OPENS.search(text)]


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
    known: dict[str, dict[str, Number]] = {}
    for found in FAMILIES.finditer(page):
        for family, keys in yaml.safe_load(found["text"]).items():
            allowed = next((SOURCES[source] for source in SOURCES if source in keys), SWEEP_KEYS)
            if unknown := keys.keys() - allowed:
                raise Wrong(f"found {', '.join(unknown)} in {family}, allowed: {', '.join(sorted(allowed))}")
            known[family] = dict(read_family(page, keys, known))
            yield f"{family}.all", put_together([*known[family].values()])
            for name, number in known[family].items():
                yield f"{family}.{name}", number


def read_family(
    page: str, keys: Mapping[str, Any], known: Mapping[str, Mapping[str, Number]]
) -> Iterator[tuple[str, Number]]:
    """Yield the names and numbers of one family, of which `known` are those before it."""
    if "table" in keys:
        yield from read_table(page, **keys)
    elif "page" in keys:
        yield from read_page(keys["page"])
    elif "together" in keys:
        if absent := set(keys["together"]) - known.keys():
            raise Wrong(f"found {', '.join(sorted(absent))}, allowed: families named before: {', '.join(known)}")
        for name in keys["together"]:
            yield from ((f"{name}-{one}", number) for one, number in known[name].items())
    else:
        yield from measure_family(keys)


@cache
def read_page(name: str) -> list[tuple[str, Number]]:
    """Return the names and numbers of another page below docs/, its families' names joined to theirs by a hyphen."""
    found = measure((ROOT / "docs" / name).read_text(encoding="utf-8"))
    return [(name.replace(".", "-"), number) for name, number in found]


def put_together(numbers: Sequence[Number]) -> Number:
    """Return the range of several numbers' means, and how many of the tested ones are significantly above 0."""
    single = [number for number in numbers if "mean" in number.texts]  # another page's wholes repeat its numbers
    if not single:
        raise Wrong("found a family without numbers, allowed: pairs, changes, against, rows, levels, cells or lines")
    means = sorted((number.texts["mean"] for number in single), key=float)
    signs = tuple(sign for number in single for sign in number.signs)
    shares = {"supported": str(signs.count(1)), "tested": str(len(signs))}
    return Number({"first": means[0], "last": means[-1], **shares}, signs)


def read_table(
    text: str,
    table: str,
    cells: Mapping[str, tuple[str, str]] | None = None,
    lines: Mapping[str, str] | None = None,
    page: str | None = None,
) -> Iterator[tuple[str, Number]]:
    """Yield the names and numbers of cells, and of lines, of a table that `make docs` has written into a page."""
    if page is not None:
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    opens, closes = f"<!-- {table}, written by make docs -->", f"<!-- end of {table} -->"
    found = [line for line in text.partition(opens)[2].partition(closes)[0].splitlines() if line.startswith("|")]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in found]
    columns = rows[0] if rows else []

    def cell(row: str, column: str) -> Number | None:
        values = [of[columns.index(column)] for of in rows if of[0] == row and column in columns]
        matched = CELL.match(values[0]) if len(values) == 1 else None
        if matched is None:
            return None
        texts = matched.groupdict()
        sign = 1 if float(texts["low"]) > 0 else -1 if float(texts["high"]) < 0 else 0
        return Number(with_other_sign(texts), (sign,))

    for name, (row, column) in (cells or {}).items():
        number = cell(row, column)
        if number is None:
            raise Wrong(f"found no number in the row {row} and the column {column} of the table {table}")
        yield name, number
    for name, row in (lines or {}).items():
        numbers = {column: number for column in columns if (number := cell(row, column))}
        if not numbers:
            raise Wrong(f"found no numbers in the row {row} of the table {table}")
        yield from ((f"{name}-{column}", number) for column, number in numbers.items())


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
    if keys.get("unit", "%") != "%":
        raise Wrong(f"found the unit {keys['unit']}, allowed: %, or no unit")
    sweeps = [keys["of"]] if isinstance(keys["of"], str) else keys["of"]
    quantities: list[Quantity] = []

    def by_seed(row: str) -> dict[int, float]:
        values, quantity = values_of(find_runs(sweeps, row, keys.get("setting")), QUANTITIES[key], keys.get("in"))
        if keys.get("unit") == "%":
            values, quantity = {seed: 100 / quantity.scale * one for seed, one in values.items()}, QUANTITIES[key]
        quantities.append(quantity)
        return values

    def difference(rows: Sequence[str]) -> PairedDifference | None:
        more, less, *others = map(by_seed, rows)
        if not others:
            return compare_pairs(less, more)
        return compare_pairs(subtract(*others), subtract(more, less))

    compared = {name: difference(rows) for name, rows in keys.get("pairs", {}).items()}
    rows_of = dict(keys.get("pairs", {}))
    for name, row in keys.get("changes", {}).items():
        rows_of[name], found = [row], by_seed(row)
        compared[name] = compare_pairs(dict.fromkeys(found, 0.0), found)
    for name, (row, one_run) in keys.get("against", {}).items():
        rows_of[name], found, alone = [row], by_seed(row), by_seed(one_run)
        if len(alone) != 1:
            raise Wrong(f"found {len(alone)} runs of {one_run} for {name}, allowed: one run")
        compared[name] = compare_pairs(dict.fromkeys(found, *alone.values()), found)
    for name, one in zip(compared, adjust_family([*compared.values()]), strict=True):
        if one is None:
            raise Wrong(f"the rows of {name} have no common seed")
        seeds = {"seeds": list_seeds([by_seed(row) for row in rows_of[name]], quantities[-1])}
        sign = (1 if one.mean > 0 else -1) if one.significant else 0
        yield name, Number(texts_of(one, quantities[-1]) | seeds, (sign,))
    for name, row in keys.get("rows", {}).items():
        mean = average([*by_seed(row).values()])
        assert mean is not None
        yield name, Number(texts_of(mean, quantities[-1]))
    for name, (row, *cell) in keys.get("levels", {}).items():
        mean = average([*by_seed(row).values()])
        assert mean is not None
        yield name, compare_level(mean, quantities[-1], *cell)


def compare_level(
    found: MeanOverSeeds, quantity: Quantity, paper: str, table: str, setting: str, method: str
) -> Number:
    """Return a mean over seeds, and the published one. They agree within the sum of both deviations."""
    columns = [one for one in read_paper(paper).tables if (one.table, one.setting) == (table, setting)]
    cells = [one.cells[method] for one in columns if one.metric == ACCURACY.key and method in one.cells]
    if len(cells) != 1 or found.std is None:
        raise Wrong(f"found {len(cells)} values of {method} in table {table}, {setting}, of {paper}, allowed: one")
    mean, std = cells[0]
    published = quantity.show(mean) + ("" if std is None else f" ± {quantity.show(std)}")
    agrees = abs(found.mean - mean) <= found.std + (std or 0.0)
    return Number(texts_of(found, quantity) | {"published": published}, (1 if agrees else -1,))


def subtract(more: Mapping[int, float], less: Mapping[int, float]) -> dict[int, float]:
    """Return the differences of the common seeds."""
    return {seed: more[seed] - less[seed] for seed in sorted(more.keys() & less.keys())}


def list_seeds(rows: Sequence[Mapping[int, float]], quantity: Quantity) -> str:
    """Return a row's values, or the differences of two or four rows, in the order of the seeds."""
    more, *others = rows
    found = subtract(more, others[0]) if others else more
    found = subtract(found, subtract(*others[1:])) if others[1:] else found
    return ", ".join(quantity.show(found[seed]) for seed in sorted(found))


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
        if quantity.key in OF_MATRIX:
            block = {**block, **of_matrix(block)}
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
