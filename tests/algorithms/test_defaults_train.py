"""Methods at their defaults train on the shipped small streams: all stay finite, no server optimizer ends at chance.

Chance is 10% in class-IL, and 50% in task-IL, as a task has two classes.
"""

from math import isfinite
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.config.lookup import table

STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "rotated": ("quickstart", {}),
    "permuted": ("quickstart", {"scenario.shift": "permutation"}),
    "split": ("split_digits", {}),
}
COMMON = {"memory.capacity": 50, "logging.tensorboard": False}


@pytest.mark.parametrize("name", ["fedavgm", "fedadam", "fedyogi", "ewc"])
def test_task_il_is_above_chance_on_split_digits(name: str, tmp_path: Path) -> None:
    result = raysim.run("split_digits", {**COMMON, "methods": {name: {}}}, out=tmp_path / "run", local=True)
    assert result.evaluation["task_il"]["average_accuracy"] > 0.6


@pytest.mark.soak
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", table("method"))
def test_every_method_that_is_not_refused_ends_finite(name: str, stream: str, tmp_path: Path) -> None:
    config, keys = STREAMS[stream]
    try:
        result = raysim.run(config, {**COMMON, **keys, "methods": {name: {}}}, out=tmp_path / "run", local=True)
    except raysim.ConfigError:  # it needs another model or a second dataset
        return
    protocol = "task_il" if stream == "split" else "domain_il"
    assert result.evaluation[protocol]["average_accuracy"] > (0.5 if stream == "split" else 0.1)
    assert all(isfinite(done.loss) for done in result.rounds if done.loss is not None)
