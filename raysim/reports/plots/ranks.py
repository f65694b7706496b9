"""The ranks of a setting's methods, with intervals."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from raysim.reports.bootstrap import Array, average_ranks, rank
from raysim.reports.colors import GREY
from raysim.reports.grouping import ExperimentSetting
from raysim.reports.plots import style
from raysim.reports.plots.highlights import MOST
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing, Look
from raysim.reports.tables import learning_of

FEWEST = 3  # methods that are worth a rank
WIDTH = 4.6  # inches
INTERVAL = "95% interval of a bootstrap over seeds"
OTHER: Look = {"color": GREY, "marker": "o"}


@dataclass(frozen=True, eq=False)
class RankedGroups:
    """The ranks of the groups that have all seeds: their indices, the seeds, and the ranks [seeds, groups]."""

    members: Sequence[int]
    seeds: Sequence[int]
    ranks: Array


def rank_groups(setting: ExperimentSetting, protocol: str) -> RankedGroups | None:
    """Return the ranks of a setting's groups by their final average, or None if groups or seeds are too few."""
    quantity = learning_of(setting.metric)[0]
    values = [quantity.by_seed(group, protocol) for group in setting.groups]
    most = max(map(len, values))
    seeds = sorted(next(found for found in values if len(found) == most))
    members = [
        index
        for index, (group, found) in enumerate(zip(setting.groups, values, strict=True))
        if not group.bound and found.keys() >= {*seeds}
    ]
    if len(members) < FEWEST or len(seeds) < 2:
        return None
    table = np.asarray([[values[index][seed] for index in members] for seed in seeds])
    return RankedGroups(members, seeds, rank(table, quantity.higher_is_better))


def draw_ranks(scene: Scene) -> Iterator[Drawing]:
    """Yield for every protocol the mean ranks over seeds, if there are several seeds and at least three methods."""
    setting = scene.setting
    for protocol in setting.main_protocols:
        if (ranked := rank_groups(setting, protocol)) is None:
            continue
        found = average_ranks([ranked.ranks])
        highlights = scene.highlights(protocol)
        rows = {
            scene.labels[index]: (
                scene.looks[index] if index in highlights.members else OTHER,
                (float(found.mean[place]), float(found.low[place]), float(found.high[place])),
            )
            for place, index in enumerate(ranked.members)
        }
        label = setting.label(protocol)
        words = f"Mean rank by final average {setting.metric.name}, {label}, over {len(ranked.seeds)} seeds; {INTERVAL}"
        left_out = [scene.labels[k] for k in range(len(setting.groups)) if k not in ranked.members]
        unranked = f" Not ranked, as bounds or without some seeds: {', '.join(left_out)}." if left_out else ""
        stem = f"{setting.number}-{protocol}-ranks"
        yield draw_rows(rows, f"{words}.{unranked}{highlights.in_color}", stem, label)


def draw_overall_ranks(scenes: Sequence[Scene]) -> Iterator[Drawing]:
    """Yield the mean ranks over the settings of a report, by each setting's first protocol.

    Settings with too few groups or seeds for a rank do not count. Methods are ranked that have a rank in all others.
    """
    first = [(scene, rank_groups(scene.setting, scene.setting.main_protocols[0])) for scene in scenes]
    known = [
        (scene, {scene.labels[k]: n for n, k in enumerate(found.members)}, found) for scene, found in first if found
    ]
    if len(known) < 2:
        return
    common = [label for label in known[0][1] if all(label in places for _, places, _ in known)]
    if len(common) < FEWEST:
        return
    ranks = [rank(found.ranks[:, [places[name] for name in common]], False) for _, places, found in known]
    mean = average_ranks(ranks)
    looks, baseline = _looks_of(known[0][0])
    best = sorted(common, key=lambda name: float(mean.mean[common.index(name)]))
    colored = {*best[:MOST]} if baseline in best[:MOST] else {*best[: MOST - 1], baseline}
    rows = {
        name: (
            looks[name] if name in colored else OTHER,
            (float(mean.mean[place]), float(mean.low[place]), float(mean.high[place])),
        )
        for place, name in enumerate(common)
    }
    names = "; ".join(f"{one.setting.title}, {one.setting.label(one.setting.main_protocols[0])}" for one, *_ in known)
    words = f"Mean rank over {len(known)} settings ({names}) by final average of the methods that all of them have"
    yield draw_rows(rows, f"{words}; {INTERVAL}, which are drawn in each setting separately.", "ranks", "all settings")


def _looks_of(scene: Scene) -> tuple[Mapping[str, Look], str | None]:
    """Return the looks of the groups of a setting by their names, and the name of FedAvg."""
    baseline = next((k for k, group in enumerate(scene.setting.groups) if not group.methods), None)
    looks = dict(zip(scene.labels, scene.looks, strict=True))
    return looks, None if baseline is None else scene.labels[baseline]


def draw_rows(
    rows: Mapping[str, tuple[Look, tuple[float, float, float]]], caption: str, stem: str, title: str
) -> Drawing:
    """Return a plot of the rows by label, each with its look, its mean rank and the ends of its interval."""
    figure = style.make_figure(WIDTH, 0.95 + 0.22 * len(rows))
    axes = figure.add_subplot()
    order = sorted(rows.items(), key=lambda row: row[1][1])
    for place, (label, (look, (mean, low, high))) in enumerate(order):
        axes.plot([low, high], [place, place], color=look["color"], linewidth=2, alpha=0.7, solid_capstyle="butt")
        (point,) = axes.plot([mean], [place], **{**look, "linestyle": "none"})
        style.put_titles(point, f"{label}: mean rank {mean:.2f}, {low:.2f} to {high:.2f}")
    axes.set_yticks(range(len(order)), [label for label, _ in order])
    axes.set(xlabel="mean rank (1 is best)", ylim=(len(order) - 0.4, -0.6), xlim=(0.5, None))
    axes.set_title(title, loc="left")
    return Drawing(stem, caption, figure)
