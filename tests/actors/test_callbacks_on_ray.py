"""Callbacks under Ray: told in the driver of the same rounds; a run that is stopped ends with a local one's bits."""

import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

import raysim
from raysim.callbacks import Callback, RunView
from raysim.engine.events import Event, RoundDone
from raysim.launch.display import RunDisplay
from raysim.sweeps.directory import plan_sweep
from raysim.sweeps.sweep import carry_out
from raysim.sweeps.sweep_display import SweepDisplay

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

Facts = Callable[[raysim.Result], Mapping[str, Any]]
COMMON = {
    "logging.tensorboard": False,
    "model.dropout": 0.3,
    "evaluation.every_rounds": 1,
    "checkpoint.every_rounds": 2,
}


class Stops(Callback):
    """Records where it runs and what it is told, and ends the run after a round."""

    def __init__(self, *, last: int = 5) -> None:
        self.last = last
        self.told: list[object] = []

    def on_round(self, run: RunView, done: RoundDone) -> None:
        self.told.append(done.round)
        run.record("here", float(os.getpid() == run.config.seed))
        if done.round == self.last:
            run.stop("enough")

    def on_loss(self, run: RunView, why: str, back_to: int) -> None:
        self.told.append(("back to", back_to))


@pytest.mark.soak
@pytest.mark.parametrize("packed", [1, 2])
def test_a_run_that_is_stopped_has_the_bits_of_a_local_one(
    packed: int, small: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    """`here` is 1 where the seed is the number of the process: in the driver."""
    overrides = {**COMMON, "seed": os.getpid(), "callbacks": {f"{__name__}:Stops": {}}}
    here = raysim.run(small, overrides, tmp_path / "here", True)
    there = raysim.run(small, {**overrides, "resources.clients_per_actor": packed}, tmp_path / "there")
    assert (there.status, there.rounds, there.stopped_by) == ("done", 5, f"{__name__}:Stops")
    assert facts(there) == facts(here)
    assert (tmp_path / "there" / "callbacks.jsonl").read_text().count('"value": 1.0') == 5


class Kills(RunDisplay):
    """Kills a host when the round before the last is told, the newest checkpoint being of round 2."""

    def __init__(self) -> None:
        self.left = 1

    def take(self, event: Event) -> None:
        super().take(event)
        if isinstance(event, RoundDone) and event.round == 3 and self.left:
            self.left = 0
            hosts = [p for p in psutil.Process().children(recursive=True) if "ray::Host" in " ".join(p.cmdline())]
            os.kill(hosts[0].pid, signal.SIGKILL)


def test_after_a_loss_no_round_is_told_twice_and_it_ends_where_it_was_to_end(
    small: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    stops, kills = Stops(), Kills()
    common = {**COMMON, "seed": os.getpid()}  # see the test before
    packed = {**common, "resources.clients_per_actor": 2}
    there = raysim.run(small, packed, tmp_path / "there", callbacks=[stops], display=kills)
    assert (there.status, there.rounds, there.stopped_by) == ("done", 5, "Stops")
    assert (tmp_path / "there" / "callbacks.jsonl").read_text().count('"value": 1.0') == 5
    assert kills.left == 0
    assert there.recoveries == 1
    assert stops.told == [1, 2, 3, ("back to", 2), 4, 5]
    here = raysim.run(small, common, tmp_path / "here", True, callbacks=[Stops()])
    assert facts(there) == facts(here)


def test_the_runs_of_a_sweep_are_stopped_too(small: dict[str, Any], facts: Facts, tmp_path: Path) -> None:
    axes = {"callbacks": {str(last): {f"{__name__}:Stops": {"last": last}} for last in (2, 5)}}
    source = {"name": "try", "base": small, "set": COMMON, "grid": axes}
    there = carry_out(plan_sweep(source, (), tmp_path / "there"), False, 2, SweepDisplay())
    here = carry_out(plan_sweep(source, (), tmp_path / "here"), True, None, SweepDisplay())
    for one, other, rounds in zip(there, here, (2, 5), strict=True):
        assert one.result is not None
        assert other.result is not None
        assert (one.result.rounds, one.result.stopped_by) == (rounds, f"{__name__}:Stops")
        assert facts(one.result) == facts(other.result)
