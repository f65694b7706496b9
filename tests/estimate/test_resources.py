from dataclasses import replace

import pytest

from raysim.actors.cpu_slots import count_slots
from raysim.estimate.memory import FORKED_BYTES, LIBRARY_BYTES, PROCESS_BYTES, SERVER_BYTES, SHARED_BYTES, MemoryNeed
from raysim.estimate.placement import at_once, hosts_by_node, place
from raysim.system.capacity import Capacity, this_machine
from raysim.system.errors import ConfigError

GIB = 2**30
NODE = Capacity(cpus=8, gpus=0, memory=64 * GIB)


@pytest.fixture(autouse=True)
def linux(monkeypatch):
    monkeypatch.setattr("raysim.config.schema.CAN_FORK", True)
    monkeypatch.setattr("raysim.estimate.placement.CAN_FORK", True)


@pytest.fixture
def placed(tiny):
    """A function: the placement of so many clients with these resources."""

    def make(count, capacity=NODE, need=None, **wanted):
        return place(tiny(clients__count=count, resources=wanted), capacity, need)

    return make


def dealt(placement):
    return [list(clients) for clients in placement.clients]


def test_one_actor_per_client_is_the_default(placed):
    found = placed(3)
    assert dealt(found) == [[0], [1], [2]]
    assert found.actors == 3
    assert (found.cpus, found.gpus) == (1.0, 0)


@pytest.mark.parametrize(
    ("count", "each", "wanted"),
    [
        (5, 2, [[0, 3], [1, 4], [2]]),  # ceil(5 / 2) = 3 actors, round robin
        (4, 2, [[0, 2], [1, 3]]),
        (5, 10, [[0, 1, 2, 3, 4]]),
        (1, "auto", [[0]]),
    ],
)
def test_clients_are_dealt_round_robin(placed, count, each, wanted):
    assert dealt(placed(count, clients_per_actor=each)) == wanted


def test_auto_makes_one_actor_per_cpu(placed):
    """8 CPUs: 8 actors; at 2 CPUs each 4; at half a CPU each 16; never more than clients."""
    assert placed(100, clients_per_actor="auto").actors == 8
    assert placed(100, clients_per_actor="auto", cpus_per_actor=2).actors == 4
    assert placed(100, clients_per_actor="auto", cpus_per_actor=0.5).actors == 16
    assert placed(3, clients_per_actor="auto").actors == 3
    assert placed(100, clients_per_actor="auto", cpus_per_actor=3).actors == 2
    assert dealt(placed(19, clients_per_actor="auto"))[2] == [2, 10, 18]


def test_auto_makes_one_actor_per_gpu_share(placed):
    """2 GPUs: at 1 each 2 actors, at 1/2 each 4, at 0.3 each 3 on each GPU, at 0.1 each 20."""
    node = Capacity(cpus=32, gpus=2, memory=256 * GIB)
    for share, actors in ((1, 2), (0.5, 4), (0.3, 6), (0.1, 20), (2, 1)):
        found = placed(100, node, clients_per_actor="auto", gpus_per_actor=share)
        assert (found.actors, found.gpus) == (actors, share)


def test_auto_heeds_both_where_both_are_asked_for(placed):
    """16 CPUs, 8 GPUs: at 4 CPUs and a GPU each there is room for 4; with CPUs left to raysim for 8, 1 each."""
    node = Capacity(cpus=16, gpus=8, memory=256 * GIB)
    found = placed(100, node, clients_per_actor="auto", gpus_per_actor=1, cpus_per_actor=4)
    assert (found.actors, found.cpus) == (4, 4)
    found = placed(100, node, clients_per_actor="auto", gpus_per_actor=1)
    assert (found.actors, found.cpus) == (8, 1)
    assert placed(100, Capacity(2, 4, None), clients_per_actor="auto", gpus_per_actor=1).cpus == 0.5


def test_auto_cpus_are_an_equal_share_of_at_most_one(placed):
    """8 CPUs: 4 actors get 1, 16 get 0.5, 24 get 0.3333 (Ray counts ten-thousandths, rounded down)."""
    assert placed(4).cpus == 1.0
    assert placed(16).cpus == 0.5
    assert placed(24).cpus == 0.3333
    assert 24 * placed(24).cpus <= 8


def test_a_number_of_cpus_is_kept_and_may_fill_the_cluster(placed):
    assert placed(4, cpus_per_actor=2).cpus == 2
    assert placed(80, cpus_per_actor=0.1).cpus == 0.1


@pytest.mark.parametrize(
    ("count", "wanted", "words"),
    [
        (5, {"cpus_per_actor": 2}, r"resources\.cpus_per_actor: found 2 for each of 5 actors, the cluster has 8 CPUs"),
        (1, {"cpus_per_actor": 9}, r"allowed: auto, or at most 8"),
        (
            3,
            {"gpus_per_actor": 64},
            r"resources\.gpus_per_actor: found 64, and this machine has no GPU that torch can",
        ),
        (
            3,
            {"server_gpus": 0.1},
            r"^resources\.server_gpus: found 0\.1, and this machine has no GPU .*; allowed: 0, to",
        ),
        (3, {"gpus_per_actor": 0.1}, r"found 0\.1, and this machine has no GPU .*; allowed: 0, to compute on CPUs$"),
        (
            400,
            {"workers": "spawned"},
            r"400 actors .* allowed: 80% of the 64\.0 GiB there are; set resources\.workers=forked",
        ),
        (
            4000,
            {},
            r"resources\.clients_per_actor: 4000 actors .* allowed: 80% of the 64\.0 GiB .*clients_per_actor=auto",
        ),
    ],
)
def test_what_the_cluster_lacks_is_refused_in_one_line(placed, count, wanted, words):
    with pytest.raises(ConfigError, match=words) as found:
        placed(count, **wanted)
    assert "\n" not in str(found.value)


def test_more_gpu_shares_than_fit_are_refused(placed):
    """2 GPUs hold 2 x 2 shares of 0.4, not 5: no share spans two GPUs."""
    node = Capacity(cpus=32, gpus=2, memory=256 * GIB)
    assert placed(4, node, gpus_per_actor=0.4).actors == 4
    with pytest.raises(ConfigError, match=r"found 0\.4 for each of 5 actors, the cluster has 2 GPUs"):
        placed(5, node, gpus_per_actor=0.4)


def test_hosts_have_what_the_servers_share_leaves(placed):
    """1 GPU has 0.8 beside 0.2: 8 hosts of 0.1. 2 CPUs have 1 beside 1: a third for each of 3 hosts, or one host."""
    one = Capacity(cpus=2, gpus=1, memory=None)
    found = placed(9, one, server_gpus=0.2, gpus_per_actor=0.1, clients_per_actor="auto")
    assert (found.actors, found.server) == (8, (0, 0.2))
    assert placed(8, one, server_gpus=0.2, gpus_per_actor=0.1).actors == 8
    with pytest.raises(
        ConfigError, match=r"found 0\.1 for each of 9 actors, the cluster has 0\.8 GPUs beside .* 0\.2;"
    ):
        placed(9, one, server_gpus=0.2, gpus_per_actor=0.1)
    found = placed(3, one, server_cpus=1)
    assert (found.cpus, found.server) == (0.3333, (1, 0))
    assert placed(3, one, server_cpus=1, clients_per_actor="auto").actors == 1
    with pytest.raises(ConfigError, match=r"2 actors, the cluster has 1 CPUs beside the server's 1; .* at most 0\.5$"):
        placed(2, one, server_cpus=1, cpus_per_actor=1)
    assert placed(9, Capacity(2, 2, None), server_gpus=0.5, gpus_per_actor=0.4, clients_per_actor="auto").actors == 3
    assert placed(9, Capacity(2, 2, None), server_gpus=1, gpus_per_actor=0.5, clients_per_actor="auto").actors == 2


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"server_cpus": 8}, "server_cpus: found 8, allowed: at most 7, as hosts need the rest of the 8 CPUs"),
        ({"server_cpus": 4}, "server_cpus: found 4, allowed: at most 3, which this machine's node has"),
        ({"server_gpus": 0.5}, "server_gpus: found 0.5, allowed: at most 0, which this machine's node has"),
        ({"server_gpus": 3}, "server_gpus: found 3, the cluster has 1 GPUs; allowed: a number from 0 to 1"),
    ],
)
def test_the_servers_share_is_the_drivers_nodes(placed, wanted, words):
    """Nodes of 5 CPUs and a GPU and, with the driver, of 3 CPUs: beside 2 of these, 4 hosts of 1.5 CPUs fit no more."""
    other, drivers = Capacity(5, 1, None), Capacity(3, 0, None, has_driver=True)
    cluster = Capacity(8, 1, None, {}, [other, drivers])
    assert placed(4, cluster, cpus_per_actor=1.5).actors == 4
    found = placed(6, cluster, server_cpus=2)
    assert (found.cpus, hosts_by_node(found, cluster)) == (1, [5, 1])
    with pytest.raises(
        ConfigError, match=r"6 CPUs on 2 nodes, .* one beside the server's 2; allowed: auto, or at most"
    ):
        placed(4, cluster, server_cpus=2, cpus_per_actor=1.5)
    with pytest.raises(ConfigError) as refused:
        placed(4, cluster, **wanted)
    assert str(refused.value) == f"resources.{words}"


def test_memory_counts_processes_and_what_they_hold_and_its_limit_is_80_percent(placed):
    """What there is once; driver, coordinator and 4 hosts; the data twice; 4 hosts, all at work, and 4 clients.

    Without Ray it is one process with one of each.
    """
    holds = MemoryNeed(data=GIB, coordinator=7, host=1000, working=100, clients=[1, 2, 3, 4])
    found = placed(4, need=holds)
    assert found.memory_bytes == SHARED_BYTES + 6 * PROCESS_BYTES + 2 * GIB + 7 + 4 * 1000 + 4 * 100 + 10
    assert holds.alone == LIBRARY_BYTES + PROCESS_BYTES + GIB + 7 + 1000 + 100 + 10
    forked = placed(4, need=replace(holds, forked=True))  # the fork server is one process more
    assert found.memory_bytes - forked.memory_bytes == 5 * (PROCESS_BYTES - FORKED_BYTES) - SERVER_BYTES
    compiler = replace(holds, imported=3)  # in the driver, the coordinator and 4 hosts, or the driver and the server
    assert placed(4, need=compiler).memory_bytes == found.memory_bytes + 6 * 3
    assert placed(4, need=replace(compiler, forked=True)).memory_bytes == forked.memory_bytes + 2 * 3
    exact = Capacity(8, 0, memory=int(found.memory_bytes / 0.8) + 1)
    assert placed(4, exact, holds).memory_bytes == found.memory_bytes
    with pytest.raises(ConfigError, match="80%"):
        placed(4, Capacity(8, 0, memory=int(found.memory_bytes / 0.8) - 2), holds)
    assert placed(400, clients_per_actor="auto").actors == 8
    assert placed(400, Capacity(8, 0, None)).actors == 400  # unknown memory refuses nothing


def test_forked_workers_need_linux(placed, monkeypatch):
    assert placed(3, workers="forked").memory_bytes == SHARED_BYTES + SERVER_BYTES + PROCESS_BYTES + 4 * FORKED_BYTES
    monkeypatch.setattr("raysim.config.schema.CAN_FORK", False)
    monkeypatch.setattr("raysim.estimate.placement.CAN_FORK", False)
    assert placed(3).memory_bytes == SHARED_BYTES + 5 * PROCESS_BYTES
    with pytest.raises(ConfigError, match=r"^resources\.workers: found forked, allowed: auto or spawned, as this"):
        placed(3, workers="forked")
    with pytest.raises(ConfigError, match=r"clients_per_actor=auto"):
        placed(400, workers="spawned")


def test_hosts_that_share_cpus_take_turns_at_work(placed):
    """16 hosts with half of a CPU each of 8: 8 at a time; with a demand of half a CPU each, all."""
    holds = MemoryNeed(working=GIB, clients=[0] * 16)
    large = Capacity(8, 0, memory=1024 * GIB)
    bare = SHARED_BYTES + 18 * PROCESS_BYTES
    assert placed(16, large, holds).memory_bytes == bare + 8 * GIB
    assert placed(16, large, holds, cpus_per_actor=0.5).memory_bytes == bare + 16 * GIB


@pytest.mark.parametrize(
    ("most", "words"),
    [
        (8, r"set resources\.clients_per_actor=auto, which makes 8 actors, or resources\.clients_per_actor=13$"),
        (4, r"; set resources\.clients_per_actor=25$"),  # auto would make 8
        (0, r"nothing fits: one actor would take \d\.\d GiB; take a smaller model"),
    ],
)
def test_the_setting_that_would_fit_is_named(placed, most, words):
    """100 clients on a node of 8 CPUs with room for so many actors: ceil(100 / 8) = 13 clients each, or 25."""
    room = SHARED_BYTES + SERVER_BYTES + PROCESS_BYTES + (1 + most) * FORKED_BYTES
    with pytest.raises(ConfigError, match=words) as found:
        placed(100, Capacity(8, 0, memory=int(room / 0.8) + 1))
    assert "\n" not in str(found.value)


def test_this_machine_has_cpus_and_memory():
    found = this_machine()
    assert found.cpus >= 1
    assert found.memory > 2**28


def cluster_of(*nodes, **custom):
    """A cluster of nodes with so many CPUs each; the custom resources are the first node's."""
    each = [Capacity(cpus, 0, None, custom if number == 0 else {}) for number, cpus in enumerate(nodes)]
    return Capacity(sum(nodes), 0, None, custom, each)


@pytest.mark.parametrize(
    ("nodes", "count", "cpus"),
    [
        ((2, 2, 2), 3, 1.0),
        ((1, 1, 1), 4, 0.5),  # 0.75 of the 3 CPUs would fit once on each node: the fourth would wait for ever
        ((4, 1), 5, 1.0),
        ((4, 1), 6, 0.8),  # five on the node with 4, one on the other
        ((3, 2), 7, 0.6666),  # 4 and 3
    ],
)
def test_equal_shares_fit_on_nodes(placed, nodes, count, cpus):
    assert placed(count, cluster_of(*nodes)).cpus == cpus


def test_auto_makes_as_many_actors_as_the_nodes_take(placed):
    """At 2 CPUs each, nodes of 3, 3 and 1 take 1 + 1 + 0, though there are 7 CPUs."""
    assert placed(9, cluster_of(3, 3, 1), clients_per_actor="auto", cpus_per_actor=2).actors == 2
    assert placed(9, cluster_of(3, 3, 1), clients_per_actor="auto").actors == 7


def test_custom_resources_limit_the_actors_and_travel_with_the_placement(placed):
    """1 `fast` on one node of 2 CPUs: at 0.25 each, four actors of half a CPU; auto takes as many as have a CPU."""
    cluster = cluster_of(2, 8, fast=1)
    found = placed(4, cluster, custom={"fast": 0.25}, placement="pack")
    assert (found.actors, found.cpus, found.custom, found.packed) == (4, 0.5, {"fast": 0.25}, True)
    assert placed(9, cluster, custom={"fast": 0.25}, clients_per_actor="auto").actors == 2
    assert placed(9, cluster, custom={"fast": 0.6}, clients_per_actor="auto").actors == 1
    assert not placed(4, cluster).packed


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"cpus_per_actor": 2}, r"found 2 for each of 3 actors, .* 7 CPUs on 3 nodes, .* at most 1\.5$"),
        (
            {"custom": {"fast": 0.4}},
            r"custom: found fast 0\.4 for each of 3 actors, the cluster has room for 2 of them",
        ),
        ({"custom": {"fast": 1.5}}, r"custom: found fast 1\.5, allowed: what one node of the cluster has"),
        ({"custom": {"slow": 1}}, r"custom: found 'slow', allowed: fast$"),
    ],
)
def test_what_no_node_has_is_refused_in_one_line(placed, wanted, words):
    """Three actors on nodes of 3, 3 and 1 CPUs: two at 1.5 on a node of 3, or at 2 one on each."""
    with pytest.raises(ConfigError, match=words):
        placed(3, cluster_of(3, 3, 1, fast=1), **wanted)


def test_a_cluster_of_ones_own_has_no_custom_resources(placed):
    with pytest.raises(
        ConfigError, match=r"found 'fast', allowed: none, as this cluster has none; see resources\.address"
    ):
        placed(2, custom={"fast": 1})


def test_hosts_that_the_nodes_have_no_memory_for_are_refused(placed):
    """A host takes PROCESS_BYTES and 1 GiB; nodes of 2 and 3 hosts' memory have room for 4 of theirs, not for 6."""
    each = PROCESS_BYTES + GIB
    need = MemoryNeed(host=GIB, clients=[0] * 12)
    nodes = [Capacity(8, 0, 2 * each), Capacity(2, 0, 3 * each + 1)]  # the second has 3 hosts' memory and 2 CPUs
    cluster = Capacity(10, 0, None, {}, nodes)
    assert placed(12, cluster, need, clients_per_actor=3).actors == 4
    with pytest.raises(ConfigError) as refused:
        placed(12, cluster, need, clients_per_actor=2, cpus_per_actor=1)
    words = f"6 actors of up to {each / GIB:.2g} GiB each, the cluster's nodes have memory for 4 of them"
    assert str(refused.value) == f"resources.clients_per_actor: {words}; set resources.clients_per_actor=3"
    with pytest.raises(ConfigError, match="the cluster's nodes have memory for 0 of them; take a smaller model"):
        placed(12, Capacity(2, 0, None, {}, [Capacity(2, 0, each - 1)]), need, clients_per_actor=12)


def test_of_a_nodes_hosts_those_that_compute_at_a_time_need_memory_to_work(placed):
    """On 2 CPUs, 4 hosts at rest and 2 at work: 4 (P + 1 GiB) + 2 x 3 GiB. A CPU demanded for each: all 4 at work."""
    need = MemoryNeed(host=GIB, working=3 * GIB, clients=[0] * 4)
    node = Capacity(2, 0, 4 * (PROCESS_BYTES + GIB) + 2 * 3 * GIB)
    assert placed(4, Capacity(2, 0, None, {}, [node]), need).actors == 4
    less = replace(node, memory=node.memory - 1)
    with pytest.raises(ConfigError, match=r"4 actors of .* memory for 3 of them; set resources.clients_per_actor=2"):
        placed(4, Capacity(2, 0, None, {}, [less]), need)
    with pytest.raises(ConfigError, match=r"4 actors of .* memory for 2 of them"):
        placed(4, Capacity(2, 0, None, {}, [node]), need, cpus_per_actor=0.5)


@pytest.mark.parametrize(("share", "hosts"), [(0.07, 100), (0.28, 25), (0.14, 50)])
def test_as_many_hosts_are_expected_to_compute_as_have_slots(tiny, share, hosts):
    """0.07 * 100 is 7 CPUs, though it is 7.000000000000001 in float64."""
    assert at_once(tiny(resources={"cpus_per_actor": "auto"}), hosts, share) == 7
    assert count_slots(["node"] * hosts, share) == {"node": 7}
