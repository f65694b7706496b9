"""A node that is about to leave its cluster has a checkpoint written: without Ray."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from raysim.actors import compat, draining
from raysim.actors.draining import Draining
from raysim.engine.events import Checkpoint, RoundDone
from raysim.engine.simulation import load_parts, simulate_here

OWN, OTHER = "a" * 56, "b" * 56


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The nodes that are drained; a question is possible at any time."""
    nodes: set[str] = set()
    monkeypatch.setattr(compat, "draining_nodes", lambda: nodes)
    monkeypatch.setattr(draining, "EVERY", 0)
    monkeypatch.setattr(draining.ray, "nodes", lambda: [{"NodeID": OWN, "NodeManagerAddress": "10.0.0.2"}])
    return nodes


def test_a_node_of_the_run_is_noticed_once(leaving: set[str]) -> None:
    watched = Draining([OWN])
    assert watched.notice() is None
    leaving.add(OTHER)
    assert watched.notice() is None
    leaving.add(OWN)
    assert watched.notice() == f"about to leave the cluster: 10.0.0.2 ({OWN[:8]}); a checkpoint follows this round"
    assert watched.notice() is None


def test_ray_is_asked_once_a_second_and_not_where_nobody_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    now = SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr(draining, "time", now)
    monkeypatch.setattr(compat, "draining_nodes", lambda: asked.append(1) or ())
    watched = Draining([OWN])
    for moment in (100.0, 100.5, 100.9, 101.0, 101.5):
        now.monotonic = lambda moment=moment: moment
        assert watched.notice() is None
    assert len(asked) == 2
    Draining([]).notice()
    assert len(asked) == 2


def test_the_plain_mode_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "why_plain", lambda: "RAYSIM_PLAIN_RAY is set")
    assert [*compat.draining_nodes()] == []


def test_a_checkpoint_follows_the_round_in_progress_and_only_that_one(tiny: Callable[..., Any]) -> None:
    """Four rounds without a regular checkpoint; it is asked for during the second."""
    config = tiny(checkpoint={"every_rounds": 100})
    federation, model = load_parts(config)
    simulation = simulate_here(config, federation, None, None, model)
    seen: list[str] = []
    for event in simulation.events():
        if isinstance(event, RoundDone):
            seen.append(f"round {event.round}")
            if event.round == 2:
                simulation.save()
        if isinstance(event, Checkpoint):
            seen.append(f"checkpoint {event.round}")
    assert seen == ["round 1", "round 2", "checkpoint 2", "round 3", "round 4"]
