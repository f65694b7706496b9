"""Packed clients move between two hosts of a running cluster: no bit moves with them, and a kill loses nothing."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import raysim

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

Facts = Callable[[raysim.Result], Mapping[str, Any]]

EVERY = 3
WAY = {
    "clients.count": 6,
    "participation": {"count": 4},  # two hosts have 2 and 2 of them, or 3 and 1, or live with 4 and 0
    "training.rounds_per_task": 6,
    "checkpoint": {"every_rounds": EVERY, "tries": 10},
    "training.optimizer": {"lr": 0.05},
    "logging.tensorboard": False,
    "resources.clients_per_actor": 3,
}


def methods(seconds: float, log: Path, folder: Path) -> dict[str, Any]:
    """Every phase takes so much longer, so that moving pays; the last kill is after a checkpoint."""
    slow = {"client": -1, "seconds": seconds, "log": str(log)}
    fragile = {"misbehaving:Fragile": {"folder": str(folder), "after": EVERY + 1}}
    return {"scaffold": {}, "der": {}, "fed_a_gem": {}, "misbehaving:Slow": slow, **fragile}


def test_clients_move_and_processes_die_while_they_do(small: dict[str, Any], facts: Facts, tmp_path: Path) -> None:
    """The process dies that makes a record, the one that takes it in, and the one it came from; then it goes on."""
    died = tmp_path / "died"
    died.mkdir()
    here = raysim.run(small, WAY | {"methods": methods(0, tmp_path / "log", died)}, out=tmp_path / "here", local=True)
    log = tmp_path / "phases"
    result = raysim.run(small, WAY | {"methods": methods(0.04, log, died)}, out=tmp_path / "out")
    assert {path.name for path in died.iterdir()} == {"as it leaves", "as it arrives", "at home after it left"}
    lost = [json.loads(line) for line in (tmp_path / "out" / "checkpoints" / "losses.jsonl").read_text().splitlines()]
    assert result.recoveries == len(lost) == 3
    assert lost[-1]["back_to_round"] >= EVERY
    assert all(loss["why"].startswith("the host of client") for loss in lost), lost
    assert (died / "as it leaves").read_text() in lost[0]["why"].partition(" died: ")[0]
    assert facts(result) == facts(here)
    homes = defaultdict(set)
    for line in log.read_text().splitlines()[-2 * 4 * EVERY :]:  # of the last hosts
        client, process, *_ = line.split()
        homes[client].add(process)
    assert any(len(processes) > 1 for processes in homes.values())
