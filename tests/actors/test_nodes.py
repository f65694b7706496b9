"""Several nodes: the bits of one, hosts where the config wants them, data sent to each."""

import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import raysim
from raysim.actors import compat, joining, node_capacity, reservation
from raysim.config import load
from raysim.engine.events import Event, Notice, RoundDone
from raysim.estimate.placement import Placement, hosts_by_node, place
from raysim.launch import check
from raysim.launch.display import RunDisplay
from raysim.system.errors import ConfigError, RunError

pytestmark = pytest.mark.ray

CPUS = 2  # of each of three nodes
DATA = 2**22  # bytes, so that a second copy in a node's object store shows
HERE = {"node_ip_address": "127.0.0.1"}
LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")


@pytest.fixture(scope="module")
def nodes(no_cluster: None) -> Iterator[Any]:
    """A cluster of three nodes on the loopback interface; `fast` is a resource of the last two."""
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        with compat.rays_address(loopback=True):
            made = Cluster(initialize_head=True, head_node_args={**HERE, "num_cpus": CPUS, "include_dashboard": False})
            for _ in range(2):
                made.add_node(**HERE, num_cpus=CPUS, resources={"fast": 1})
        try:
            yield made
        finally:
            made.shutdown()


@pytest.fixture
def config(small: dict[str, Any], nodes: Any) -> dict[str, Any]:
    return {**small, "resources": {"address": nodes.address}, "logging": {"tensorboard": False}}


@dataclass
class Watched(RunDisplay):
    """What there is to see while a run is in its third round."""

    driver: str = ""
    notices: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    actors: list[Mapping[str, Any]] = field(default_factory=list)
    stored: Mapping[str, int] = field(default_factory=dict)
    listening: set[tuple[str, str]] = field(default_factory=set)

    def take(self, event: Event) -> None:
        if isinstance(event, Notice) and not event.text.startswith("waiting for "):  # a slow machine's stalls
            self.notices.append(event.text)
        if isinstance(event, RoundDone) and event.round == 3:
            self.driver = ray.get_runtime_context().get_node_id()
            self.actors = compat.alive_actors()
            self.stored = {node["NodeID"]: compat.stored_bytes(node) for node in ray.nodes() if node["Alive"]}
            self.listening = set(_listening())

    def say(self, text: str) -> None:
        self.said.append(text)

    def where(self, kind: str) -> list[str]:
        """The nodes of the actors of a class."""
        return [actor["Address"]["NodeID"] for actor in self.actors if actor["ActorClassName"].endswith(kind)]


def _listening() -> Iterator[tuple[str, str]]:
    """The interfaces that this process and its children listen on, with their names."""
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # a worker's command that has handed over and ended
            name, connections = process.name(), process.net_connections("inet")
            yield from ((name, each.laddr.ip) for each in connections if each.status == psutil.CONN_LISTEN)


def test_three_nodes_give_the_bits_of_one_and_hold_the_data_once(
    config: dict[str, Any], facts: Callable[..., Any], nodes: Any, tmp_path: Path
) -> None:
    """Four hosts on three nodes: two of them share a node, and its copy of the data."""
    more = {"dataset.shape": [1024], "dataset.train": DATA // 4096, "model.dropout": 0.5, "participation.count": 3}
    watched = Watched()
    there = raysim.run(config, more, out=tmp_path / "there", display=watched)
    assert facts(there) == facts(raysim.run(config, more, out=tmp_path / "here", local=True))

    assert sorted(Counter(watched.where("Host")).values()) == [1, 1, 2]
    assert watched.where("Coordinator") == [watched.driver]
    assert there.actors == 5
    for node, stored in watched.stored.items():
        assert DATA < stored < 1.5 * DATA, node
    assert watched.notices == []
    assert {name for name, _ in watched.listening} >= {"raylet", "gcs_server"}  # what must be on loopback is found
    assert {place for _, place in watched.listening} <= set(LOOPBACK)
    assert not ray.is_initialized()


@pytest.mark.soak
def test_a_node_with_another_python_is_named_and_gets_no_host(
    config: dict[str, Any], nodes: Any, tmp_path: Path, facts: Callable[..., Any]
) -> None:
    """Its workers claim so, as Python imports a module of that name when it starts."""
    (tmp_path / "sitecustomize.py").write_text("import platform; platform.python_version = lambda: '3.9.1'\n")
    with compat.rays_address(loopback=True):
        odd = nodes.add_node(**HERE, num_cpus=2, env_vars={"PYTHONPATH": str(tmp_path)}, resources={"odd": 1})
    try:
        name = f"127.0.0.1 ({odd.node_id[:8]})"
        lines = [text for label, text in check.estimate_run(load(config), cluster=True) if label.startswith("node ")]
        assert len(lines) == 4
        assert sum(": fit, 2 CPUs and 0 GPUs, " in line for line in lines) == 3
        assert sum(line.startswith(f"{name}: left out (Python 3.9, here 3.") for line in lines) == 1
        watched = Watched()
        there = raysim.run(config, {"clients.count": 8}, out=tmp_path / "there", display=watched)
        assert odd.node_id not in watched.where("Host")
        assert facts(there) == facts(raysim.run(config, {"clients.count": 8}, out=tmp_path / "here", local=True))
        (line,) = watched.said
        assert line.startswith(f"no host will be on the node {name}: Python 3.9, here 3.")
        with pytest.raises(ConfigError, match=rf"'odd'.*\(nodes that were left out: {re.escape(name)}: Python 3"):
            raysim.run(config, {"resources.custom": {"odd": 1}}, out=tmp_path / "none")
        assert not (tmp_path / "none").exists()
    finally:
        nodes.remove_node(odd)


# tests of a process that is connected to the cluster; they come last, as others connect for themselves


@pytest.fixture(scope="module")
def joined(nodes: Any) -> Iterator[Any]:
    """What the three nodes have, while this process is connected to them."""
    with joining.joined_cluster(nodes.address) as there:
        yield there


def until_free() -> None:
    """Wait until all that was given back is there again."""
    limit = time.monotonic() + 60
    while ray.available_resources().get("CPU") != ray.cluster_resources()["CPU"]:
        assert time.monotonic() < limit
        time.sleep(0.05)


def taken(wanted: Placement) -> list[int]:
    """How many hosts are on each node that has any, where all nodes are free; as it was foreseen."""
    until_free()
    foreseen = hosts_by_node(wanted, node_capacity.present())
    places = reservation.Places(wanted)
    try:
        table = ray.util.placement_group_table(places.group)
        on = {**table["bundles_to_node_id"]}
        if any(wanted.server):
            own = places.of_coordinator()["scheduling_strategy"].placement_group_bundle_index
            assert on.pop(own) == ray.get_runtime_context().get_node_id()
        assert sorted(places.nodes()) == sorted(on.values())
        found = Counter(on.values()).values()
        assert sorted(found, reverse=True) == foreseen
        return sorted(found)
    finally:
        places.give_back()


def test_hosts_are_spread_or_packed_or_go_where_the_custom_resources_are(
    joined: Any, tiny: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wanted(count: int, **resources: object) -> Placement:
        return place(tiny(clients__count=count, resources=resources), joined)

    assert (joined.cpus, joined.custom["fast"], [node.cpus for node in joined.nodes]) == (6, 2, [2, 2, 2])
    assert taken(wanted(3)) == [1, 1, 1]
    assert taken(wanted(2, placement="pack")) == [2]
    assert taken(wanted(3, placement="pack")) == [1, 2]  # auto is a CPU for each here, and a node has two
    assert taken(wanted(4, custom={"fast": 0.5})) == [2, 2]
    assert taken(wanted(9)) == [3, 3, 3]
    assert taken(wanted(5, server_cpus=1)) == [1, 2, 2]

    until_free()
    held = reservation.Places(wanted(5))
    monkeypatch.setattr(reservation, "PATIENCE", 1)
    with pytest.raises(RunError, match=r"^2 hosts need 1 CPU each, which other programs hold"):
        reservation.Places(wanted(2))
    held.give_back()


def test_the_coordinator_is_always_on_the_node_of_the_driver(joined: Any) -> None:
    class Where:  # here, so that it goes to the workers by value
        def node(self) -> str:
            return ray.get_runtime_context().get_node_id()

    actors = [ray.remote(Where).options(**reservation.beside_the_driver()).remote() for _ in range(3)]
    assert set(ray.get([actor.node.remote() for actor in actors])) == {ray.get_runtime_context().get_node_id()}


LACKING = {
    "resources.custom: found 'fats', allowed: fast; did you mean 'fast'?": {"custom": {"fats": 1}},
    "resources.custom: found fast 2, allowed: what one node of the cluster has": {"custom": {"fast": 2}},
    "resources.custom: found fast 0.6 for each of 4 actors, the cluster has room for 2 of them": {
        "custom": {"fast": 0.6}
    },
    "resources.cpus_per_actor: found 1.5 for each of 4 actors, the cluster has 6 CPUs on 3 nodes, of which each actor "
    "takes one; allowed: auto, or at most 1": {"cpus_per_actor": 1.5},
}


# one of them; the soak tests have the others
IN_TURN = [pytest.param(told, marks=pytest.mark.soak if number else ()) for number, told in enumerate(LACKING)]


@pytest.mark.parametrize("told", IN_TURN)
def test_what_no_node_has_is_refused_before_anything_starts(
    told: str, config: dict[str, Any], joined: Any, tmp_path: Path
) -> None:
    config["resources"] |= LACKING[told]
    with pytest.raises(ConfigError) as found:
        raysim.run(config, out=tmp_path / "run")
    assert str(found.value).startswith(told)
    assert not (tmp_path / "run").exists()


def test_a_check_says_how_many_hosts_the_nodes_have(config: dict[str, Any], joined: Any) -> None:
    said = dict(check.estimate_run(load(config)))
    address = config["resources"]["address"]
    assert said["actors"].startswith(f"1 coordinator and 4 hosts at {address}, 2 on 1 node, 1 on 2 nodes (of 3 ")
    assert " on a node with 2 hosts," in said["memory"]
