"""Hosts that share CPUs have CPU slots: as many hosts of each node compute at a time as it has CPUs."""

import os
import select
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from raysim.actors.cpu_slots import CpuSlot, concurrent_hosts, count_slots

NODES = ["a", "b", "a", "c", "a"]  # the nodes of five hosts
# A host as a separate process: prints a line when it has a slot, and keeps the slot until it reads a line.
HOST = """
import sys
from raysim.actors.cpu_slots import CpuSlot
slot = CpuSlot(sys.argv[1], int(sys.argv[2]))
print("there", flush=True)
for _ in sys.stdin:
    with slot:
        print("computes", flush=True)
        sys.stdin.readline()
    print("done", flush=True)
"""


class Another:
    """Another host of this node."""

    def __init__(self, name: str, slots: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOST, name, str(slots)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
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
    """Three hosts of a node with as many slots as the test says. The name of the slots goes with the first use."""
    name = f"test-{os.getpid()}-{request.node.name}"
    pipe = Path(tempfile.gettempdir(), f"raysim-slots-{name}")
    made = [Another(name, request.param) for _ in range(3)]
    assert stat.S_IMODE(pipe.stat().st_mode) == 0o600
    yield made
    assert not pipe.exists()
    for host in made:
        host.end()


def test_a_node_has_as_many_slots_as_its_hosts_have_cpus():
    """At 0.6 CPUs each, a has 1.8 and so 2 turns, b and c have 0.6 and so 1 each."""
    assert count_slots(NODES, 0.6) == {"a": 2, "b": 1, "c": 1}


def test_equal_shares_fill_their_node_exactly():
    """Three hosts share two CPUs at 0.6666 each (Ray counts ten-thousandths): two turns. Ten at 0.1: one turn."""
    for hosts, cpus, turns in ((3, 0.6666, 2), (10, 0.1, 1), (15, 0.2, 3)):
        assert count_slots(["a"] * hosts, cpus) == {"a": turns}


def test_as_many_hosts_of_each_node_as_may_compute_at_a_time_are_concurrent_hosts():
    """a (hosts 0, 2, 4) has 2 turns, b and c have 1 each."""
    assert concurrent_hosts(NODES, {"a": 2, "b": 1, "c": 1}) == [0, 1, 2, 3]
    assert concurrent_hosts(NODES, {"a": 1, "b": 1, "c": 1}) == [0, 1, 3]


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [2], indirect=True)
def test_of_three_hosts_with_two_slots_two_compute_and_the_third_when_one_is_done(hosts):
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


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1], indirect=True)
def test_a_host_that_is_killed_while_it_waits_takes_no_slot(hosts):
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


def test_a_slot_is_given_back_when_computing_fails():
    slot = CpuSlot(f"test-{os.getpid()}-given-back", 1)
    for _ in range(3):  # a second one would wait forever
        with pytest.raises(RuntimeError), slot:
            raise RuntimeError("a client half")
    with slot:
        pass


def test_where_there_can_be_no_slots_is_an_error_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(OSError, match="No such file"):
        CpuSlot("name", 1)
