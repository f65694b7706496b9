"""A node is lost with the hosts on it, and the run goes on without it, to the bits of an undisturbed one."""

import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import raysim
from raysim.actors import compat
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay

pytestmark = pytest.mark.ray

HERE = {"node_ip_address": "127.0.0.1"}
# Ray takes a node for lost if five answers fail: at once where nobody listens, else in 10 s
EVERY = 2
LAST = (
    4  # of 6 rounds: the run cannot have ended before the node is taken away, as the checkpoint then needs the driver
)
SETTINGS = {
    "synchronous": {"methods": {"scaffold": {}, "a_gem": {}, "fed_a_gem": {}, "beside:Adversarial": {}}},
    "asynchronous": {
        "methods": {"er": {}, "fed_a_gem": {"reference": "with_update"}},
        "schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "pareto"}},
    },
}
COMMON = {"training.optimizer": {"lr": 0.05}, "checkpoint.every_rounds": EVERY, "logging.tensorboard": False}


@pytest.fixture(scope="module")
def nodes(no_cluster: None) -> Iterator[Any]:
    """A cluster of two nodes on the loopback interface."""
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        with compat.rays_address(loopback=True):
            head = {**HERE, **compat.FAST_HEALTH_CHECKS, "num_cpus": 1, "include_dashboard": False}
            made = Cluster(initialize_head=True, head_node_args=head)
            made.add_node(**HERE, num_cpus=2)
        try:
            yield made
        finally:
            made.shutdown()


class LosesANode(RunDisplay):
    """Takes a node away after a round."""

    def __init__(self, nodes: Any, after: int) -> None:
        self.nodes, self.after = nodes, after
        self.told: list[str] = []
        self.gone = False

    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, RoundDone) and event.round == self.after and not self.gone:
            self.gone = True
            (lost,) = self.nodes.worker_nodes
            hosts = [
                psutil.Process(actor["Pid"])
                for actor in compat.alive_actors()
                if actor["Address"]["NodeID"] == lost.node_id
            ]
            self.nodes.remove_node(lost, allow_graceful=False)
            psutil.wait_procs(hosts, timeout=60)  # the run could end before they do

    def say(self, text: str) -> None:
        self.told.append(text)


@pytest.mark.parametrize("setting", ["synchronous", pytest.param("asynchronous", marks=pytest.mark.soak)])
def test_the_run_goes_on_without_it(
    setting: str, small: dict[str, Any], facts: Callable[..., Any], nodes: Any, tmp_path: Path
) -> None:
    if not nodes.worker_nodes:  # the test before took it away
        with compat.rays_address(loopback=True):
            nodes.add_node(**HERE, num_cpus=2)
    watched = LosesANode(nodes, random.Random(f"a node, {setting}").randint(1, LAST))
    way = {**COMMON, **SETTINGS[setting]}
    spread = {"resources": {"address": nodes.address, "clients_per_actor": 2}}
    result = raysim.run({**small, **spread}, way, out=tmp_path / "there", display=watched)
    assert facts(result) == facts(raysim.run(small, way, out=tmp_path / "here", local=True))
    assert watched.gone
    assert result.recoveries == len([text for text in watched.told if "resuming from round" in text]) >= 1
    assert result.rounds_recomputed <= EVERY * result.recoveries
