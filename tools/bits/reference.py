"""The list of runs, by name: those in one process first, then those on Ray."""

from __future__ import annotations

import re

from bits import of_kinds, of_methods, of_scenarios, of_training
from bits.run import Run

RUNS: dict[str, Run] = {
    **of_methods.ALONE,
    **of_methods.TOGETHER,
    **of_methods.SMALL,
    **of_scenarios.DATA_AND_TASKS,
    **of_scenarios.IN_TIME,
    **of_kinds.OTHER_DATA,
    **of_kinds.SENT_ENCODED,
    **of_training.TRAINING,
    **of_training.FROZEN,
    **of_training.MEMORY,
    **of_training.EVALUATION,
    **of_training.RESUMED,
    **of_training.RAY,
}


def chosen(only: str | None = None, ray: bool = True) -> dict[str, Run]:
    """Return the runs with a match of a regular expression in their names, with or without those on Ray."""
    return {
        name: run
        for name, run in RUNS.items()
        if (ray or not run.on_ray) and (only is None or re.search(only, name, re.IGNORECASE))
    }
