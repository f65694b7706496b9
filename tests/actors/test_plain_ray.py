"""With Ray's internals and without (RAYSIM_PLAIN_RAY=1): runs of all kinds have the bits of a run in this process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest

import raysim
from raysim.actors import compat
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay
from raysim.system.capacity import CAN_FORK

pytestmark = pytest.mark.ray

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
ALL = {"training.rounds_per_task": 2, "checkpoint.every_rounds": 1, "logging.tensorboard": False}
RUNS: dict[str, dict[str, Any]] = {
    "one client per actor": {"resources.clients_per_actor": 1},
    "packed": {"resources.clients_per_actor": "auto", "methods": {"fedprox": {"mu": 0.1}, "er": {}}},
    "asynchronous": {
        "resources.clients_per_actor": 2,
        "methods": {"er": {}},
        "schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}},
    },
    "killed": {"resources.clients_per_actor": 4, "methods": {"der": {}, "beside:Flow": {}}},
}
SOAKED = ("one client per actor", "packed", "asynchronous")


@pytest.fixture(scope="module", params=[pytest.param("internals", marks=pytest.mark.soak), "plain"])
def mode(
    request: pytest.FixtureRequest, cluster_in_mode: Callable[[str], AbstractContextManager[None]]
) -> Iterator[str]:
    """A cluster that was started in this mode."""
    with cluster_in_mode(request.param):
        yield request.param


class Watching(RunDisplay):
    """Keeps what is said and the parents of the actors; kills a host in the second round if asked to."""

    def __init__(self, kills: bool) -> None:
        self.kills = kills
        self.said: list[str] = []
        self.parents: set[str] = set()

    def say(self, text: str) -> None:
        self.said.append(text)

    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, RoundDone) and event.round == 2:
            actors = [psutil.Process(actor["Pid"]) for actor in compat.alive_actors()]
            self.parents |= {" ".join(actor.parent().cmdline()) for actor in actors if actor.is_running()}
            if self.kills:
                self.kills = False
                next(actor for actor in actors if "Host" in actor.name()).kill()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.soak) if kind in SOAKED else kind for kind in RUNS]
)
def test_a_run_has_the_bits_of_one_here(kind: str, mode: str, small: dict[str, Any], tmp_path: Path) -> None:
    watched = Watching(kills=kind == "killed")
    there = raysim.run(small, ALL | RUNS[kind], out=tmp_path / "there", display=watched)
    here = raysim.run(small, ALL | RUNS[kind], out=tmp_path / "here", local=True)
    assert there.model_sha256 == here.model_sha256
    assert there.recoveries == (kind == "killed")
    lines = [line for line in watched.said if "RAYSIM_PLAIN_RAY is set" in line]
    forked = [parent for parent in watched.parents if "fork_server.py" in parent]
    if mode == "plain" and CAN_FORK:
        assert len(lines) == 1
    if mode == "plain":
        assert forked == []
    elif CAN_FORK:
        assert lines == []
        assert len(forked) == 1
