"""What runs cost, and the methods that no other one beats at their cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from raysim.records.result import Result
from raysim.reports.grouping import ExperimentSetting
from raysim.reports.quantity_tables import NOTHING, ReportTable, TableCell, learning_of

FEWEST = 3  # methods
ALIKE = 1.02  # the ratio of costs up to which methods cost the same


@dataclass(frozen=True)
class RunCost:
    """A cost of a run: the end of its figure's name, its heading, the label of its axis, and what it is in words."""

    stem: str
    heading: str
    label: str
    words: str

    def of(self, summary: Result) -> float | None:
        """Return the cost of a run, or None if it was not recorded."""
        if self.stem == "bytes":
            return (summary.bytes_up + summary.bytes_down) / 2**20
        return None if summary.steps is None else float(summary.steps)


BYTES = RunCost("bytes", "sent, MiB", "sent up and down, all clients together (MiB)", "the bytes sent")
STEPS = RunCost("steps", "gradient steps", "gradient steps, all clients together", "gradient steps")
COSTS = (BYTES, STEPS)


@dataclass(frozen=True)
class Point:
    """A method: the index of its group, its mean cost, and its mean final average."""

    index: int
    cost: float
    average: float


def find_points(setting: ExperimentSetting, protocol: str, cost: RunCost) -> list[Point]:
    """Return the groups in which every run has recorded the cost."""
    quantity = learning_of(setting.metric)[0]
    points = []
    for index, group in enumerate(setting.groups):
        costs = [found for run in group.runs if (found := cost.of(run.summary)) is not None]
        average = quantity.average_group(group, protocol)
        if average is not None and len(costs) == len(group.runs):
            points.append(Point(index, fmean(costs), average.mean))
    return points


def find_rivals(setting: ExperimentSetting, points: Sequence[Point]) -> list[Point]:
    """Return the points that compete: no bounds, and no rows that a sweep excludes."""
    return [point for point in points if setting.groups[point.index].ranked]


def differ(points: Sequence[Point]) -> bool:
    """Return whether there are enough methods with different costs for a front."""
    costs = [point.cost for point in points]
    return len(costs) >= FEWEST and max(costs) > ALIKE * min(costs)


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


def tabulate_budgets(setting: ExperimentSetting, protocol: str) -> ReportTable | None:
    """Return the methods that compete with both costs, the best first, and a mark for each front that they are on.

    None if fewer than three methods have recorded both costs, or if both are the same for all.
    """
    found = {cost: find_rivals(setting, find_points(setting, protocol, cost)) for cost in COSTS}
    if not any(differ(points) for points in found.values()) or any(len(one) < FEWEST for one in found.values()):
        return None
    best, quantity = setting.metric.higher_is_better, learning_of(setting.metric)[0]
    fronts = {cost: find_front(points, best) if differ(points) else [] for cost, points in found.items()}
    steps = {point.index: f"{point.cost:.0f}" for point in found[STEPS]}
    rows = []
    for point in sorted(found[BYTES], key=lambda point: point.average, reverse=best):  # every run knows its bytes
        group = setting.groups[point.index]
        mean = quantity.show_mean(quantity.average_group(group, protocol))
        on = [cost.stem for cost, front in fronts.items() if point.index in {other.index for other in front}]
        texts = (group.label, mean, f"{point.cost:.2f}", steps.get(point.index, NOTHING), " and ".join(on))
        rows.append([*map(TableCell, texts)])
    return ReportTable(
        f"{setting.label(protocol)} and what it costs, all clients together",
        ("methods", quantity.title, BYTES.heading, STEPS.heading, "on the Pareto front of"),
        rows,
        "No other method is at least as good at no higher cost, and better or cheaper, than one on a front.",
    )
