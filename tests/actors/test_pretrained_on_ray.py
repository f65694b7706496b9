"""Runs with pretrained models on Ray have the bits of a run in this process: with and without Ray's internals."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest
from pretrained_folders import run_of_texts, write_folder, write_texts

import raysim
from raysim.actors import compat
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay

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
def mode(
    request: pytest.FixtureRequest, cluster_in_mode: Callable[[str], AbstractContextManager[None]]
) -> Iterator[str]:
    """A cluster that was started in this mode."""
    with cluster_in_mode(request.param):
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
