"""Plots a finished run: python examples/plot.py RUN_DIRECTORY [PICTURE].

It reads two files of the run directory: summary.json, through raysim.load, and rounds.jsonl, one line per server
update.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

import raysim


def plot(directory: str | Path, picture: str | Path = "run.png") -> Path:
    """Draw loss, accuracy per task and the accuracy matrix of a run, and return the picture's path."""
    result = raysim.load(directory)
    lines = (result.directory / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    rounds = [json.loads(line) for line in lines]
    protocol = next(iter(result.evaluation))  # domain_il, or class_il before task_il
    matrix = result.evaluation[protocol]["accuracy"]

    figure, (loss, course, table) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    loss.plot([line["round"] for line in rounds], [line["loss"] for line in rounds])
    loss.set(xlabel="round", ylabel="training loss", title=f"{result.name}, seed {result.seed}")

    tested = [line for line in rounds if "evaluation" in line]
    for task in range(result.tasks):
        accuracies = [line["evaluation"][protocol][task] for line in tested]
        course.plot([line["round"] for line in tested], accuracies, marker="o", label=f"task {task + 1}")
    course.set(xlabel="round", ylabel=f"accuracy, {protocol}", ylim=(0, 1))
    course.legend()

    image = table.imshow(matrix, vmin=0, vmax=1)
    table.set(xlabel="test set of task", ylabel="after task", title="accuracy matrix")
    ticks = range(result.tasks)
    table.set_xticks(ticks, [task + 1 for task in ticks])
    table.set_yticks(range(len(matrix)), [task + 1 for task in range(len(matrix))])
    figure.colorbar(image, ax=table)

    figure.savefig(picture)
    plt.close(figure)
    return Path(picture)


if __name__ == "__main__":
    print(plot(*sys.argv[1:3]))
