"""Methods in the whole loop of LoRM's code, against references in plain torch, in float64: tools/twins/loop*.py."""

from dataclasses import replace
from pathlib import Path

import pytest
from twins.__main__ import LOOPS_CLOSE, LOOPS_OPEN
from twins.loop import BOUND
from twins.loop_methods import LOOPS

PAGE = Path(__file__).parents[2] / "docs" / "twins.md"
LOOP = {loop.name: loop for loop in LOOPS}


def loops():
    """All loops; `make test` has LoRM's alone."""
    for loop in LOOPS:
        yield pytest.param(loop, id=loop.name, marks=[] if loop.name == "LoRM" else [pytest.mark.soak])


@pytest.mark.parametrize("loop", [*loops()])
def test_a_short_loop_is_the_references(loop, quiet_torch):
    """Five tasks of two rounds: all accuracies after every round are equal, and the final weights to 1e-9."""
    found = loop.compare(short=True)
    assert found.wrong == 0
    assert found.difference < BOUND
    assert [len(row) for row in found.accuracies] == [5] * 10


@pytest.mark.soak
@pytest.mark.parametrize("name", ["Fed-CODA-P", "LoRM", "PILoRA"])
def test_a_loop_is_the_references(name, quiet_torch):
    """Five tasks of three rounds of two epochs at five clients."""
    found = LOOP[name].compare()
    assert found.wrong == 0
    assert found.difference < BOUND
    assert len({accuracy for row in found.accuracies for accuracy in row}) > 10


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "other"),
    [("Fed-CODA-P", {"per_task": 2}), ("LoRM", {"averaged": False}), ("PILoRA", {"temperature": 0.4})],
)
def test_a_reference_of_something_else_differs(name, other, quiet_torch):
    """Fewer components, Grams of another model, or prototypes with other weights show in the weights."""
    loop = LOOP[name]
    assert replace(loop, given={**loop.given, **other}).compare(short=True).difference > 1e-6


def test_the_page_has_every_loop():
    lines = PAGE.read_text(encoding="utf-8").split(LOOPS_OPEN)[1].split(LOOPS_CLOSE)[0].split("\n| ")[2:]
    assert [line.split(" | ")[0] for line in lines] == [loop.name for loop in LOOPS]
    for line in lines:
        equal, of_all = line.split(" | ")[5].split(" of ")
        assert equal == of_all == "75"  # five tasks after each of 15 rounds
