"""The final average against what a run costs: bytes and gradient steps, with the Pareto front."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from raysim.records.result import Result
from raysim.reports.colors import GREY
from raysim.reports.plots import style
from raysim.reports.plots.line_labels import PointLabel
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing, Look
from raysim.reports.tables import learning_of

FEWEST = 3  # methods
WIDE = 30  # the ratio of costs from which the axis is logarithmic
SIZE = (5.8, 3.9)  # inches
OTHER: Look = {"color": GREY, "marker": "o", "alpha": 0.5}
BOUND: Look = {"color": GREY, "marker": "x"}
ALIKE = 1.02  # the ratio of costs up to which methods cost the same


@dataclass(frozen=True)
class PlottedCost:
    """A cost of a run: the end of the file's name, the label of its axis, and what it is in words."""

    stem: str
    label: str
    words: str

    def of(self, summary: Result) -> float | None:
        """Return the cost of a run, or None if it was not recorded."""
        if self.stem == "bytes":
            return (summary.bytes_up + summary.bytes_down) / 2**20
        return None if summary.steps is None else float(summary.steps)


COSTS = (
    PlottedCost("bytes", "sent up and down, all clients together (MiB)", "the bytes sent"),
    PlottedCost("steps", "gradient steps, all clients together", "gradient steps"),
)


@dataclass(frozen=True)
class Point:
    """A method: the index of its group, its mean cost, and its mean final average."""

    index: int
    cost: float
    average: float


def draw_pareto(scene: Scene) -> Iterator[Drawing]:
    """Yield a plot for every protocol and cost, if the costs of at least three methods are known and differ."""
    for protocol in scene.setting.main_protocols:
        for cost in COSTS:
            points = find_points(scene, protocol, cost)
            costs = [point.cost for point in points if not scene.setting.groups[point.index].bound]
            if len(costs) >= FEWEST and max(costs) > ALIKE * min(costs):
                yield _draw(scene, protocol, cost, points)


def find_points(scene: Scene, protocol: str, cost: PlottedCost) -> list[Point]:
    """Return the groups in which every run has recorded the cost."""
    quantity = learning_of(scene.setting.metric)[0]
    points = []
    for index, group in enumerate(scene.setting.groups):
        costs = [found for run in group.runs if (found := cost.of(run.summary)) is not None]
        average = quantity.average_group(group, protocol)
        if average is not None and len(costs) == len(group.runs):
            points.append(Point(index, fmean(costs), average.mean))
    return points


def find_front(points: Sequence[Point], higher_is_better: bool) -> list[Point]:
    """Return the points that no other one is better than in one number and as good as in the other, by their cost."""
    sign = 1 if higher_is_better else -1

    def beaten(point: Point) -> bool:
        return any(
            other.cost <= point.cost
            and sign * other.average >= sign * point.average
            and (other.cost, other.average) != (point.cost, point.average)
            for other in points
        )

    return sorted((point for point in points if not beaten(point)), key=lambda point: (point.cost, point.index))


def _draw(scene: Scene, protocol: str, cost: PlottedCost, points: Sequence[Point]) -> Drawing:
    setting, metric, highlights = scene.setting, scene.setting.metric, scene.highlights(protocol)
    rivals = [point for point in points if not setting.groups[point.index].bound]
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
    bounds = " Bounds are crosses and not on it." if len(rivals) < len(points) else ""
    missing = [scene.labels[k] for k in range(len(setting.groups)) if k not in {point.index for point in points}]
    unknown = f" Not recorded for {', '.join(missing)}." if missing else ""
    stem = f"{setting.number}-{protocol}-pareto-{cost.stem}"
    return Drawing(stem, f"{words}; {line}{bounds}{unknown}{highlights.in_color}", figure)
