"""`raysim check` foresees the bytes of requests to forget."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import raysim

RUN: Mapping[str, Any] = {
    "name": "requests",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [5], "train": 72, "test": 8},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 4, "forget": [{"round": 2, "clients": [2]}, {"round": 4, "classes": [1]}]},
    "model": {"name": "mlp", "hidden": []},
    "training": {"rounds_per_task": 3},
    "logging": {"tensorboard": False},
}


def test_a_head_in_closed_form_on_features_is_foreseen(tmp_path: Path) -> None:
    """Features are computed by the run: before, the check has none, and a Gram matrix of zeros has no inverse."""
    model = {"name": "mlp", "hidden": [6], "freeze": ["1.*"], "cache": True}
    keys: Mapping[str, Any] = {"methods": {"analytic": {"grid": 12}}, "model": model, "dataset.root": str(tmp_path)}
    found, run = raysim.check(RUN, keys), raysim.run(RUN, keys, out=tmp_path / "run", local=True)
    assert (found.bytes_up, found.bytes_down) == (run.bytes_up, run.bytes_down)


@pytest.mark.parametrize("method", ["er", "analytic"])
def test_the_bytes_of_requests_are_foreseen(tmp_path: Path, method: str) -> None:
    """A position has 8 bytes. The sums over 5 features and 4 classes, and two counts, are 15 + 20 + 2 numbers."""
    keys: Mapping[str, Any] = {"methods": {method: {"grid": 12, "bound": 4.0} if method == "analytic" else {}}}
    found, run = raysim.check(RUN, keys), raysim.run(RUN, keys, out=tmp_path / "run", local=True)
    assert (found.bytes_up, found.bytes_down) == (run.bytes_up, run.bytes_down)
    samples = [each["samples"] + each["to_come"] for each in run.forgotten]
    assert [each["bytes_down"] for each in run.forgotten] == [8 * number for number in samples]
    said = found["forgetting"]
    assert said.startswith(f"2 requests for {sum(samples)} samples: ")
    if method == "er":
        assert [each["bytes_up"] for each in run.forgotten] == [0, 0]
        assert said.endswith("memories and personalized models drop the samples, the model stays")
    else:
        holders = run.forgotten[1]["clients"]
        assert [each["bytes_up"] for each in run.forgotten] == [0, 8 * 37 * holders]  # before round 3 nothing was sent
        assert f"the server keeps 296 bytes of sums and {8 * sum(samples)} bytes of positions" in said
