"""How many runs of a sweep there is room for at a time."""

import pytest

from raysim.estimate.concurrency import runs_at_once
from raysim.estimate.memory import PROCESS_BYTES, SHARED_BYTES
from raysim.system.capacity import Capacity
from raysim.system.errors import ConfigError


def test_as_many_runs_at_a_time_as_there_is_room_for() -> None:
    """Of 8 GiB 80% is 6.4; Ray and the driver have theirs; what is left is shared by processes of PROCESS_BYTES."""
    assert runs_at_once(Capacity(4, 0, None), 0, None) == 4
    assert runs_at_once(Capacity(4, 0, None), 0, 3) == 3
    assert runs_at_once(Capacity(4, 0, None), 0, 9) == 4
    assert runs_at_once(Capacity(16, 1, None), 0.25, None) == 4
    assert runs_at_once(Capacity(16, 2, None), 1, None) == 2
    assert runs_at_once(Capacity(1000, 0, 8 * 2**30), 0, None) == int((6.4 * 2**30 - SHARED_BYTES) / PROCESS_BYTES) - 1
    assert runs_at_once(Capacity(2, 0, 2**30), 0, None) == 1
    assert runs_at_once(Capacity(8, 0, None), 0, None, cpus=3) == 2
    nodes = [Capacity(2, 0, None), Capacity(3, 0, None)]  # a run is on one node
    assert runs_at_once(Capacity(5, 0, None, {}, nodes), 0, None, cpus=2) == 2
    apart = Capacity(9, 8, None, {"fast": 1}, [Capacity(8, 0, None), Capacity(1, 8, None, {"fast": 1})])
    assert runs_at_once(apart, 1, None) == 1  # the node with the GPUs has one CPU
    assert runs_at_once(apart, 0, None) == 9
    assert runs_at_once(apart, 0, None, custom={"fast": 1}) == 1
    with pytest.raises(ConfigError, match=r"^resources\.server_cpus: the cluster has 5 CPUs, .* of a sweep takes 4;"):
        runs_at_once(Capacity(5, 0, None, {}, nodes), 0, None, cpus=4)
    with pytest.raises(ConfigError, match="the cluster has 0 CPUs, and each run of a sweep takes 1"):
        runs_at_once(Capacity(0, 0, None), 0, None)
