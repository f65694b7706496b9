"""The methods that a plot of many methods highlights. The others are grey."""

from collections.abc import Sequence
from dataclasses import dataclass

from raysim.reports.grouping import ExperimentSetting
from raysim.reports.quantity_tables import learning_of

MOST = 6  # methods in color: as many as readers can distinguish


@dataclass(frozen=True)
class Highlights:
    """The highlighted groups of a setting.

    Attributes:
        members: the indices of the groups.
        bounds: the indices of other groups that are bounds: their lines are dotted and have labels too.
        rule: how the members were chosen; empty if all are highlighted.
    """

    members: frozenset[int]
    bounds: frozenset[int] = frozenset()
    rule: str = ""

    @property
    def in_color(self) -> str:
        """The rule as a sentence of the caption of a plot that draws the others in grey."""
        return f" In color: {self.rule}; the others are grey." if self.rule else ""

    @property
    def in_color_with_bounds(self) -> str:
        """The rule as a sentence of the caption of a plot of lines, in which those of bounds are dotted."""
        return self.in_color.removesuffix(".") + ", bounds dotted." if self.rule and self.bounds else self.in_color

    @property
    def shown(self) -> str:
        """The rule as a sentence of the caption of a plot that omits the others."""
        return f" Shown: {self.rule}." if self.rule else ""


def choose_highlights(setting: ExperimentSetting, protocol: str) -> Highlights:
    """Return all groups if they are few. Of many, return those with the best final average, and FedAvg.

    Bounds are no competitors, so they are not among the best of many.
    """
    count, metric = len(setting.groups), setting.metric
    if count <= MOST:
        return Highlights(frozenset(range(count)))
    bounds = frozenset(index for index, group in enumerate(setting.groups) if group.bound)
    best = [index for index in _sort_by_average(setting, protocol) if index not in bounds]
    baseline = min((index for index in best if not setting.groups[index].methods), default=None)
    if len(best) <= MOST:
        return Highlights(frozenset(best), bounds, "all methods without bounds")
    chosen = best[:MOST]
    joined = ""
    if baseline is not None and baseline not in chosen:
        chosen = [*best[: MOST - 1], baseline]
        joined = f", and {setting.groups[baseline].name}"
    best_of = f"the {MOST - bool(joined)} best of {count - len(bounds)} by final average {metric.name}"
    return Highlights(frozenset(chosen), bounds, f"{best_of}{joined}")


def _sort_by_average(setting: ExperimentSetting, protocol: str) -> Sequence[int]:
    """Return the indices of the groups that have an average, the best first."""
    quantity = learning_of(setting.metric)[0]
    means = [quantity.average_group(group, protocol) for group in setting.groups]
    sign = -1 if quantity.higher_is_better else 1
    known = [(sign * found.mean, index) for index, found in enumerate(means) if found is not None]
    return [index for _, index in sorted(known)]
