"""Methods at their defaults train on the shipped small streams: all stay finite, no server optimizer ends at chance.

Chance is 10% in class-IL, and 50% in task-IL, as a task has two classes.
"""

import json
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
from small_runs import config_keys

import raysim
from raysim.config.lookup import table

STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "rotated": ("quickstart", {}),
    "permuted": ("quickstart", {"scenario.shift": "permutation"}),
    "split": ("split_digits", {}),
}
DIVERGED = ("fedavgm", "fedadam", "fedyogi", "ewc")  # or ended at chance, with the papers' defaults
SLOW = ("fedcil", "af_fcl")  # a minute each; their configs have other defaults for small data
NEEDS_MORE = {name for name in table("method") if config_keys(name)} - {"fedcil"}
"""Samples without labels, BatchNorm, prompts or adapters, which these streams do not have."""
COMMON = {"memory.capacity": 50, "logging.tensorboard": False}


def trained(config: str, keys: dict[str, Any], out: Path) -> dict[str, float]:
    """Run a config, hold its losses and accuracies against infinity, and return the average accuracies."""
    result = raysim.run(config, {**COMMON, **keys}, out=out, local=True)
    rounds = (json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines())
    assert all(isfinite(done["loss"]) for done in rounds if done["loss"] is not None)
    found = {protocol: values["average_accuracy"] for protocol, values in result.evaluation.items()}
    assert all(map(isfinite, found.values()))
    return found


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("name", DIVERGED)
def test_what_diverged_before_ends_above_chance(name: str, stream: str, tmp_path: Path) -> None:
    """In all ten rounds of a task. Chance is 10%, and 50% in task-IL; FedAvg has 19% in class-IL.

    It knows the last of five tasks.
    """
    config, keys = STREAMS[stream]
    found = trained(config, {**keys, "methods": {name: {}}}, tmp_path / "run")
    assert found.pop("task_il", 1.0) > 0.6
    assert min(found.values()) > (0.15 if stream == "split" else 0.4)


PAIRS = [(name, stream) for name in table("method") for stream in STREAMS if name not in (*SLOW, *DIVERGED)]
PAIRS = [(name, stream) for name, stream in PAIRS if name != "re_fed" or stream == "split"]  # 20 s elsewhere


@pytest.mark.soak
@pytest.mark.parametrize(("name", "stream"), PAIRS)
def test_every_method_that_is_not_refused_ends_finite(name: str, stream: str, tmp_path: Path) -> None:
    """On split digits in all ten rounds of a task, elsewhere in two, and Re-Fed, which takes long, in two.

    Two rounds say nothing about accuracy. A method may be refused only if it needs another model or more data.
    """
    config, keys = STREAMS[stream]
    short = {} if stream == "split" and name != "re_fed" else {"training.rounds_per_task": 2}
    try:
        trained(config, {**keys, **short, "methods": {name: {}}}, tmp_path / "run")
    except raysim.ConfigError:
        assert name in NEEDS_MORE
        return
    assert name not in NEEDS_MORE
