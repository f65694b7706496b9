"""Continual-learning metrics of the accuracy matrix a[t][i]: the accuracy on task i's test set after task t.

Every function takes the matrix as rows of fractions. An undefined metric (as with one task) is None, never NaN. The
formulas count tasks from 1. If an objective has another metric than accuracy, a[t][i] is its value. If lower is better,
the formulas apply to -a, so that forgetting is positive where the metric has become worse.
"""

from collections.abc import Sequence
from math import fsum
from operator import mul
from statistics import fmean
from typing import NotRequired, cast

from typing_extensions import TypedDict

from raysim.objectives import Metric
from raysim.objectives.classification import ACCURACY_METRIC

Matrix = Sequence[Sequence[float]]

SEEN = "class_il_seen"
"""The protocol that reads class-IL's logits a second time: the arg max is over the classes of the tasks so far."""

PROTOCOL_LABELS = {
    "domain_il": "domain-IL",
    "class_il": "class-IL",
    SEEN: "class-IL (seen classes)",
    "task_il": "task-IL",
}

TESTED_LABELS = {
    "global": "",
    "local": " of clients' own models",
    "global_per_client": " of the global model on clients' own data",
}


def protocol_label(protocol: str, top_k: int = 1, tested: str = "global") -> str:
    """Return the label of a protocol's accuracies, such as `class-IL top-5`, with the tested models if not global."""
    label = PROTOCOL_LABELS.get(protocol, protocol)
    return (label if top_k == 1 else f"{label} top-{top_k}") + TESTED_LABELS.get(tested, "")


def describe_mean(protocol: str, mean: float, metric: Metric, top_k: int = 1) -> str:
    """Return a mean over tasks as text, such as `class-IL 71.2%` or `domain-IL R2 0.812`."""
    name = "" if metric == ACCURACY_METRIC else f"{metric.name} "
    unit = metric.unit if metric.unit == "%" else metric.unit and f" {metric.unit}"
    return f"{protocol_label(protocol, top_k)} {name}{metric.figure(mean)}{unit}"


class MetricKeys(TypedDict):
    """The keys of a metric in summary.json. Accuracy has none."""

    metric: NotRequired[str]
    unit: NotRequired[str]
    higher_is_better: NotRequired[bool]


class OverTime(TypedDict):
    """The keys of one protocol in summary.json about the tasks seen after each task; see `measure_over_time`."""

    average_incremental_accuracy_by_task: NotRequired[float | None]
    average_incremental_accuracy: NotRequired[float | None]
    accuracy_seen: NotRequired[list[float]]
    final_accuracy: NotRequired[float | None]


class ProtocolMetrics(MetricKeys, OverTime):
    """The entry of one protocol in summary.json. All values are fractions, or None if undefined.

    `accuracy` is a[t][i], T x T. Another metric's name, unit and direction come first. If the evaluation is per client,
    a[t][i] is the clients' mean. `worst` and `std` are then matrices of the worst client and the standard deviation.
    """

    accuracy: list[list[float]]
    average_accuracy: float | None
    forgetting: float | None
    final_forgetting: float | None
    backward_transfer: float | None
    forward_transfer: float | None
    worst: NotRequired[list[list[float]]]
    std: NotRequired[list[list[float]]]


def average_accuracy(matrix: Matrix, after: int | None = None) -> float | None:
    """Acc_t = 1/t sum_{i<=t} a[t][i], the mean over tasks, not samples; t = `after`, by default the last row."""
    after = len(matrix) if after is None else after
    return fmean(matrix[after - 1][:after]) if 0 < after <= len(matrix) else None


def average_incremental_accuracy(matrix: Matrix) -> float | None:
    """AIA by task = 1/T sum_t Acc_t: the mean over the rows so far of the accuracy on the tasks so far."""
    return fmean(fmean(row[:t]) for t, row in enumerate(matrix, 1)) if matrix else None


def accuracy_over_samples(row: Sequence[float], samples: Sequence[int], after: int) -> float:
    """A_t = sum_{i<=t} n_i a[t][i] / sum_{i<=t} n_i, with t = `after`: the accuracy on all samples of the tasks so far.

    `samples` is n, the sizes of the tasks' test sets.
    """
    return fsum(map(mul, samples[:after], row[:after])) / sum(samples[:after])


def measure_over_time(matrix: Matrix, in_step: bool = True, samples: Sequence[int] | None = None) -> OverTime:
    """Return the metrics of what was seen after each task.

    Row t covers the tasks 1, ..., t, or all of them if not `in_step`: clients may have seen any of them. Without the
    number of test `samples` of each task, accuracies over samples are unknown.
    """
    found: OverTime = {
        "average_incremental_accuracy_by_task": average_incremental_accuracy(matrix) if in_step else None
    }
    if samples is None:
        return found
    seen = [accuracy_over_samples(row, samples, t if in_step else len(row)) for t, row in enumerate(matrix, 1)]
    return {
        **found,
        "average_incremental_accuracy": fmean(seen) if seen and in_step else None,
        "accuracy_seen": seen,
        "final_accuracy": seen[-1] if seen else None,
    }


def complete(values: ProtocolMetrics, samples: Sequence[int] | None = None) -> ProtocolMetrics:
    """Return the entry of one protocol in summary.json with the metrics that older versions of raysim did not write.

    Without the number of test `samples` of each task, accuracies over samples remain absent.
    """
    matrix = values["accuracy"]
    if any(len(row) < t for t, row in enumerate(matrix, 1)):
        return values  # no matrix of raysim's
    in_step = values["forgetting"] is not None or len(matrix) < 2
    return cast(ProtocolMetrics, {**values, **measure_over_time(matrix, in_step, samples), **values})


def forgetting(matrix: Matrix) -> float | None:
    """Fgt = 1/(T-1) sum_{i<T} max_{j<T} (a[j][i] - a[T][i]) (Fed-A-GEM; Chaudhry et al., 2018). It can be negative.

    As in the papers, the maximum is over every row before the last, including rows before task i was trained. Codes
    that do not evaluate future tasks have zeros there. They differ if a task did better before its training than after.
    """
    last = len(matrix)
    if last < 2:
        return None
    return fmean(max(row[i] for row in matrix[:-1]) - matrix[-1][i] for i in range(last - 1))


def final_forgetting(matrix: Matrix) -> float | None:
    """Forget = 1/(T-1) sum_{i<T} (a[i][i] - a[T][i]) (C-FLAG); what SPECIAL calls BWT, negated."""
    last = len(matrix)
    return fmean(matrix[i][i] - matrix[-1][i] for i in range(last - 1)) if last > 1 else None


def backward_transfer(matrix: Matrix) -> float | None:
    """BWT = 1/(T-1) sum_{i<T} (a[T][i] - a[i][i]) (Lopez-Paz & Ranzato, 2017)."""
    loss = final_forgetting(matrix)
    return None if loss is None else -loss + 0.0  # + 0.0: no negative zero


def forward_transfer(matrix: Matrix, untrained: Sequence[float]) -> float | None:
    """FWT = 1/(T-1) sum_{i>=2} (a[i-1][i] - b[i]), with b the accuracies of the untrained model."""
    last = len(matrix)
    return fmean(matrix[i - 1][i] - untrained[i] for i in range(1, last)) if last > 1 else None


def grade(matrix: Matrix, metric: Metric) -> list[list[float]]:
    """Return how good each value is, from 0 to 1, for colors: an accuracy itself, another metric by its extremes."""
    if metric.unit == "%":
        return [[min(1.0, max(0.0, value)) for value in row] for row in matrix]
    better = [list(metric.better(row)) for row in matrix]
    low = min((value for row in better for value in row), default=0.0)
    high = max((value for row in better for value in row), default=0.0)
    return [[(value - low) / (high - low) if high > low else 1.0 for value in row] for row in better]


def describe_metric(metric: Metric) -> MetricKeys:
    """Return the keys that name a metric in a summary; none for accuracy."""
    if metric == ACCURACY_METRIC:
        return {}
    return {"metric": metric.name, "unit": metric.unit, "higher_is_better": metric.higher_is_better}


def metric_of(summary: ProtocolMetrics) -> Metric:
    """Return the metric of a summary's values. Its range is not stored."""
    if "metric" not in summary:
        return ACCURACY_METRIC
    return Metric(summary["metric"], summary["unit"], summary["higher_is_better"])


def summarise(
    matrix: Matrix,
    untrained: Sequence[float] | None,
    in_step: bool = True,
    metric: Metric = ACCURACY_METRIC,
    samples: Sequence[int] | None = None,
) -> ProtocolMetrics:
    """Return the entry of one protocol in summary.json.

    Args:
        matrix: the accuracy matrix, or that of another metric.
        untrained: the accuracies of the untrained model. None if a task cannot be predicted before it is seen; forward
            transfer is then undefined.
        in_step: whether row t is the end of task t at all clients. Otherwise forgetting and the transfers are
            undefined.
        metric: the metric of the matrix.
        samples: the number of test samples of each task, if the values are accuracies of one model on them.
    """
    rising = [metric.better(row) for row in matrix]
    transfers = in_step and untrained is not None
    metrics = {
        **describe_metric(metric),
        "accuracy": [list(row) for row in matrix],
        "average_accuracy": average_accuracy(matrix),
        "forgetting": forgetting(rising) if in_step else None,
        "final_forgetting": final_forgetting(rising) if in_step else None,
        "backward_transfer": backward_transfer(rising) if in_step else None,
        "forward_transfer": forward_transfer(rising, metric.better(untrained or ())) if transfers else None,
        **measure_over_time(matrix, in_step, samples),
    }
    return cast(ProtocolMetrics, metrics)
