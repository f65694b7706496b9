"""Hosts take turns where they share CPUs: of each node's hosts as many compute as its CPUs."""

from raysim.actors.turns import Turns

NODES = ["a", "b", "a", "c", "a"]  # the nodes of five hosts


def test_each_node_has_as_many_calls_under_way_as_cpus_and_keeps_their_order():
    """At 0.6 CPUs each, a has 1.8 and so 2 turns, b and c have 0.6 and so 1 each."""
    turns = Turns[int](NODES, 0.6)
    for host in (0, 1, 2, 3, 4, 0, 1):
        turns.wait(host, host)
    assert sorted(turns.begin()) == [0, 1, 2, 3]
    assert turns.begin() == []
    turns.end(3)
    assert turns.begin() == []  # c has no more calls, and its CPU is of no use to the others
    turns.end(2)
    assert turns.begin() == [4]
    turns.end(1)
    assert turns.begin() == [1]
    turns.end(0)
    assert turns.begin() == [0]


def test_equal_shares_fill_their_node_exactly():
    """Three hosts share two CPUs at 0.6666 each (Ray counts ten-thousandths): two turns. Ten at 0.1: one turn."""
    for hosts, cpus, abreast in ((3, 0.6666, 2), (10, 0.1, 1), (15, 0.2, 3)):
        turns = Turns[int](["a"] * hosts, cpus)
        for host in range(hosts):
            turns.wait(host, host)
        assert turns.begin() == list(range(abreast))


def test_a_busy_host_holds_one_turn_and_its_calls_keep_their_order():
    """Hosts 0, 2 and 4 on two CPUs: 0 is asked three times, and then 2 and 4, for which it must not keep a CPU idle."""
    turns = Turns[str](NODES, 0.6)
    for host, call in ((0, "first"), (0, "second"), (0, "third"), (2, "other"), (4, "last"), (0, "fourth")):
        turns.wait(host, call)
    assert turns.begin() == ["first", "other"]
    turns.end(2)
    assert turns.begin() == ["last"]
    turns.end(4)
    assert turns.begin() == []  # 0 is busy, and nobody else is asked for anything
    for call in ("second", "third", "fourth"):
        turns.end(0)
        assert turns.begin() == [call]


def test_hosts_with_cpus_of_their_own_never_wait():
    turns = Turns[int](NODES, None)
    for call in range(7):
        turns.wait(0, call)
    assert turns.begin() == list(range(7))


def test_as_many_hosts_of_each_node_as_may_compute_at_a_time_are_abreast():
    """At 0.6 CPUs each, a (hosts 0, 2, 4) has 2 turns, b and c have 1 each; with CPUs of their own all compute."""
    assert Turns[int](NODES, 0.6).abreast == [0, 1, 2, 3]
    assert Turns[int](NODES, 0.3).abreast == [0, 1, 3]
    assert Turns[int](NODES, None).abreast == list(range(5))
