"""The small configs that tests share. A test that needs something else sets its own keys on top: SMALL | {...}."""

from typing import Any

TINY: dict[str, Any] = {
    "name": "tiny",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 36, "test": 20},
    "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"},
    "clients": {"count": 3},
    "model": {"name": "mlp", "hidden": [5]},
    "training": {"rounds_per_task": 2, "batch_size": 4, "optimizer": {"lr": 0.1}},
    "logging": {"tensorboard": False},
}
"""3 clients with 12 samples each, permuted in 2 tasks of 2 rounds; the config of the fixture `tiny`."""

SMALL: dict[str, Any] = {
    "name": "small",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 40, "test": 20},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 2},
    "model": {"name": "mlp", "hidden": [5]},
    "training": {"rounds_per_task": 2, "batch_size": 4},
    "logging": {"tensorboard": False},
}
"""2 clients with 20 samples each, of 2 classes in each of 2 tasks of 2 rounds."""
