"""The final average against what a run costs: bytes and gradient steps, with the Pareto front."""

from collections.abc import Iterator, Sequence

from raysim.reports.costs import COSTS, Point, RunCost, differ, find_front, find_points, find_rivals
from raysim.reports.plots import style
from raysim.reports.plots.line_labels import PointLabel
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing, Look
from raysim.system.colors import GREY

WIDE = 30  # the ratio of costs from which the axis is logarithmic
SIZE = (5.8, 3.9)  # inches
OTHER: Look = {"color": GREY, "marker": "o", "alpha": 0.5}
BOUND: Look = {"color": GREY, "marker": "x"}


def draw_pareto(scene: Scene) -> Iterator[Drawing]:
    """Yield a plot for every protocol and cost, if the costs of at least three methods are known and differ."""
    for protocol in scene.setting.main_protocols:
        part = scene.evaluated(protocol)
        for cost in COSTS:
            points = find_points(part.setting, protocol, cost)
            if differ(find_rivals(part.setting, points)):
                yield _draw(part, protocol, cost, points)


def _draw(scene: Scene, protocol: str, cost: RunCost, points: Sequence[Point]) -> Drawing:
    setting, metric, highlights = scene.setting, scene.setting.metric, scene.highlights(protocol)
    rivals = find_rivals(setting, points)
    front = find_front(rivals, metric.higher_is_better)
    figure = style.make_figure(*SIZE)
    axes = figure.add_subplot()
    most, least = max(point.cost for point in points), min(point.cost for point in points)
    axes.step(
        [*(point.cost for point in front), most],
        [*(point.average for point in front), front[-1].average],
        where="post",
        color=GREY,
        linewidth=1.2,
        zorder=1,
    )
    for point in points:
        colored, bound = point.index in highlights.members, point not in rivals
        other = BOUND if bound else OTHER
        look = {**(scene.looks[point.index] if colored else other), "linestyle": "none", "zorder": 2 + colored}
        (mark,) = axes.plot([point.cost], [point.average], **look)
        label = scene.labels[point.index]
        style.put_titles(mark, f"{label}: {point.average:.4g}{metric.axis} at {point.cost:,.4g} {cost.words}")
        if colored or bound or point in front:
            PointLabel(axes, (point.cost, point.average), label, look["color"])
    if most > WIDE * least > 0:
        axes.set_xscale("log")
    axes.set(xlabel=cost.label, ylabel=f"final average {metric.name}{metric.axis}")
    axes.set_title(setting.label(protocol), loc="left")
    axes.margins(0.08, 0.16)
    words = f"Final average {metric.name} against {cost.words}, {setting.label(protocol)}: means over seeds"
    line = "the line is the Pareto front: its methods have no rival that is better and costs no more."
    others = [point for point in points if point not in rivals]
    only_bounds = all(setting.groups[point.index].bound for point in others)
    what = "Bounds" if only_bounds else "Bounds and methods without a rank"
    bounds = f" {what} are crosses and not on it." if others else ""
    missing = [scene.labels[k] for k in range(len(setting.groups)) if k not in {point.index for point in points}]
    unknown = f" Not recorded for {', '.join(missing)}." if missing else ""
    stem = f"{setting.number}-{protocol}-pareto-{cost.stem}"
    return Drawing(stem, f"{words}; {line}{bounds}{unknown}{highlights.in_color}", figure)
