"""Sweeps of tests, carried out in this process without a display, and one with tuned rows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from small_configs import SMALL

from raysim.sweeps.directory import RunOutcome, plan_sweep
from raysim.sweeps.sweep import carry_out
from raysim.sweeps.sweep_display import SweepDisplay

BASE = SMALL | {
    "dataset": {**SMALL["dataset"], "train": 200},
    "scenario": {"kind": "class_incremental", "tasks": 1},
}


def tuned(rows: dict[str, Any], **more: object) -> dict[str, Any]:
    """A sweep of two seeds in which ER stands as it is and the rows are tuned."""
    grid = {"seed": [3, 4], "methods": {"ER": {"er": {}}}}
    return {"name": "try", "base": BASE, "grid": grid, "tune": {"methods": rows}, **more}


def carried_out(source: Mapping[str, Any], out: Path, *overrides: str) -> list[RunOutcome]:
    return carry_out(plan_sweep(source, overrides, out), True, None, SweepDisplay())


def standings(source: Mapping[str, Any], out: Path, *overrides: str) -> dict[str, str]:
    return {cell.folder: progress for cell, progress in plan_sweep(source, overrides, out).runs}


def statuses(outcomes: list[RunOutcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]
