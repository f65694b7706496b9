"""Runs with pretrained models on two nodes have the bits of a run in this process, also with features."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pretrained_folders import run_of_texts, write_folder, write_texts
from test_nodes import Watched

import raysim
from raysim.actors import compat

pytestmark = [pytest.mark.ray, pytest.mark.soak]
pytest.importorskip("transformers")

HERE = {"node_ip_address": "127.0.0.1", "num_cpus": 1}
LAST_BLOCK = {"adapters": {"rank": 2, "where": ["layer.2.*.query", "layer.2.*.value"]}, "dropout": 0.0}
RUNS: dict[str, dict[str, Any]] = {
    "all weights with dropout": {},
    "adapters": {"adapters": {"rank": 2, "where": ["query", "value"]}},
    "adapters of the last block, from features": {**LAST_BLOCK, "cache": True},
}


@pytest.fixture(scope="module")
def nodes(no_cluster: None) -> Iterator[Any]:
    """A cluster of two nodes with a CPU each, on the loopback interface."""
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        with compat.rays_address(loopback=True):
            made = Cluster(initialize_head=True, head_node_args={**HERE, "include_dashboard": False})
            made.add_node(**HERE)
        try:
            yield made
        finally:
            made.shutdown()


@pytest.mark.parametrize("kind", RUNS)
def test_two_nodes_give_the_bits_of_one_process(
    kind: str, nodes: Any, facts: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three clients on two hosts, one on each node."""
    monkeypatch.setenv("RAYSIM_DATA", str(tmp_path))
    config = run_of_texts(write_folder(tmp_path / "bert", "bert"), write_texts(tmp_path), **RUNS[kind])
    where = {"resources": {"address": nodes.address, "clients_per_actor": 2}}
    watched = Watched()
    there = raysim.run(config, where, out=tmp_path / "there", display=watched)
    here = raysim.run(config, out=tmp_path / "here", local=True)
    assert facts(there) == facts(here)
    hosts = watched.where("Host")
    assert len(hosts) == len({*hosts}) == 2
