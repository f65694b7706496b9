"""The estimate has what a forked process keeps alone of transformers: 40 MiB for each host and the coordinator."""

from dataclasses import replace
from pathlib import Path

import pytest
from pretrained_folders import run_of_texts, write_folder, write_texts

from raysim.config import load
from raysim.engine.simulation import load_parts
from raysim.estimate.memory import estimate_memory

pytest.importorskip("transformers")
MIB = 2**20


def test_each_forked_process_of_a_pretrained_model_counts_more(tmp_path: Path) -> None:
    """Two hosts and a coordinator are three processes. Spawned ones import everything, which is counted elsewhere."""
    config = load(run_of_texts(write_folder(tmp_path / "bert", "bert"), write_texts(tmp_path), dropout=0.0))
    need = replace(estimate_memory(config, *load_parts(config)), forked=True)
    other = replace(need, touched=0)
    assert need.total(2, 2) - other.total(2, 2) == 3 * 40 * MIB
    assert need.alone == other.alone
    spawned = replace(need, forked=False)
    assert spawned.process == replace(spawned, touched=0).process
    assert estimate_memory(load("quickstart"), *load_parts(load("quickstart"))).touched == 0
