"""Runs with pretrained models on Ray have the bits of a run in this process: with and without Ray's internals."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from pretrained_folders import run_of_texts, write_folder, write_texts

import raysim
from raysim.actors import compat
from raysim.actors.starting import own_cluster
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay
from raysim.system.capacity import Capacity

pytestmark = [pytest.mark.ray, pytest.mark.soak]
pytest.importorskip("transformers")

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
ONE_EACH, PACKED = {"resources.clients_per_actor": 1}, {"resources.clients_per_actor": 2}
RUNS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "all weights, one client per actor": ({}, ONE_EACH),
    "mapped weights, packed, killed": ({"freeze": ["body.*"]}, PACKED),
}
"""The model's keys, and where clients are."""


@pytest.fixture(scope="module", params=["internals", "plain"])
def mode(request: pytest.FixtureRequest, no_cluster: None) -> Iterator[str]:
    """A cluster that was started in this mode."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(HERE)
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (HERE.parent, ROOT))), prepend=os.pathsep)
        patch.setenv("RAYSIM_PLAIN_RAY", str(int(request.param == "plain")))
        with own_cluster(Capacity(3, 0, None)):
            yield request.param


class Killing(RunDisplay):
    """Kills a host after the second round, once."""

    def __init__(self) -> None:
        self.kills = True

    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, RoundDone) and event.round == 2 and self.kills:
            self.kills = False
            actors = [psutil.Process(actor["Pid"]) for actor in compat.alive_actors()]
            next(actor for actor in actors if "Host" in actor.name()).kill()


@pytest.mark.parametrize("kind", RUNS)
def test_a_run_has_the_bits_of_one_here(kind: str, mode: str, tmp_path: Path) -> None:
    """With all weights and dropout, and with frozen weights that hosts map from the folder's file."""
    model, place = RUNS[kind]
    config = run_of_texts(write_folder(tmp_path / "bert", "bert"), write_texts(tmp_path), **model)
    killed = "killed" in kind
    there = raysim.run(config, place, out=tmp_path / "there", display=Killing() if killed else None)
    here = raysim.run(config, out=tmp_path / "here", local=True)
    assert there.model_sha256 == here.model_sha256
    assert there.recoveries == killed
