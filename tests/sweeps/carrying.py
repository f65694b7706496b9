"""Sweeps of tests, carried out in this process without a display."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from raysim.sweeps.agenda import prepare
from raysim.sweeps.display import Silence
from raysim.sweeps.outcome import Outcome
from raysim.sweeps.running import carry_out


def carried_out(source: Mapping[str, Any], out: Path, *overrides: str) -> list[Outcome]:
    return carry_out(prepare(source, overrides, out), True, None, Silence())


def standings(source: Mapping[str, Any], out: Path, *overrides: str) -> dict[str, str]:
    return {cell.folder: standing for cell, standing in prepare(source, overrides, out).runs}


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [outcome.status for outcome in outcomes]
