"""Memory does not grow with the rounds: what a run holds after many is what it held after some."""

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import torch

import raysim
from raysim.config import Config
from raysim.engine.events import Event, RoundDone
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
