"""What clients hold, counted for a run's records: by hand for small federations."""

import json
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.federation import holdings
from raysim.federation.federation import build_federation
from raysim.federation.holdings import find_holdings


def test_a_row_counts_once_by_class_though_tasks_share_it(tiny: Any) -> None:
    """36 samples, 9 of each of 4 classes, dealt once to 3 clients of 12, who see all of them in both tasks."""
    found = find_holdings(build_federation(tiny()), None)
    assert found is not None
    assert found.by_task == [[12, 12]] * 3
    assert [sum(row) for row in found.by_class] == [12] * 3
    assert [sum(column) for column in zip(*found.by_class, strict=True)] == [9] * 4
    assert (found.clients, found.at_tasks) == ([0, 1, 2], [])


@pytest.mark.parametrize("online", [True, False])
def test_a_task_counts_in_whole_though_it_comes_in_parts(tiny: Any, online: bool) -> None:
    """With blur and online, the 12 samples of each task come in several portions."""
    found = find_holdings(build_federation(tiny(scenario__online=online, scenario__blur=0.5)), None)
    assert found is not None
    assert found.by_task == [[12, 12]] * 3


def test_of_very_many_clients_some_are_counted_evenly_spaced(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 6 clients with 6 samples each, 4: 0, 6 // 4, 12 // 4, 18 // 4."""
    monkeypatch.setattr(holdings, "MOST_CLIENTS", 4)
    found = find_holdings(build_federation(tiny(clients__count=6)), None)
    assert found is not None
    assert found.clients == [0, 1, 3, 4]
    assert found.by_task == [[6, 6]] * 4


def test_a_run_writes_down_who_holds_what_and_who_is_at_which_task_when(tiny: Any, tmp_path: Path) -> None:
    """Three rounds of each of two tasks; client 2 comes with round 2, client 0 leaves with round 5."""
    clients = {"count": 3, "arrive": {"at": [{"round": 2, "clients": [2]}]}, "leave": [{"round": 5, "clients": [0]}]}
    config = tiny(training__rounds_per_task=3, clients=clients, logging__tensorboard=False)
    raysim.run(config, out=tmp_path / "run", local=True)
    found = json.loads((tmp_path / "run" / "clients.json").read_text())
    assert found["by_task"] == [[12, 12]] * 3
    assert found["at_tasks"] == [[[1, 1], [4, 2], [5, 0]], [[1, 1], [4, 2]], [[1, 0], [2, 1], [4, 2]]]
    assert found["rows"] == [3, 6]
