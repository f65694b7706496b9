"""What an added method changes: pairs of groups that differ by one method, in families of tests."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from raysim.reports.families import adjust_family
from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.naming import derive_label
from raysim.reports.quantity_tables import NOTHING, TEST, Quantity, ReportTable, TableCell, learning_of
from raysim.reports.reading import Methods
from raysim.reports.statistics import PairedDifference, compare_pairs

Pair = tuple[MethodGroup, MethodGroup]
"""A group, and the one it is compared with."""
MEANING = (
    f"Mean of the paired differences with its interval and p ({TEST} over the column). An interval excludes 0 exactly "
    "if p is below 0.05."
)


@dataclass(frozen=True, eq=False)
class GainFamily:
    """Pairs of groups that answer one question.

    Attributes:
        title: the question.
        pairs: the group and the base of each pair.
        added: the name of the method that is added to several bases; empty if one base has several groups.
    """

    title: str
    pairs: Sequence[Pair]
    added: str = ""

    @property
    def names(self) -> Sequence[str]:
        """The name of each pair in the table."""
        return self.name_pairs(lambda group: group.label)

    def name_pairs(self, name: Callable[[MethodGroup], str]) -> Sequence[str]:
        """Return a name for each pair: the base's, if a method is added to several, and else the group's.

        Rows of a sweep may have the same methods with other keys. Then one base has several pairs, which have the group
        in parentheses.
        """
        named = [name(base if self.added else group) for group, base in self.pairs]
        counts = Counter(named)
        return [
            f"{one} ({name(group)})" if counts[one] > 1 else one
            for one, (group, _) in zip(named, self.pairs, strict=True)
        ]

    @property
    def sayings(self) -> Sequence[str]:
        """What each pair does, as the beginning of a sentence, such as `Fed-A-GEM, added to FL,`."""
        if self.added and len({base.label for _, base in self.pairs}) == len(self.pairs):
            return [f"{self.added}, added to {base.label}," for _, base in self.pairs]
        return [f"{group.label}, compared with {base.label}," for group, base in self.pairs]


def find_families(setting: ExperimentSetting, asked: Sequence[tuple[str, str]] = ()) -> list[GainFamily]:
    """Return the families of pairs in which one group has a single method more; each pair is in one family.

    A method that is added to several bases has a family. The other pairs are in families by their base. So are pairs
    that differ otherwise and are `asked` for by the names of their groups, in separate families.
    """
    among = [group.methods for group in setting.groups]
    by_method: dict[str, list[tuple[Methods, Pair]]] = {}
    for base, extended in product(setting.groups, setting.groups):
        added = _added(base.methods, extended.methods)
        if added is not None and not extended.bound and base is _nearest(setting.groups, base, extended):
            by_method.setdefault(json.dumps(added, sort_keys=True), []).append((added, (extended, base)))
    families: list[GainFamily] = []
    by_base: dict[str, list[Pair]] = {}
    for found in by_method.values():
        pairs = [pair for _, pair in found]
        if len(pairs) > 1:
            name = derive_label(found[0][0], among)
            families.append(GainFamily(f"what {name} changes, added to other methods", pairs, name))
        else:
            by_base.setdefault(f"what an added method changes in {pairs[0][1].label}", []).append(pairs[0])
    known = {frozenset(pair) for found in by_method.values() for _, pair in found}
    groups = {name: group for group in setting.groups for name in (group.label, group.name)}
    for one, other in asked:
        if {one, other} <= groups.keys() and frozenset(pair := (groups[one], groups[other])) not in known:
            known.add(frozenset(pair))  # it may be asked for twice
            by_base.setdefault(f"other methods, compared with {pair[1].label}", []).append(pair)
    return families + [GainFamily(title, pairs) for title, pairs in by_base.items()]


def measure_family(pairs: Iterable[Pair], quantity: Quantity, protocol: str) -> list[PairedDifference | None]:
    """Return the differences of a family's pairs over their common seeds, corrected."""
    values = [[quantity.by_seed(group, protocol) for group in pair] for pair in pairs]
    return adjust_family([compare_pairs(base, group) for group, base in values])


def gains_by_labels(
    setting: ExperimentSetting, quantity: Quantity, protocol: str, asked: Sequence[tuple[str, str]] = ()
) -> Mapping[tuple[str, str], PairedDifference]:
    """Return the differences of all families, corrected in each, by the labels of the two groups."""
    found: dict[tuple[str, str], PairedDifference] = {}
    for family in find_families(setting.evaluated(protocol), asked):
        measured = measure_family(family.pairs, quantity, protocol)
        for (group, base), one in zip(family.pairs, measured, strict=True):
            if one is not None:
                found[group.label, base.label] = one
    return found


def tabulate_gains(
    setting: ExperimentSetting, protocol: str, asked: Sequence[tuple[str, str]] = ()
) -> list[ReportTable]:
    """Return a table for each family, with the changes in what was learned."""
    learning = learning_of(setting.metric)
    tables: list[ReportTable] = []
    for family in find_families(setting.evaluated(protocol), asked):
        columns = [measure_family(family.pairs, quantity, protocol) for quantity in learning]
        rows = [
            (
                TableCell(name),
                TableCell(str(count_common_seeds(*pair))),
                *(TableCell(show_change(quantity, one)) for quantity, one in zip(learning, row, strict=True)),
            )
            for name, pair, row in zip(family.names, family.pairs, zip(*columns, strict=True), strict=True)
        ]
        headings = (
            "added to" if family.added else "methods",
            "common seeds",
            *(quantity.title for quantity in learning),
        )
        caption = f"{setting.label(protocol)}: {family.title}"
        said = [
            f"{saying} gives the same models, bit by bit."
            if _same_models(*pair)
            else say_gain(saying, one, learning[0])
            for saying, pair, one in zip(family.sayings, family.pairs, columns[0], strict=True)
        ]
        verdict = sum_up(columns[0], learning[0])
        tables.append(ReportTable(caption, headings, rows, MEANING, 2, verdict, sentences=[*filter(None, said)]))
    return tables


def sum_up(family: Sequence[PairedDifference | None], quantity: Quantity) -> str:
    """Return a sentence about a family: how many differences raise or lower a quantity, and how many significantly."""
    found = [one for one in family if one is not None]
    parts = [
        f"{verb} in {len(those)}" + f" ({sum(one.significant for one in those)} significantly)"
        for verb, sign in (("higher", 1), ("lower", -1))
        if (those := [one for one in found if one.mean * sign > 0])
    ]
    alike = sum(one.mean == 0 for one in found)
    parts += [f"equal in {alike}"] * (alike > 0)
    comparisons = f"{len(found)} comparison{'s' * (len(found) != 1)}"
    return f"Of {comparisons}, the {quantity.heading} is {', '.join(parts)}." if found else ""


def say_gain(saying: str, found: PairedDifference | None, quantity: Quantity) -> str:
    """Return a sentence about a gain: its direction, its size and whether it is significant."""
    if found is None:
        return ""
    points = " points" if quantity.unit == "%" else ""
    changes = "does not change" if found.mean == 0 else "raises" if found.mean > 0 else "lowers"
    size, nothing = quantity.show(abs(found.mean)), quantity.show(0.0)
    shown = f"less than {quantity.show(10.0**-quantity.digits)}" if size == nothing else size
    by = "" if found.mean == 0 else f" by {shown}{points}"
    told = "significant" if found.significant else "not significant"
    seeds = f"{found.pairs} seed{'s' * (found.pairs > 1)}"
    test = f": {told}" if found.p is None else f": {told}, p {show_p(found.p)}"
    return f"{saying} {changes} the {quantity.heading}{by} ({seeds}){test}."


def show_change(quantity: Quantity, found: PairedDifference | None) -> str:
    """Return a mean of paired differences with its interval and p, if there are any, or a dash."""
    if found is None:
        return NOTHING
    mean = quantity.show(found.mean, sign=True)
    if found.half is None or found.p is None:
        return f"{mean} in each seed" if found.exact else mean
    ends = (quantity.show(end, sign=True) for end in (found.mean - found.half, found.mean + found.half))
    return f"{mean} ({' to '.join(ends)}), p {show_p(found.p)}"


def show_p(p: float) -> str:
    """Return a p value as text. One below 0.05 never looks like 0.05."""
    if p < 0.001:
        return "< 0.001"
    return format(min(p, 0.0499) if p < 0.05 else p, ".4f" if 0.0495 <= p < 0.0505 else ".3f")


def count_common_seeds(one: MethodGroup, other: MethodGroup) -> int:
    """Return the number of seeds that two groups share."""
    return len({run.summary.seed for run in one.runs} & {run.summary.seed for run in other.runs})


def _same_models(one: MethodGroup, other: MethodGroup) -> bool:
    """Return whether two groups have common seeds, and the same models with all of them: the method did nothing."""
    models, others = ({run.summary.seed: run.summary.model_sha256 for run in group.runs} for group in (one, other))
    common = models.keys() & others.keys()
    return bool(common) and all(models[seed] is not None and models[seed] == others[seed] for seed in common)


def _nearest(groups: Sequence[MethodGroup], base: MethodGroup, extended: MethodGroup) -> MethodGroup:
    """Return the group with the methods of `base` that differs from `extended` in the fewest other keys."""

    def distance(group: MethodGroup) -> int:
        keys = group.own.keys() | extended.own.keys()
        return sum(group.own.get(key) != extended.own.get(key) for key in keys)

    return min((group for group in groups if [*group.methods.items()] == [*base.methods.items()]), key=distance)


def _added(base: Methods, extended: Methods) -> Methods | None:
    """Return the single method that `extended` has in addition to `base`, or None if they differ otherwise."""
    added = [name for name in extended if name not in base]
    if len(added) != 1:
        return None
    rest = [(name, knobs) for name, knobs in extended.items() if name != added[0]]
    return {added[0]: extended[added[0]]} if rest == list(base.items()) else None
