"""Two nodes: one gets code and computes differently, is drained, or is lost with the hosts on it; the run goes on."""

import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from test_nodes import Watched

import raysim
from raysim.actors import compat
from raysim.engine.events import Checkpoint, Event, RoundDone
from raysim.launch.display import RunDisplay

pytestmark = pytest.mark.ray

HERE = {"node_ip_address": "127.0.0.1"}
# Ray takes a node for lost if five answers fail: at once where nobody listens, else in 10 s
EVERY = 2
# of 6 rounds: after the first checkpoint; and the run cannot have ended before, as the next one needs the driver
LAST = 4
SETTINGS = {
    "synchronous": {"methods": {"scaffold": {}, "a_gem": {}, "fed_a_gem": {}, "beside:Adversarial": {}}},
    "asynchronous": {
        "methods": {"er": {}, "fed_a_gem": {"reference": "with_update"}},
        "schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "pareto"}},
    },
}
COMMON = {"training.optimizer": {"lr": 0.05}, "checkpoint.every_rounds": EVERY, "logging.tensorboard": False}
OWN_MODEL = """
from torch import nn

def build(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))
"""


@pytest.fixture(scope="module")
def nodes(no_cluster: None) -> Iterator[Any]:
    """A cluster on the loopback interface, of one node to which tests add another; `pair` is a resource of both."""
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        with compat.rays_address(loopback=True):
            head = {**HERE, **compat.FAST_HEALTH_CHECKS, "num_cpus": 1, "include_dashboard": False}
            made = Cluster(initialize_head=True, head_node_args={**head, "resources": {"pair": 1}})
        try:
            yield made
        finally:
            made.shutdown()


@pytest.fixture(scope="module")
def odd(nodes: Any) -> Any:
    """A node that is told to do without vector instructions."""
    with compat.rays_address(loopback=True):
        plain = {"ATEN_CPU_CAPABILITY": "default"}
        return nodes.add_node(**HERE, num_cpus=1, env_vars=plain, resources={"pair": 1, "leaving": 1})


def test_code_of_the_users_own_is_sent_to_the_nodes_and_their_cpus_are_compared(
    small: dict[str, Any], nodes: Any, odd: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module is in this process's path alone."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sent_along.py").write_text(OWN_MODEL)
    monkeypatch.syspath_prepend(tmp_path / "own")
    where = {"address": nodes.address, "clients_per_actor": 2, "custom": {"pair": 1}}
    watched = Watched()
    config = {**small, "model": {"name": "sent_along:build"}, "resources": where}
    assert raysim.run(config, out=tmp_path / "run", display=watched).status == "done"
    assert sorted(watched.where("Host")) == sorted([nodes.head_node.node_id, odd.node_id])
    slow = "2 of 2 hosts were not forked, because no fork server answered"  # on a busy machine
    (notice,) = [one for one in watched.notices if not one.startswith(slow)]
    assert notice.startswith("the nodes compute with ")
    assert f"with DEFAULT, torch {torch.__version__} (127.0.0.1 {odd.node_id[:8]})" in notice


@pytest.fixture
def needless_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of this machine; the cluster needs none.

    A driver that used the token would lose every actor at its start, as the cluster's calls to it carry none.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("a" * 64)


def test_a_drained_node_has_a_checkpoint_written(
    small: dict[str, Any], nodes: Any, odd: Any, needless_token: None, tmp_path: Path
) -> None:
    where = {"address": nodes.address, "clients_per_actor": 4, "custom": {"leaving": 1}}
    long = {"training.rounds_per_task": 10_000, "checkpoint": {"every_rounds": 20_000, "tries": 1}}
    watched = Drained(nodes.address, odd.node_id)
    with pytest.raises(KeyboardInterrupt):
        raysim.run({**small, "resources": where}, long, out=tmp_path / "run", display=watched)
    (notice,) = watched.notices
    assert notice == f"about to leave the cluster: 127.0.0.1 ({odd.node_id[:8]}); a checkpoint follows this round"


class Drained(Watched):
    """Drains a node after the first round, and ends the run at its first checkpoint."""

    def __init__(self, address: str, node: str) -> None:
        super().__init__()
        self._environment = {**os.environ, compat.CLUSTER_VARIABLE: "0", compat.MODE: "disabled"}
        self._command = [str(Path(sys.executable).with_name("ray")), "drain-node", f"--address={address}"]
        self._command += [f"--node-id={node}", "--reason=DRAIN_NODE_REASON_PREEMPTION", "--reason-message=spot"]

    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, RoundDone) and event.round == 1:
            command = [*self._command, "--deadline-remaining-seconds=600"]
            asked = subprocess.run(command, env=self._environment, capture_output=True, text=True)
            assert asked.returncode == 0, asked.stderr
        assert not isinstance(event, RoundDone) or event.round < 5_000, "no checkpoint was written"
        if isinstance(event, Checkpoint):
            raise KeyboardInterrupt


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
    for other in [*nodes.worker_nodes]:  # of the tests before
        nodes.remove_node(other)
    with compat.rays_address(loopback=True):
        nodes.add_node(**HERE, num_cpus=2)
    watched = LosesANode(nodes, random.Random(f"a node, {setting}").randint(EVERY + 1, LAST))
    way = {**COMMON, **SETTINGS[setting]}
    spread = {"resources": {"address": nodes.address, "clients_per_actor": 2}}
    result = raysim.run({**small, **spread}, way, out=tmp_path / "there", display=watched)
    assert facts(result) == facts(raysim.run(small, way, out=tmp_path / "here", local=True))
    assert watched.gone
    assert result.recoveries == len([text for text in watched.told if "resuming from round" in text]) >= 1
    assert result.rounds_recomputed <= EVERY * result.recoveries
