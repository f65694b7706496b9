from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from small_configs import SMALL

from raysim.sweeps.cells import Cell
from raysim.sweeps.grid import expand_sweep


@pytest.fixture(scope="session")
def grid() -> Callable[..., dict[str, Any]]:
    """A function that makes a sweep: grid({"seed": [0, 1]}, **what holds for all runs)."""

    def make(axes: dict[str, Any], **shared: object) -> dict[str, Any]:
        return {"name": "try", "base": SMALL, "set": shared, "grid": axes}

    return make


@pytest.fixture
def cells_of(grid: Callable[..., dict[str, Any]]) -> Callable[..., list[Cell]]:
    """A function that gives the runs of a grid of axes, with KEY=VALUEs."""

    def make(axes: dict[str, Any], *overrides: str) -> list[Cell]:
        return expand_sweep(grid(axes), overrides)[1]

    return make


@pytest.fixture
def sweep_file(tmp_path: Path) -> Callable[..., Path]:
    """A function that writes sweeps/sweep.yaml, with lines after name and base, beside base.yaml."""
    (tmp_path / "base.yaml").write_text(
        "name: small\ndataset: {name: synthetic, classes: 4, shape: [6], train: 40, test: 20}\n"
        "scenario: {kind: class_incremental, tasks: 2}\nclients: {count: 2}\nmodel: {name: mlp, hidden: [5]}\n"
        "training: {rounds_per_task: 2, batch_size: 4}\nlogging: {tensorboard: false}\n"
    )
    (tmp_path / "sweeps").mkdir()

    def write(lines: str, head: Sequence[str] = ("name: try", "base: ../base.yaml")) -> Path:
        path = tmp_path / "sweeps" / "sweep.yaml"
        path.write_text("\n".join([*head, lines]) + "\n")
        return path

    return write
