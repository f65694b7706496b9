"""Clients in virtual time: when each was sent the model and was back, as a Gantt chart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from raysim.reports.plots import style
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing
from raysim.system import colors

MOST_ROWS = 40  # clients; of more, this number is drawn, evenly spaced
MOST_BARS = 400  # of more, those that were sent first
# by the fate of a dispatch: how its bar differs without colors too, and the label in the legend
FATES: dict[str, tuple[dict[str, Any], str]] = {
    "used": ({}, "its update was used"),
    "discarded": ({"hatch": "////"}, "discarded as too old"),
    "dropped": ({"linestyle": ":"}, "dropped out, never trained"),
    "unused": ({}, "unused: the run ended first"),
}


@dataclass(frozen=True)
class Bar:
    """A dispatch of the model to a client.

    Attributes:
        round: the round in which the client was sent the model.
        client: the client's id.
        sent: when it was sent the model, in virtual seconds.
        back: when its update arrived, or would have arrived.
        fate: what became of the update, one of FATES.
    """

    round: int
    client: int
    sent: float
    back: float
    fate: str


def draw_clients_in_time(scene: Scene) -> Iterator[Drawing]:
    """Yield the chart of the first run of the setting that has recorded dispatches (logging.dispatches).

    Raises:
        ConfigError: a rounds.jsonl is missing or broken.
    """
    recorded = (
        (group, run, rounds)
        for group, courses in zip(scene.setting.groups, scene.courses, strict=True)
        for run, rounds in zip(group.runs, courses, strict=True)
        if any(line.dispatches for line in rounds)
    )
    if (first := next(recorded, None)) is None:
        return
    group, run, rounds = first
    bars = [Bar(line.round, *dispatch) for line in rounds for dispatch in line.dispatches or ()]
    everyone = sorted({bar.client for bar in bars})
    rows = [everyone[k * len(everyone) // MOST_ROWS] for k in range(MOST_ROWS)]
    rows = everyone if len(everyone) <= MOST_ROWS else rows
    bars = sorted((bar for bar in bars if bar.client in rows), key=lambda bar: (bar.sent, bar.client))
    whole = len(bars) <= MOST_BARS
    over = rounds[-1].virtual_time or 0.0
    until = over if whole else bars[MOST_BARS].sent
    figure = style.make_figure(9, 1.3 + 0.22 * max(len(rows), 4))
    axes = figure.add_subplot()
    updates = [line.virtual_time for line in rounds if line.virtual_time is not None and line.virtual_time <= until]
    axes.vlines(updates, -0.6, len(rows) - 0.4, color=colors.FAINT, linewidth=0.7, zorder=0.5)
    _draw_bars(axes, bars[:MOST_BARS], rows)
    step = -(-len(rows) // 20)
    axes.set_yticks(range(0, len(rows), step), [str(client) for client in rows[::step]])
    axes.set(xlabel="virtual time (s)", ylabel="client", ylim=(len(rows) - 0.4, -0.6), xlim=(0, until or None))
    axes.grid(False)
    style.put_legend_below(figure, axes)
    shown = "" if whole else f", the first {until:.4g} of {over:.4g} seconds"
    who = "" if len(rows) == len(everyone) else f", {len(rows)} of {len(everyone):,} clients, evenly spaced"
    words = f"Clients in virtual time{shown}{who}: {group.label}, seed {run.summary.seed}"
    yield Drawing(f"{scene.setting.number}-clients-in-time", f"{words}; grey lines: the server's updates.", figure)


def _draw_bars(axes: Axes, bars: Sequence[Bar], rows: Sequence[int]) -> None:
    """Draw the bars of each kind together. A bar without duration is a line."""
    places = {client: place for place, client in enumerate(rows)}
    for fate, (look, label) in FATES.items():
        of_kind = [bar for bar in bars if bar.fate == fate]
        if not of_kind:
            continue
        corners = [
            [(bar.sent, y - 0.36), (bar.back, y - 0.36), (bar.back, y + 0.36), (bar.sent, y + 0.36)]
            for bar in of_kind
            for y in [places[bar.client]]
        ]
        inside, edge = colors.FATES[fate]
        # edges in the color of the paper keep apart bars that touch
        fill: dict[str, Any] = {"facecolor": inside or "none", "edgecolor": edge or colors.PAPER}
        shapes = PolyCollection(corners, label=label, linewidth=0.8, **fill, **look)
        axes.add_collection(shapes)
        when = [f"sent at {bar.sent:.4g} s in round {bar.round}, back at {bar.back:.4g} s" for bar in of_kind]
        said = [f"client {bar.client}: {words}; {label}" for bar, words in zip(of_kind, when, strict=True)]
        style.put_titles(shapes, label, said)
