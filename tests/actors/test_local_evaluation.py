"""Clients' own models are tested where the clients live: the same figures however they are spread, or lost."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from test_recovery import actors

import raysim
from raysim.engine.events import Event, RoundDone

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

Facts = Callable[[raysim.Result], Mapping[str, Any]]

RUN = {
    "model": {"name": "mlp", "hidden": [12], "dropout": 0.3, "batch_norm": True},
    "methods": {"fedper": {"layers": 2}, "ditto": {}},
    "participation": {"count": 2},
    "partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3},
    "evaluation": {"model": "local", "every_rounds": 1},
    "checkpoint.every_rounds": 2,
    "logging.tensorboard": False,
}
WAYS: dict[str, dict[str, Any]] = {
    "one actor each": {"resources.clients_per_actor": 1},
    "packed": {"resources.clients_per_actor": "auto"},
}
SPAWNED = {"resources.clients_per_actor": 2, "resources.workers": "spawned"}


class KillsAHost:
    """A display that kills a host when it is told of round 3, once; shows nothing."""

    killed = 0

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone) and event.round == 3 and not self.killed:
            actors("Host")[0].kill()
            self.killed += 1

    def say(self, text: str) -> None:
        pass


@pytest.fixture(scope="module")
def here(small: dict[str, Any], facts: Facts, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    return facts(raysim.run(small, RUN, out=tmp_path_factory.mktemp("local") / "run", local=True))


@pytest.mark.parametrize("way", [pytest.param("one actor each", marks=pytest.mark.soak), "packed"])
def test_the_figures_are_those_of_the_local_run(
    way: str, small: dict[str, Any], here: Mapping[str, Any], facts: Facts, tmp_path: Path
) -> None:
    found = facts(raysim.run(small, RUN | WAYS[way], out=tmp_path / "run"))
    assert found == here
    assert found["rounds"][0]["spread"]["class_il"]["worst"]


@pytest.mark.soak
def test_so_they_are_after_a_host_was_killed(
    small: dict[str, Any], here: Mapping[str, Any], facts: Facts, tmp_path: Path
) -> None:
    """Killed in round 3 or 4: the own models come from the checkpoint of round 2, whoever trained since."""
    display = KillsAHost()
    result = raysim.run(small, RUN | SPAWNED, out=tmp_path / "run", display=display)
    assert display.killed == result.recoveries == 1
    assert facts(result) == here
