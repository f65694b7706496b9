"""Memory does not grow with the rounds: neither the object store nor the processes of a run on Ray."""

from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

import raysim
from raysim.actors import compat
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay

pytestmark = [pytest.mark.ray, pytest.mark.soak, pytest.mark.usefixtures("cluster")]

WARM, LAST = 100, 300  # rounds; each broadcasts a model and message, every fifth leaves a checkpoint
HIDDEN = 3000
MODEL = 4 * (6 * HIDDEN + HIDDEN + HIDDEN * 4 + 4)  # bytes: enough for the object store, few enough for fast rounds
MAIL = 2**18  # bytes
PUT = "00" + 18 * "ff"  # how the name of an object begins that the driver put there
GROWTH = (LAST - WARM) * MODEL / 2  # bytes; message or a model of each round that stayed would be twice this and more


class Held(RunDisplay):
    """What is in the object store after each round, and the memory of each process of the run at two of them."""

    def __init__(self) -> None:
        self.stored: list[int] = []
        self.processes: dict[int, dict[int, int]] = {}
        self.put: list[str] = []

    def take(self, event: Event) -> None:
        if not isinstance(event, RoundDone):
            return
        self.stored.append(stored())
        if event.round in (WARM, LAST):
            me = psutil.Process()
            actors = [p for p in me.children(recursive=True) if p.name().startswith("ray::")]
            self.processes[event.round] = {p.pid: anonymous(p) for p in (me, *actors)}
            self.put += [name for name in compat.own_references() if name.startswith(PUT)]


def anonymous(process: psutil.Process) -> int:
    """Bytes that no file and no object store holds; of forked processes, what they share counts as well as before."""
    held = process.memory_info()
    return int(held.rss - held.shared)


def stored() -> int:
    (node,) = ray.nodes()
    return compat.stored_bytes(node)


def test_rounds_leave_nothing_in_the_object_store_or_the_processes(small: dict[str, Any], tmp_path: Path) -> None:
    more = {
        "scenario.tasks": 1,
        "model.hidden": [HIDDEN],
        "training.rounds_per_task": LAST + 1,
        "training.batch_size": 200,
        "checkpoint.every_rounds": 5,
        "methods": {"misbehaving:Hoarder": {"mailed": MAIL}},
        "resources.clients_per_actor": 2,
    }
    held = Held()
    raysim.run(small, more, out=tmp_path / "run", display=held)
    first, last = held.stored[:WARM], held.stored[LAST - WARM :]
    assert max(first) > MODEL + MAIL  # what must not pile up is found; Ray frees it some rounds later, much at once
    assert min(last) < min(first) + GROWTH
    assert held.put == []  # Ray would end the driver if the raylet ended
    assert set(held.processes[LAST]) == set(held.processes[WARM])
    assert len(held.processes[LAST]) >= 4  # the driver, a coordinator and two hosts
    for process, bytes_held in held.processes[LAST].items():
        assert bytes_held - held.processes[WARM][process] < GROWTH, process
