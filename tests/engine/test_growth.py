"""What a run holds does not grow with its rounds, nor what a round costs with all clients, but with its cohort."""

import gc
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import raysim
from raysim.config import Config
from raysim.engine.events import Event, RoundDone
from raysim.engine.runner import LocalRunner
from raysim.engine.simulation import Simulation
from raysim.federation.federation import build_federation
from raysim.launch.display import RunDisplay

WARM, LAST = 20, 120  # rounds; every tenth is evaluated, every twentieth leaves a checkpoint
GROWTH = 1024  # bytes a round: its seconds are kept for the median, and what samples memory holds some at times


class Held(RunDisplay):
    """How many bytes Python holds and how many tensors there are, when a round is over."""

    def __init__(self) -> None:
        self.bytes: dict[int, int] = {}
        self.tensors: dict[int, int] = {}

    def take(self, event: Event) -> None:
        if isinstance(event, RoundDone) and event.round in (WARM, LAST):
            gc.collect()
            self.bytes[event.round] = tracemalloc.get_traced_memory()[0]
            self.tensors[event.round] = sum(type(one) is torch.Tensor for one in gc.get_objects())


def test_a_run_holds_after_many_rounds_what_it_held_after_some(tiny: Callable[..., Config], tmp_path: Path) -> None:
    config = tiny(
        training__rounds_per_task=LAST + 1,  # a task that ends is drawn, for which much is imported
        scenario__tasks=1,
        evaluation__every_rounds=10,
        methods={"scaffold": {}, "der": {}, "fed_a_gem": {}},
        memory__capacity=5,
        logging__tensorboard=True,
    )
    held = Held()
    tracemalloc.start()
    try:
        raysim.run(config, out=tmp_path / "run", local=True, display=held)
    finally:
        tracemalloc.stop()
    assert held.tensors[WARM] > 0
    assert held.tensors[LAST] == held.tensors[WARM]
    assert held.bytes[LAST] - held.bytes[WARM] < GROWTH * (LAST - WARM)


def calls_in_rounds(config: Config) -> int:
    """Return how many functions are called, Python's own among them, in the third round and the fourth."""
    federation = build_federation(config)
    simulation = Simulation(config, federation, LocalRunner(config, federation))
    rounds = (event for event in simulation.events() if isinstance(event, RoundDone))
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    assert [next(rounds).round for _ in range(2)] == [1, 2]
    sys.setprofile(count)
    try:
        assert [len(next(rounds).cohort) for _ in range(2)] == [3, 3]
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    "timing",
    [
        {"participation": {"count": 3}},
        {"participation": {"count": 3}, "clients__dropout": 1e-9},
        {"participation": {"count": 3, "sampler": "round_robin"}},
        {"schedule": {"kind": "asynchronous", "concurrency": 6, "buffer_size": 3}},
    ],
    ids=["uniform", "with drop-outs", "round robin", "FedBuff"],
)
def test_a_round_calls_no_more_functions_the_more_clients_there_are(
    tiny: Callable[..., Config], timing: dict[str, Any]
) -> None:
    """The cohort is 3 of 20 clients and of 400, with 4 samples each; a call for each client would be 380 more."""
    few, many = (
        calls_in_rounds(
            tiny(
                clients__count=count,
                dataset__train=4 * count,
                partition={"kind": "iid"},
                scenario__tasks=1,
                training__rounds_per_task=6,
                **timing,
            )
        )
        for count in (20, 400)
    )
    assert abs(many - few) < 100  # where clients are drawn, dictionaries and searches differ
