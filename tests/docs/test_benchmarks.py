"""The benchmarks still fit the code that they measure; what they print is for people to look at."""

import importlib
import random
from pathlib import Path
from typing import Any

import pytest

from raysim.engine.events import RolledBack, RoundDone

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OF_ANOTHER_ENVIRONMENT = "flower_app"  # which has Flower, as the tests' has not


@pytest.fixture
def benchmark_named(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.mark.parametrize("name", sorted(p.stem for p in BENCHMARKS.glob("*.py") if p.stem != OF_ANOTHER_ENVIRONMENT))
def test_a_benchmark_can_be_imported(name: str, benchmark_named: Any) -> None:
    assert benchmark_named(name).__doc__


def test_what_a_round_is_divided_into_exists(benchmark_named: Any) -> None:
    profile = benchmark_named("round_time")
    places = [place for part in (profile.COORDINATOR, profile.HOST) for several in part.values() for place in several]
    assert len(places) > 10
    assert [(owner, name) for owner, name in places if not callable(getattr(owner, name, None))] == []


def test_the_coordinators_parts_are_those_that_a_round_calls(benchmark_named: Any, tiny: Any, simulate: Any) -> None:
    """A round with one host in this process calls all parts except those of Ray and of several hosts."""
    profile = benchmark_named("round_time")
    shares = profile.Shares()
    with shares.of(profile.COORDINATOR):
        simulate(tiny())
    of_hosts = {"move clients", "broadcast the model", "send orders", "wait", "take replies", "merge sums"}
    assert {*shares.seconds} == {*profile.COORDINATOR} - of_hosts


def test_the_next_process_is_killed_once_the_run_has_gone_back(benchmark_named: Any) -> None:
    killed, replaced = list[bool](), list[bool]()
    killer = benchmark_named("killing").Killer(
        lambda: not killed.append(True), lambda: replaced.append(True), 2, last=9, spread=0, draws=random.Random(0)
    )
    for round in (1, 2, 1):
        killer.take(RoundDone(round, [1], [0], 0.5, 1, 1, 0.0, [0], None))
        killer._timer.join()
        if round == 2:
            killer.take(RolledBack("the host of client 1 died", 0))
    assert (killer.done, killed, replaced, len(killer.pauses)) == (2, [True] * 2, [True], 1)
