"""Images that actors decode as they need them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import raysim


@pytest.mark.ray
def test_images_that_hosts_decode_give_the_bits_of_a_local_run_in_memory(tmp_path: Path) -> None:
    """Two hosts of one client each share the file of decoded images; 4 classes of 6 random images."""
    draws = np.random.default_rng(0)
    for label in ("ant", "bee", "cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for n in range(6):
            Image.fromarray(draws.integers(0, 256, (7, 10, 3), np.uint8)).save(tmp_path / "pets" / label / f"{n}.png")
    config: dict[str, Any] = {
        "name": "pets",
        "dataset": {"name": "image_folder", "path": "pets", "size": 8, "root": str(tmp_path), "normalize": "standard"},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": 2},
        "methods": {"er": {}},
        "model": {"name": "mlp", "hidden": [5]},
        "training": {"rounds_per_task": 2, "batch_size": 4},
        "resources": {"cpus_per_actor": 0.5, "clients_per_actor": 1},
        "logging": {"tensorboard": False},
    }
    raysim.run(config, out=tmp_path / "memory", local=True)
    raysim.run(config, {"dataset.load": "disk"}, out=tmp_path / "disk")
    assert (tmp_path / "memory" / "model.pt").read_bytes() == (tmp_path / "disk" / "model.pt").read_bytes()
