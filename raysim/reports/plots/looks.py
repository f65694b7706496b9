"""The look of every method in a report: its color is that of its base method, its dash that of the added component.

A component is a method that groups have after another one and never before another one. The other methods of a group
are its base, and FedAvg is the base of a group without others.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence

from raysim.reports.grouping import ExperimentSetting, MethodGroup
from raysim.reports.plots.highlights import choose_highlights
from raysim.reports.plots.style import Look, choose_look
from raysim.system.colors import COLORS

Key = tuple[str, str]
"""What identifies the base of a group, and what identifies its components."""


def choose_looks(settings: Sequence[ExperimentSetting]) -> list[list[Look]]:
    """Return the look of each group by setting. The same methods look the same in all settings.

    Methods are the same if their names are, and their hyperparameters too if a setting has them more than once. The
    colors of methods that are highlighted together differ, as long as there are enough.
    """
    keys = _identify_groups(settings)
    components = list(dict.fromkeys(["[]", *(key[1] for row in keys for key in row)]))
    numbers = _number_bases(settings, keys)
    return [[choose_look(numbers[base], components.index(added)) for base, added in row] for row in keys]


def find_components(groups: Sequence[MethodGroup]) -> frozenset[str]:
    """Return the methods that groups have after another one and never before another one."""
    several = [[*group.methods] for group in groups if len(group.methods) > 1]
    return frozenset(name for names in several for name in names[1:]) - {names[0] for names in several}


def _identify_groups(settings: Sequence[ExperimentSetting]) -> list[list[Key]]:
    components = find_components([group for setting in settings for group in setting.groups])
    names = [Counter(tuple(group.methods) for group in setting.groups) for setting in settings]
    repeated = {methods for counts in names for methods, count in counts.items() if count > 1}
    return [[_identify(group, setting, components, repeated) for group in setting.groups] for setting in settings]


def _identify(
    group: MethodGroup, setting: ExperimentSetting, components: frozenset[str], repeated: set[tuple[str, ...]]
) -> Key:
    if tuple(group.methods) not in repeated:
        base = [name for name in group.methods if name not in components]
        return json.dumps(base), json.dumps([name for name in group.methods if name in components])
    # a sweep names a row after its method and its tuned values, which may differ between settings
    if group.name != group.label:
        return json.dumps(group.name), "[]"
    knobs = group.methods.items()
    return (
        json.dumps([one for one in knobs if one[0] not in components]),
        json.dumps([one for one in knobs if one[0] in components]),
    )


def _number_bases(settings: Sequence[ExperimentSetting], keys: Sequence[Sequence[Key]]) -> Mapping[str, int]:
    """Return a number for each base, which decides its color. Those that are highlighted come first."""
    in_color = [
        {base for index, (base, _) in enumerate(row) if index in choose_highlights(setting, protocol).members}
        for setting, row in zip(settings, keys, strict=True)
        for protocol in setting.main_protocols
    ]
    every = [{base for base, _ in row} for row in keys]
    highlighted = set[str]().union(*in_color)
    bases = sorted(dict.fromkeys(base for row in keys for base, _ in row), key=lambda base: base not in highlighted)
    numbers: dict[str, int] = {}
    for base in bases:
        plots = [plot for plot in (in_color if base in highlighted else every) if base in plot]
        rivals = {numbers[other] % len(COLORS) for plot in plots for other in plot if other in numbers}
        unused = [number for number in range(len(COLORS) * len(bases)) if number not in numbers.values()]
        numbers[base] = next((number for number in unused if number % len(COLORS) not in rivals), unused[0])
    return numbers
