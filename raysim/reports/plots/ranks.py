"""The ranks of a setting's methods, with intervals."""

from collections.abc import Iterator, Mapping, Sequence

from raysim.reports.bootstrap import rank_over_seeds
from raysim.reports.plots import style
from raysim.reports.plots.highlights import MOST
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing, Look
from raysim.reports.ranks import FEWEST, Ranking, mean_ranks
from raysim.system.colors import GREY

WIDTH = 4.6  # inches
INTERVAL = "95% interval of a bootstrap over seeds"
OTHER: Look = {"color": GREY, "marker": "o"}


def draw_ranks(scene: Scene) -> Iterator[Drawing]:
    """Yield for every protocol the mean ranks over seeds, if there are several seeds and at least three methods."""
    for protocol in scene.setting.main_protocols:
        part = scene.evaluated(protocol)
        setting, ranking = part.setting, Ranking(part.setting, protocol)
        if len(ranking.ranked) < FEWEST or len(ranking.seeds) < 2:
            continue
        found = rank_over_seeds(ranking.values_by_seed([]).values, setting.metric.higher_is_better)
        members = [setting.groups.index(group) for group in ranking.ranked]
        highlights = part.highlights(protocol)
        rows = {
            part.labels[index]: (
                part.looks[index] if index in highlights.members else OTHER,
                (float(found.mean[place]), float(found.low[place]), float(found.high[place])),
            )
            for place, index in enumerate(members)
        }
        label, count = setting.label(protocol), len(ranking.seeds)
        words = f"Mean over {count} seeds of the rank by final average {setting.metric.name}, {label}; {INTERVAL}."
        left_out = [part.labels[k] for k in range(len(setting.groups)) if k not in members]
        why = "as bounds, by a remark or because of other seeds"
        unranked = f" Not ranked, {why}: {', '.join(left_out)}." if left_out else ""
        stem = f"{setting.number}-{protocol}-ranks"
        yield draw_rows(rows, words + unranked + highlights.in_color, stem, label, f"mean rank over {count} seeds")


def draw_overall_ranks(scenes: Sequence[Scene]) -> Iterator[Drawing]:
    """Yield the mean ranks over the settings of a report, which are those of its overview, if they have intervals."""
    settings = [scene.setting for scene in scenes]
    if len(settings) < 2 or len({setting.metric for setting in settings}) > 1:
        return
    rankings = [*map(Ranking, settings)]
    means = mean_ranks(rankings)
    if len(means) < FEWEST or any(found.interval is None for found in means.values()):
        return
    looks = dict(zip((group.name for group in settings[0].groups), scenes[0].looks, strict=True))
    best = sorted(means, key=lambda name: means[name].mean)
    baseline = next((g.name for g in settings[0].groups if not g.methods and g.name in means), best[0])
    joined = "" if baseline in best[:MOST] else f", and {baseline}"
    colored = [*best[: MOST - 1], baseline] if joined else best[:MOST]
    rows = {
        name: (looks[name] if name in colored else OTHER, (found.mean, *found.interval))
        for name, found in means.items()
        if found.interval is not None
    }
    names = "; ".join(f"{one.setting.title}, {one.setting.label(one.protocol)}" for one in rankings)
    words = f"Mean over settings of the rank by final average {settings[0].metric.name} ({names}); {INTERVAL}."
    axis = f"mean rank over {len(settings)} settings"
    in_color = f" In color: the best ones{joined}." if len(means) > len(colored) else ""
    yield draw_rows(rows, words + in_color, "ranks", "all settings", axis)


def draw_rows(
    rows: Mapping[str, tuple[Look, tuple[float, float, float]]], caption: str, stem: str, title: str, axis: str
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
    axes.set(xlabel=f"{axis} (1 is best)", ylim=(len(order) - 0.4, -0.6), xlim=(0.5, None))
    axes.set_title(title, loc="left")
    return Drawing(stem, caption, figure)
