"""State that grows in every local training is warned of once. State that fills, or grows by task, is not."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from raysim.api import ClientHalf, Method, ServerHalf
from raysim.engine.events import Caution
from raysim.engine.growing_state import LEAST, STREAK, GrowingState

HERE = "test_growing_state:"
PIECE = 2**11  # numbers, 8 KiB: 9 rounds of one piece are more than 64 KiB


@dataclass(frozen=True, kw_only=True)
class Grows(Method):
    """Keeps something in every round."""

    what: str = "client"

    class Client(ClientHalf):
        method: "Grows"

        def __init__(self, name, method):
            super().__init__(name, method)
            self.history: Any = {"all": []}

        def start(self, client, message):
            self.number = self.number + 1 if hasattr(self, "number") else 1
            if self.method.what == "fills":  # up to its data: 12 samples of 6 numbers
                self.history["all"] = [torch.zeros(min(self.number, 12), 6)]

        def observe(self, step):
            if self.method.what == "client" and step.number == 0:
                self.history["all"].append(torch.zeros(PIECE))

        def begin_task(self, client):
            if self.method.what == "task":
                self.history["all"].append(torch.zeros(LEAST))

    class Server(ServerHalf):
        method: "Grows"

        def __init__(self, name, method):
            super().__init__(name, method)
            self.seen = []

        def update(self, server, delta, reply):
            if self.method.what == "server":
                self.seen.append(torch.zeros(PIECE))
            return delta


def cautions(run):
    return [event.text for event in run.events if isinstance(event, Caution)]


def test_a_growing_attribute_is_warned_of_once_with_its_bytes(tiny, simulate):
    """One piece of 8,192 bytes a round: 8,192 after round 1, 9 x 8,192 = 73,728 > 65,536 after round 9."""
    run = simulate(tiny(methods={f"{HERE}Grows": {}}, training__rounds_per_task=12, scenario__tasks=1))
    (text,) = cautions(run)
    assert text.startswith(
        "methods.Grows: its client half's attribute history grew in each of the last 8 local trainings"
    )
    assert text.endswith(" of client 0, from 8,192 to 73,728 bytes; memory and checkpoints grow with it")


def test_a_server_half_is_warned_of_too(tiny, simulate):
    """Rounds 2 to 11 count, as round 1 begins the task: from 8,192 bytes in round 1 to 9 x 8,192 in round 9."""
    run = simulate(tiny(methods={f"{HERE}Grows": {"what": "server"}}, training__rounds_per_task=12, scenario__tasks=1))
    (text,) = cautions(run)
    assert (
        "its server half's attribute seen grew in each of the last 8 rounds of the server, from 8,192 to 73,728" in text
    )


@pytest.mark.parametrize("what", ["fills", "task", "nothing"])
def test_state_that_may_grow_is_not_warned_of(tiny, simulate, what):
    run = simulate(tiny(methods={f"{HERE}Grows": {"what": what}}, training__rounds_per_task=1, scenario__tasks=2))
    assert not cautions(run)
    assert not cautions(simulate(tiny(methods={f"{HERE}Grows": {"what": what}}, training__rounds_per_task=14)))


@dataclass
class Kept:
    """A half with one attribute of some bytes."""

    sizes: list[int]
    name: str = "kept"
    side: str = "client"
    transient: frozenset[str] = frozenset({"name", "side", "transient", "sizes"})
    value: Any = None

    def step(self, growing, begins=False, bound=0):
        self.value = torch.zeros(self.sizes.pop(0), dtype=torch.uint8)
        return [*growing.grown(self, "client 0", begins, bound)]


@pytest.mark.parametrize(
    ("sizes", "begins", "bound", "when"),
    [
        ([LEAST * k for k in range(1, 30)], (), 0, STREAK),  # grows from the second time on
        ([LEAST * k for k in range(1, 30)], (), 12 * LEAST, 12),  # the 13th is the first above the bound
        ([LEAST + k for k in range(30)], (), 0, None),  # has not doubled
        ([min(k, STREAK) * LEAST for k in range(1, 30)], (), 0, None),  # fills
        ([(k // 5 + 1) * LEAST for k in range(30)], (), 0, None),  # grows every fifth time
        ([k * LEAST for k in range(1, 30)], range(30), 0, None),  # a stage begins each time
        ([(1 + k % 5) * LEAST for k in range(30)], (), 0, None),  # grows, and is emptied
        (list(range(1, 30)), (), 0, None),  # less than 64 KiB
    ],
)
def test_when_an_attribute_is_reported(sizes, begins, bound, when):
    growing, half = GrowingState(), Kept([*sizes])
    found = [number for number in range(len(sizes)) if half.step(growing, number in begins, bound)]
    assert found == ([] if when is None else [when])
