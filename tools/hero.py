"""The pictures of the README, in a light and a dark version each, written to docs/assets/.

python tools/hero.py

hero-*.svg shows the quickstart's stream, and what FedAvg and replay keep of it. It comes from two runs.

hero-phone-*.svg shows their accuracy matrices alone, in letters that a phone's reader can read.

gains-*.svg shows what Fed-A-GEM adds to four baselines. It comes from results/fed_a_gem_tenth.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import torch
from matplotlib.figure import Figure

import raysim
from raysim.config import load
from raysim.federation.federation import Federation, build_federation
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.records.figures import draw_matrix, number_columns, number_rows
from raysim.reports.reading import find_runs
from raysim.system.colors import COLORS, DARK, LIGHT

ROOT = Path(__file__).parents[1]
ASSETS = ROOT / "docs" / "assets"
CONFIG = "quickstart"
RUNS: Mapping[str, Mapping[str, object]] = {
    "FedAvg forgets": {},
    "Experience replay (methods=er) forgets less": {"methods": {"er": {}}},
}
BASELINES = {"FL": "FedAvg", "FL + A-GEM": "A-GEM", "FL + DER": "DER", "FedProx": "FedProx"}  # in results/: their name
SETTINGS = {"rotated": "rotated MNIST", "permuted": "permuted MNIST"}
PHONE = {"FedAvg forgets": "FedAvg", "Experience replay (methods=er) forgets less": "Experience replay"}
LETTERS = 12.5  # of the phone's picture, which is 324 wide: this is in pixels where a screen of 360 has margins of 16
SHOWN = 3  # images of each client and task
THEMES = {
    "light": {**LIGHT, "images": "gray_r"},
    "dark": {**DARK, "paper": "#0d1117", "images": "gray"},  # the paper of GitHub's dark pages
}
TEXT = {"font.family": "DejaVu Sans", "font.size": 9, "svg.hashsalt": "raysim", "svg.fonttype": "path"}


def run_all(folder: Path) -> dict[str, tuple[list[list[float]], list[Mapping[str, Any]]]]:
    """Run the configs, and return for each its accuracy matrix and the lines of rounds.jsonl that have evaluations."""
    found = {}
    for title, overrides in RUNS.items():
        out = folder / str(len(found))
        result = raysim.run(CONFIG, {"evaluation.every_rounds": 1, **overrides}, out=out, local=True)
        lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
        found[title] = (result.evaluation["domain_il"]["accuracy"], [line for line in lines if "evaluation" in line])
    return found


def images_of(federation: Federation, client: int, task: int) -> npt.NDArray[np.float32]:
    """Return the first images [n, height, width] of a client in a task, as the client sees them."""
    stream, source = federation.streams[client], federation.source("train", torch.device("cpu"))
    rows, tasks = stream.locate(stream.span(task, task + 1)[:SHOWN])
    return source.fetch(source.held(rows), tasks, None)[:, 0].numpy()


def draw(theme: Mapping[str, str], runs: Mapping[str, tuple[Any, Any]], federation: Federation) -> Figure:
    """Return the picture: the stream on the left, accuracy by round in the middle, the matrices on the right."""
    figure = Figure(figsize=(11.5, 4.3), facecolor=theme["paper"])
    stream, courses, matrices = figure.subfigures(1, 3, width_ratios=[4.3, 3.8, 2.5])
    for part in (stream, courses, matrices):
        part.set_facecolor(theme["paper"])
    draw_stream(stream, theme, federation)
    for axes, (title, (_, lines)) in zip(courses.subplots(2, 1, sharex=True), runs.items(), strict=True):
        draw_courses(axes, theme, title, lines)
    courses.subplots_adjust(left=0.13, right=0.86, top=0.92, bottom=0.12, hspace=0.3)
    for axes, (matrix, _) in zip(matrices.subplots(2, 1), runs.values(), strict=True):
        draw_accuracies(axes, theme, matrix)
    matrices.subplots_adjust(left=0.2, right=0.96, top=0.92, bottom=0.12, hspace=0.3)
    return figure


def draw_for_phone(theme: Mapping[str, str], runs: Mapping[str, tuple[Any, Any]]) -> Figure:
    """Return the picture of the two accuracy matrices, side by side."""
    figure = Figure(figsize=(4.5, 2.9), facecolor=theme["paper"])
    for axes, (title, (matrix, _)) in zip(figure.subplots(1, 2, sharey=True), runs.items(), strict=True):
        draw_accuracies(axes, theme, matrix)
        axes.set_title(
            f"{PHONE[title]}\naverage {100 * np.mean(matrix[-1]):.0f}%",
            loc="left",
            color=theme["ink"],
            weight="bold",
            fontsize=LETTERS,
        )
        axes.set_xlabel("")
        axes.yaxis.label.set_visible(axes.get_subplotspec().is_first_col())
        axes.tick_params(labelsize=LETTERS)
    figure.text(0.5, 0.03, "accuracy in % on the test set of task", ha="center", color=theme["ink"])
    figure.subplots_adjust(left=0.14, right=0.98, top=0.83, bottom=0.2, wspace=0.12)
    return figure


def draw_stream(part: Any, theme: Mapping[str, str], federation: Federation) -> None:
    """Draw some images of every client and task."""
    clients, tasks = len(federation.streams), len(federation.tasks)
    grid = part.subplots(clients, tasks * SHOWN)
    part.subplots_adjust(left=0.16, right=0.98, top=0.88, bottom=0.12, wspace=0.08, hspace=0.12)
    for client, row in enumerate(grid):
        for task in range(tasks):
            for axes, image in zip(row[task * SHOWN :], images_of(federation, client, task), strict=False):
                axes.imshow(image, cmap=theme["images"], interpolation="nearest")
                axes.set_xticks([])
                axes.set_yticks([])
                for edge in axes.spines.values():
                    edge.set_color(COLORS[task])
        row[0].set_ylabel(f"client {client}", rotation=0, ha="right", va="center", color=theme["ink"], labelpad=6)
    for task, about in enumerate(federation.tasks):
        angle = about.name.rpartition(" ")[2]
        middle = grid[0][task * SHOWN + SHOWN // 2]
        middle.set_title(
            f"task {task + 1}\nrotated by {float(angle):.0f}°", color=COLORS[task], weight="bold", fontsize=9
        )
    part.text(0.57, 0.04, "time: one task after the other", ha="center", color=theme["ink"])


def draw_courses(axes: Any, theme: Mapping[str, str], title: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Draw the accuracy on each task by round. The background has the color of the task in training."""
    rounds = [line["round"] for line in lines]
    tasks = len(lines[0]["evaluation"]["domain_il"])
    each = rounds[-1] // tasks
    names: list[tuple[float, int]] = []
    for task in range(tasks):
        axes.axvspan(task * each, (task + 1) * each, color=COLORS[task], alpha=0.13, lw=0)
        values = [100 * line["evaluation"]["domain_il"][task] for line in lines]
        axes.plot(rounds, values, color=COLORS[task], lw=1.8)
        names.append((values[-1], task))
    lowest = -np.inf
    for value, task in sorted(names):
        lowest = max(value, lowest + 11)
        axes.text(rounds[-1] + 0.6, lowest, f"task {task + 1}", color=COLORS[task], va="center", fontsize=8)
    axes.set_title(title, loc="left", color=theme["ink"], weight="bold", fontsize=9)
    axes.set_xlim(0, rounds[-1])
    axes.set_ylim(0, 105)
    axes.set_yticks([0, 50, 100])
    axes.set_ylabel("accuracy in %", color=theme["ink"])
    if axes.get_subplotspec().is_last_row():
        axes.set_xlabel("round", color=theme["ink"])
    style(axes, theme)


def draw_accuracies(axes: Any, theme: Mapping[str, str], matrix: Sequence[Sequence[float]]) -> None:
    """Draw an accuracy matrix: row t after task t, column i on the test set of task i."""
    draw_matrix(axes, matrix, ACCURACY_METRIC)
    number_rows(axes, len(matrix), in_step=True)
    axes.yaxis.label.set_color(theme["ink"])
    number_columns(axes, len(matrix))
    axes.set_xlabel("on the test set of task" if axes.get_subplotspec().is_last_row() else "", color=theme["ink"])
    axes.set_title(
        f"average {100 * np.mean(matrix[-1]):.0f}%", loc="left", color=theme["ink"], weight="bold", fontsize=9
    )
    style(axes, theme)


def style(axes: Any, theme: Mapping[str, str]) -> None:
    """Give the axes the theme's colors."""
    axes.set_facecolor(theme["paper"])
    axes.tick_params(colors=theme["ink"], labelsize=8)
    for name, edge in axes.spines.items():
        edge.set_color(theme["ink"])
        edge.set_visible(name in ("left", "bottom"))


def read_accuracies() -> dict[tuple[str, str], list[float]]:
    """Return the average accuracies in % over the seeds, by setting and row of the sweep."""
    found: dict[tuple[str, str], list[float]] = {}
    for run in find_runs([ROOT / "results" / "fed_a_gem_tenth"], []):
        accuracy = run.summary.evaluation["domain_il"]["average_accuracy"]
        found.setdefault((run.names["setting"], run.names["methods"]), []).append(100 * accuracy)
    return found


def draw_gains(theme: Mapping[str, str], accuracies: Mapping[tuple[str, str], Sequence[float]]) -> Figure:
    """Return the picture of Fed-A-GEM's gains: an arrow from each baseline to the baseline with Fed-A-GEM."""
    figure = Figure(figsize=(9.0, 2.3), facecolor=theme["paper"])
    for axes, (setting, title) in zip(figure.subplots(1, 2, sharey=True), SETTINGS.items(), strict=True):
        for row, (label, name) in enumerate(reversed(BASELINES.items())):
            alone, with_it = (accuracies[setting, text] for text in (label, f"{label} + Fed-A-GEM"))
            for seed, (first, second) in enumerate(zip(alone, with_it, strict=True)):
                height = row + 0.2 * (1 - seed)
                axes.plot([first, second], [height, height], color=COLORS[2], lw=1, alpha=0.6)
                axes.plot(first, height, "o", color=COLORS[0], ms=4)
                axes.plot(second, height, "o", color=COLORS[2], ms=4)
            gain = fmean(with_it) - fmean(alone)
            axes.text(max(with_it) + 1.5, row, f"+{gain:.0f}", va="center", color=COLORS[2], weight="bold", fontsize=9)
            axes.text(0.02, row, name, va="center", color=theme["ink"], transform=axes.get_yaxis_transform())
        axes.set_title(title, loc="left", color=theme["ink"], weight="bold", fontsize=9)
        axes.set_yticks([])
        axes.set_ylim(-0.6, len(BASELINES) - 0.4)
        axes.set_xlim(0, 100)
        axes.set_xlabel("average accuracy in %, one line per seed", color=theme["ink"])
        style(axes, theme)
    figure.text(0.99, 0.94, "●", color=COLORS[0], ha="right", fontsize=9)
    figure.text(0.972, 0.94, "alone", color=theme["ink"], ha="right", fontsize=9)
    figure.text(0.93, 0.94, "●", color=COLORS[2], ha="right", fontsize=9)
    figure.text(0.912, 0.94, "with Fed-A-GEM", color=theme["ink"], ha="right", fontsize=9)
    figure.subplots_adjust(left=0.02, right=0.99, top=0.86, bottom=0.2, wspace=0.06)
    return figure


def main() -> None:
    """Write the pictures."""
    federation = build_federation(load(CONFIG))
    with tempfile.TemporaryDirectory() as folder:
        runs = run_all(Path(folder))
    for name, theme in THEMES.items():
        with mpl.rc_context(TEXT):
            pictures = {"hero": draw(theme, runs, federation), "gains": draw_gains(theme, read_accuracies())}
            write(pictures, name, theme)
        with mpl.rc_context({**TEXT, "font.size": LETTERS}):
            write({"hero-phone": draw_for_phone(theme, runs)}, name, theme)


def write(pictures: Mapping[str, Figure], name: str, theme: Mapping[str, str]) -> None:
    """Write a theme's pictures."""
    for kind, figure in pictures.items():
        figure.savefig(ASSETS / f"{kind}-{name}.svg", metadata={"Date": None}, facecolor=theme["paper"])


if __name__ == "__main__":
    main()
