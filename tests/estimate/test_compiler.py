"""The estimate has torch's compiler, which some parts of a run import into every process: 155 MiB."""

import os
import subprocess
import sys

import pytest

ESTIMATES = """
import sys
from raysim.config import load
from raysim.engine.simulation import load_parts
from raysim.estimate.memory import estimate_memory

for overrides in ([], sys.argv[1:]):
    config = load("quickstart", overrides)
    need = estimate_memory(config, *load_parts(config))
    print(need.host, need.coordinator, need.imported)
"""
MIB = 2**20
EWC, BY_BATCH = "methods={ewc: {}}", "methods={ewc: {fisher: batch}}"
TORCHVISION = ["dataset={name: synthetic, shape: [3, 8, 8]}", "model={name: torchvision, architecture: squeezenet1_1}"]


@pytest.mark.parametrize(
    ("overrides", "shared", "apart"),
    [
        ([EWC], 155, 0),
        ([EWC, "resources.gpus_per_actor=0.1"], 0, 155),
        ([EWC, "resources.address=auto"], 0, 155),
        ([BY_BATCH], 0, 0),
        ([*TORCHVISION, "model.input_size=32"], 155, 0),
    ],
    ids=["gradients by sample", "on a GPU", "on a joined cluster", "gradients by batch", "a network of torchvision"],
)
def test_its_import_is_in_the_estimate(overrides: list[str], shared: int, apart: int) -> None:
    """Forked processes share it on a cluster of the run without GPUs.

    The rest of the difference is at most ten vectors of the model, of which SqueezeNet's has 2.8 MiB.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    code = [sys.executable, "-c", ESTIMATES, *overrides]  # in another process, as an import is not undone
    ended = subprocess.run(code, capture_output=True, text=True, check=True, env=environment)
    before, after = (list(map(int, line.split())) for line in ended.stdout.splitlines())
    host, coordinator, imported = (more - less for less, more in zip(before, after, strict=True))
    assert imported == shared * MIB
    for own in (host, coordinator):
        assert apart * MIB <= own < (apart + 30) * MIB
