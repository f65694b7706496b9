"""Numbers in the text of pages, from the runs in results/. `make docs` writes them.

A number stands between two comments: `<!-- =digits.late -->5.6 (1.6 to 9.7)<!-- / -->`. It is the comparison `late` of
the family `digits`. A comment at the foot of the page has the families, in YAML:

    <!-- numbers, written by make docs
    digits: {of: re_fed, in: class_il, pairs: {late: [early, average]}}
    -->

`of` is one sweep or several, and `in` the protocol, if there are several. `metric` is a key of the summary
(average_accuracy by default). A pair is a row and the row that is subtracted; `SETTING / ROW` is in one setting, and
`SWEEP: ROW` in one sweep. The pairs of a family are corrected together. `rows` are means, each by its name.

`<!-- =digits.late: points -->` asks for another form of the same number; see FORMS. No comment may begin a line, as
Markdown would end the paragraph there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from raysim.reports.families import adjust_family
from raysim.reports.gains import show_p
from raysim.reports.grouping import ExperimentSetting, MethodGroup, group_runs
from raysim.reports.quantity_tables import ACCURACY, FAIRNESS, LEARNING, Quantity
from raysim.reports.reading import find_runs
from raysim.reports.statistics import MeanOverSeeds, PairedDifference, average, compare_pairs

ROOT = Path(__file__).parents[1]
FAMILIES = re.compile(r"<!-- numbers, written by make docs\n(?P<text>.*?)\n-->", re.DOTALL)
MARK = re.compile(r"<!-- =(?P<family>\w+)\.(?P<name>[\w-]+)(?:: (?P<form>\w+))? -->(?P<text>.*?)<!-- / -->", re.DOTALL)
QUANTITIES = {quantity.key: replace(quantity, digits=1) for quantity in (ACCURACY, *LEARNING, *FAIRNESS)}
FORMS = {
    "interval": "{mean} ({low} to {high})",
    "listed": "{mean}, {low} to {high}",
    "points": "{mean} points ({low} to {high})",
    "percent": "{mean}%",
    "alone": "{mean}",
    "ends": "{low} to {high}",
    "tested": "{mean} ({low} to {high}, p {p})",
    "p": "p {p}",
    "whole": "{whole}",
    "std": "{mean} ± {std}",
}
"""What is written of a number. `whole` has no decimals."""


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
        Wrong: a mark has no number, begins a line, or a family names what is not in the sweep.
    """
    numbers = dict(measure(page))

    def written(mark: re.Match[str]) -> str:
        name = f"{mark['family']}.{mark['name']}"
        if name not in numbers:
            raise Wrong(f"found the mark {name}, allowed: {', '.join(numbers)}")
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
            for name, number in measure_family(keys):
                yield f"{family}.{name}", number


def measure_family(keys: Mapping[str, Any]) -> Iterator[tuple[str, Number]]:
    """Yield the names and numbers of one family."""
    unknown = keys.keys() - {"of", "in", "metric", "pairs", "rows", "setting"}
    if unknown:
        raise Wrong(f"found {', '.join(sorted(unknown))} in a family, allowed: of, in, metric, setting, pairs, rows")
    key = keys.get("metric", ACCURACY.key)
    if key not in QUANTITIES:
        raise Wrong(f"found the metric {key}, allowed: {', '.join(QUANTITIES)}")
    sweeps = [keys["of"]] if isinstance(keys["of"], str) else keys["of"]

    def by_seed(row: str) -> tuple[dict[int, float], Quantity]:
        setting, group = find_group(sweeps, row, keys.get("setting"))
        return values_of(setting, group, QUANTITIES[key], keys.get("in"))

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
        if mean is None:
            raise Wrong(f"the row {row} has no values")
        yield name, Number(texts_of(mean, quantity))


def find_group(sweeps: list[str], row: str, setting: str | None) -> tuple[ExperimentSetting, MethodGroup]:
    """Return the row of a sweep, which is named as in its tables, and its setting."""
    before, divided, after = row.partition(": ")
    if divided and before in sweeps:
        sweeps, row = [before], after
    before, divided, after = row.partition(" / ")
    if divided:
        setting, row = before, after
    found = [
        (one, group)
        for sweep in sweeps
        for one in settings_of(sweep)
        if setting in (None, one.title)
        for group in one.groups
        if row in (group.label, group.name)
    ]
    if len(found) != 1:
        raise Wrong(f"found {len(found)} rows {row} in {', '.join(sweeps)}, allowed: one; name its setting or sweep")
    return found[0]


@cache
def settings_of(sweep: str) -> list[ExperimentSetting]:
    """Return the settings of a packed sweep."""
    return group_runs(find_runs([ROOT / "results" / sweep], []), [])


def values_of(
    setting: ExperimentSetting, group: MethodGroup, quantity: Quantity, protocol: str | None
) -> tuple[dict[int, float], Quantity]:
    """Return a row's values by seed as they are shown, and the quantity. Another metric than accuracy has 3 digits."""
    protocols = [*setting.protocols]
    if protocol is None and len(protocols) > 1:
        raise Wrong(f"found no protocol (in), allowed: {', '.join(protocols)}")
    if setting.metric.unit != "%":
        quantity = replace(quantity, scale=1, digits=3)
    return quantity.by_seed(group, protocol or protocols[0]), quantity


def texts_of(found: MeanOverSeeds, quantity: Quantity) -> dict[str, str]:
    """Return the texts of a number by their names in FORMS."""
    texts = {"mean": quantity.show(found.mean), "whole": f"{found.mean:.0f}"}
    if found.std is not None:
        texts["std"] = quantity.show(found.std)
    if isinstance(found, PairedDifference) and found.half is not None and found.p is not None:
        texts["low"], texts["high"] = (quantity.show(found.mean + sign * found.half) for sign in (-1, 1))
        texts["p"] = show_p(found.p)
    return texts


if __name__ == "__main__":
    for each in pages():
        each.write_text(insert_numbers(each.read_text(encoding="utf-8")), encoding="utf-8")
