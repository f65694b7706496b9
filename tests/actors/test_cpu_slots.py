"""Hosts take turns where they share CPUs: of each node's hosts as many compute as its CPUs."""

import os
import select
import signal
import subprocess
import sys

import pytest

from raysim.actors.cpu_slots import abreast, count_turns, open_turns, take_turns

NODES = ["a", "b", "a", "c", "a"]  # the nodes of five hosts
linux = pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"),
    reason="without /proc hosts find no turns of others; that they compute then is in test_actors_without_ray.py",
)

# A host as a process of its own: a line for each turn that it has, and it keeps the turn until it is told to go on.
HOST = """
import sys
from raysim.actors.cpu_slots import take_turns
turn = take_turns(sys.argv[1])
print("there", flush=True)
for _ in sys.stdin:
    with turn:
        print("computes", flush=True)
        sys.stdin.readline()
    print("done", flush=True)
"""


class Another:
    """Another host of this node."""

    def __init__(self, place: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self.says() == "there"

    def go_on(self) -> None:
        """Ask it to compute, or to be done with it."""
        self.process.stdin.write(b"\n")

    def says(self, seconds: float = 30) -> str | None:
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline().decode().strip() if ready else None

    def end(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def hosts(request):
    """Three hosts of a node with as many turns as the test says."""
    place = open_turns(request.param)
    made = [Another(place) for _ in range(3)]
    yield made
    for host in made:
        host.end()
    os.close(int(place.rpartition("/")[2]))


def test_a_node_has_as_many_turns_as_its_hosts_have_cpus():
    """At 0.6 CPUs each, a has 1.8 and so 2 turns, b and c have 0.6 and so 1 each."""
    assert count_turns(NODES, 0.6) == {"a": 2, "b": 1, "c": 1}


def test_equal_shares_fill_their_node_exactly():
    """Three hosts share two CPUs at 0.6666 each (Ray counts ten-thousandths): two turns. Ten at 0.1: one turn."""
    for hosts, cpus, turns in ((3, 0.6666, 2), (10, 0.1, 1), (15, 0.2, 3)):
        assert count_turns(["a"] * hosts, cpus) == {"a": turns}


def test_as_many_hosts_of_each_node_as_may_compute_at_a_time_are_abreast():
    """a (hosts 0, 2, 4) has 2 turns, b and c have 1 each; with CPUs of their own all compute."""
    assert abreast(NODES, {"a": 2, "b": 1, "c": 1}) == [0, 1, 2, 3]
    assert abreast(NODES, {"a": 1, "b": 1, "c": 1}) == [0, 1, 3]
    assert abreast(NODES, None) == list(range(5))


@linux
@pytest.mark.slow
@pytest.mark.parametrize("hosts", [2], indirect=True)
def test_of_three_hosts_with_two_turns_two_compute_and_the_third_when_one_is_done(hosts):
    first, second, third = hosts
    for host in (first, second):
        host.go_on()
        assert host.says() == "computes"
    third.go_on()
    assert third.says(0.5) is None
    first.go_on()
    assert first.says() == "done"
    assert third.says() == "computes"
    first.go_on()
    assert first.says(0.5) is None  # two compute


@linux
@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1], indirect=True)
def test_a_host_that_is_killed_while_it_waits_takes_no_turn(hosts):
    first, second, third = hosts
    first.go_on()
    assert first.says() == "computes"
    for host in (second, third):
        host.go_on()
        assert host.says(0.5) is None
    second.process.send_signal(signal.SIGKILL)
    second.process.wait()
    first.go_on()
    assert third.says() == "computes"


@linux
def test_a_turn_is_given_back_when_computing_fails():
    place = open_turns(1)
    turn = take_turns(place)
    for _ in range(3):  # a second one would wait forever
        with pytest.raises(RuntimeError), turn:
            raise RuntimeError("a client half")
    with turn:
        pass


def test_where_there_are_no_turns_to_be_found_is_an_error_that_says_so():
    with pytest.raises(OSError, match="No such file"):
        take_turns("/proc/0/fd/7")
