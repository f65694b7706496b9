"""Configs of small runs, and what a page draws of a run that is followed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysim.live.following import FollowedRun

TWO_TASKS: dict[str, Any] = {
    "name": "two",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 60, "test": 30},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 3},
    "model": {"name": "mlp", "hidden": [5]},
    "training": {"rounds_per_task": 4, "batch_size": 8, "optimizer": {"lr": 0.1}},
    "methods": {"er": {}},
    "evaluation": {"every_rounds": 3},
    "logging": {"tensorboard": False, "dispatches": True, "memory": True},
}
APART: dict[str, Any] = {
    **TWO_TASKS,
    "scenario": {
        "kind": "class_incremental",
        "tasks": 2,
        "boundaries": {"asynchronous": {"window": 7, "rounds_per_window": 2}},
    },
    "training": {"batch_size": 8},
    "schedule": {
        "kind": "asynchronous",
        "concurrency": 2,
        "buffer_size": 1,
        "max_staleness": 1,
        "speeds": {"kind": "pareto", "shape": 1.0},
    },
}


def follow(directory: Path) -> FollowedRun:
    """A run, read to its end."""
    run = FollowedRun(directory, directory.name)
    catch_up(run)
    return run


def catch_up(run: FollowedRun) -> None:
    run.refresh()
    while run.more:
        run.refresh()


def drawn(run: FollowedRun) -> Mapping[str, Any]:
    """All that a page draws of a run, except its head."""
    return {name: feed.items for name, feed in run.feeds.items() if name != "head"}


def head(run: FollowedRun) -> Any:
    return run.feeds["head"].items[0]
