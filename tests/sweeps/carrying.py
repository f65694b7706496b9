"""Sweeps of tests, carried out in this process without a display."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysim.sweeps.directory import RunOutcome, plan_sweep
from raysim.sweeps.display import SweepDisplay
from raysim.sweeps.sweep import carry_out


def carried_out(source: Mapping[str, Any], out: Path, *overrides: str) -> list[RunOutcome]:
    return carry_out(plan_sweep(source, overrides, out), True, None, SweepDisplay())


def standings(source: Mapping[str, Any], out: Path, *overrides: str) -> dict[str, str]:
    return {cell.folder: progress for cell, progress in plan_sweep(source, overrides, out).runs}


def statuses(outcomes: list[RunOutcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]
