"""Plots of the clients: their accuracies, and the staleness of their updates."""

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from raysim.reports.plots import style
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Array, Drawing, Look
from raysim.system.colors import GREY

MOST_DOTS = 120  # of one method; of more clients there is the box alone


def draw_clients_accuracies(scene: Scene) -> Iterator[Drawing]:
    """Yield for every protocol the spread of the clients' accuracies, if runs have those of several clients."""
    setting = scene.setting
    for protocol in setting.main_protocols:
        rows = []
        for group, look in zip(setting.groups, scene.looks, strict=True):
            known = [(run.summary.seed, (run.summary.per_client or {}).get(protocol)) for run in group.runs]
            found = [(f"client {k}, seed {seed}", 100 * accuracy)
                     for seed, clients in known if clients
                     for k, accuracy in enumerate(clients["accuracy"]) if accuracy is not None]  # fmt: skip
            if any(len(clients["accuracy"]) > 1 for _, clients in known if clients):
                rows.append((group.label, look, dict(found)))
        if rows:
            figure = style.make_figure(5.8, 1.1 + 0.42 * len(rows))
            axes = figure.add_subplot()
            for place, (label, look, accuracies) in enumerate(rows):
                _draw_spread(axes, place, label, look, accuracies)
            axes.set(xlabel=f"accuracy of a client (%), {setting.label(protocol)}", ylim=(len(rows) - 0.4, -0.6))
            axes.set_yticks(range(len(rows)), [label for label, *_ in rows])
            axes.grid(False, axis="y")
            words = (
                f"Clients' accuracies at the end, {setting.label(protocol)}, on their own classes and tasks, all seeds"
            )
            box = "box: the middle half, with the median; line: from the worst client to the best."
            yield Drawing(f"{setting.number}-{protocol}-clients-accuracies", f"{words}; {box}", figure)


def _draw_spread(axes: Axes, place: int, label: str, look: Look, accuracies: Mapping[str, float]) -> None:
    """Draw a row: a line from the worst client to the best, a box from quartile to quartile, a dot for each client."""
    values = np.asarray([*accuracies.values()])
    worst, low, median, high, best = np.percentile(values, [0, 25, 50, 75, 100])
    axes.plot([worst, best], [place, place], color=look["color"], linewidth=1)
    (box,) = axes.barh(place, high - low, 0.56, low, color=look["color"], alpha=0.25, zorder=2)
    axes.plot([median, median], [place - 0.28, place + 0.28], color=look["color"], linewidth=2.5, zorder=3)
    middle = f"median {median:.1f} %, middle half {low:.1f} to {high:.1f} %, worst {worst:.1f} %"
    style.put_titles(box, f"{label}: {middle}, {len(values)} clients")
    if len(values) <= MOST_DOTS:
        apart = 0.18 * np.resize([0, 1, -1, 0.5, -0.5], len(values))  # so that equal ones are seen
        (dots,) = axes.plot(values, place + apart, look["marker"], color=look["color"], markersize=4, alpha=0.8)
        style.put_titles(dots, label, [f"{label}, {who}: {value:.1f} %" for who, value in accuracies.items()])


def draw_staleness(scene: Scene) -> Iterator[Drawing]:
    """Yield the staleness of the server's updates, if some were stale. Methods with the same staleness share a line.

    Raises:
        ConfigError: a rounds.jsonl is missing or broken.
    """
    setting = scene.setting
    alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for index, runs in enumerate(scene.courses):
        counted = Counter(age for rounds in runs for line in rounds for age in line.staleness)
        if counted:
            alike.setdefault(tuple(sorted(counted.items())), []).append(index)
    oldest = max((age for ages in alike for age, _ in ages), default=0)
    if not oldest:
        return
    labels = [", ".join(setting.groups[index].label for index in members) for members in alike.values()]
    figure, axes = style.make_chart(labels, "", "staleness: server updates since the model was sent", "updates (%)")
    for label, (ages, (first, *_)) in zip(labels, alike.items(), strict=True):
        counts = np.asarray([dict(ages).get(age, 0) for age in range(oldest + 1)])
        share: Array = 100 * counts / counts.sum()
        said = [
            f"staleness {age}: {n:,} updates ({part:.1f} %)"
            for age, (n, part) in enumerate(zip(counts, share, strict=True))
        ]
        if len(alike) == 1:
            for bar, words in zip(axes.bar(range(oldest + 1), share, color=GREY), said, strict=True):
                style.put_titles(bar, words)
        else:
            (line,) = axes.plot(range(oldest + 1), share, label=style.in_legend(label), **scene.looks[first])
            style.put_titles(line, label, [f"{label}: {words}" for words in said])
    if len(alike) > 1:
        style.put_legend_below(figure, axes)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    whose = "all methods alike, " if len(alike) == 1 < len(setting.groups) else ""
    words = f"Staleness of the updates that the server took: {whose}all seeds together."
    yield Drawing(f"{setting.number}-staleness", words, figure)
