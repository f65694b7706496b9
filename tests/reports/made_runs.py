"""Run directories as a run leaves them, with numbers of the tests' own and without running anything."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from small_configs import TINY

from raysim.config import dump, load
from raysim.evaluation.accuracy_matrix import Matrix, summarise
from raysim.reports.content import Comparison
from raysim.reports.grouping import group_runs
from raysim.reports.plots.scene import Scene, set_scenes
from raysim.reports.reading import find_runs

BASE = TINY | {"name": "made", "training": {"rounds_per_task": 2}}

HELD = {
    "clients": [0, 1, 2],
    "by_task": [[2, 2], [2, 2], [2, 2]],
    "by_class": [[1, 0, 1, 0], [2, 0, 0, 0], [0, 1, 0, 1]],
    "at_tasks": [],
}

MATRIX = ((0.8, 0.2), (0.6, 0.7))


def make_run(
    directory: Path,
    overrides: Mapping[str, object] = {},
    matrices: Mapping[str, Matrix] = {"domain_il": MATRIX},
    rounds: Sequence[Mapping[str, object]] = (),
    **summary: Any,
) -> Path:
    """Write config.yaml, summary.json and rounds.jsonl; `summary` replaces keys of summary.json."""
    config = load(BASE, overrides)
    directory.mkdir(parents=True)
    (directory / "config.yaml").write_text(dump(config))
    (directory / "rounds.jsonl").write_text("".join(json.dumps({**ROUND, **line}) + "\n" for line in rounds))
    values = {
        "name": config.name,
        "seed": config.seed,
        "methods": list(config.methods),
        "status": "done",
        "clients": config.clients.count,
        "tasks": config.scenario.tasks,
        "rounds": len(rounds),
        "updates": len(rounds),
        "evaluation": {p: summarise(matrix, [0.25] * len(matrix)) for p, matrix in matrices.items()},
        "bytes_up": 2**20,
        "bytes_down": 3 * 2**20,
        "model_sha256": hashlib.sha256(dump(config).encode()).hexdigest(),
        "seconds": 10.0,
        "seconds_per_round": 0.5,
        "seconds_starting": 1.0,
        "peak_memory_bytes": 2**28,
        "recoveries": 0,
        "rounds_recomputed": 0,
        "versions": {"python": "3.11.7", "torch": "2.9.0", "ray": "2.50.0", "raysim": "0.1.0", "git": "c0ffee"},
    }
    (directory / "summary.json").write_text(json.dumps({**values, **summary}, indent=2) + "\n")
    return directory


OFTEN = [
    {"round": 1, "evaluation": {"domain_il": [0.5, 0.1]}},
    {"round": 2, "evaluation": {"domain_il": [0.8, 0.2]}},
    {"round": 3, "tasks": [2], "evaluation": {"domain_il": [0.6, 0.7]}},
]


def hold(directory: Path, **changes: Any) -> None:
    """Write what the clients of a run hold; `changes` replaces keys of it."""
    (directory / "clients.json").write_text(json.dumps({**HELD, **changes}))


def one_scene(directory: Path) -> Scene:
    """The only setting of the runs below a directory, as its plots are given it."""
    (scene,) = set_scenes(group_runs(find_runs([directory], []), []))
    return scene


ROUND = {
    "round": 1,
    "tasks": [1],
    "cohort": [0, 1, 2],
    "loss": 1.0,
    "bytes_up": 2**19,
    "bytes_down": 2**19,
    "seconds": 0.5,
    "staleness": [0, 0, 0],
    "virtual_time": None,
    "records": {},
}


def levels(comparison: Comparison) -> list[list[str]]:
    """By row of the tables of levels: its two names, the paper's table and metric, and the other cells."""
    found = []
    for table in comparison.tables:
        if said := re.search(r", Table (.*): (.*), published and measured$", table.caption):
            found += [[*texts[:2], *said.groups(), *texts[2:]] for texts in ([c.text for c in r] for r in table.rows)]
    return found
