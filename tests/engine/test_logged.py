"""What rounds are asked to tell beside their figures: dispatches in virtual time, and what memories hold."""

from collections.abc import Callable
from typing import Any

import pytest

from raysim.engine import virtual_time
from raysim.engine.events import line
from raysim.engine.virtual_time import Dispatch

CLASSES = {"kind": "class_incremental", "tasks": 2}


@pytest.fixture
def slowness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Client 1 takes half as long again as client 0, client 2 twice as long."""
    monkeypatch.setattr(virtual_time, "slowness", lambda seed, client, speeds: [1.0, 1.5, 2.0][client])


@pytest.mark.usefixtures("slowness")
def test_clients_of_a_round_leave_together_and_come_back_one_by_one(tiny: Any, simulate: Callable[..., Any]) -> None:
    """12 samples of a sixth of a second: away for 2, 3 and 4 s, and the round lasts 4."""
    config = tiny(schedule={"kind": "synchronous", "speeds": {"seconds_per_sample": 1 / 6}}, logging__dispatches=True)
    rounds = simulate(config).rounds
    for number, done in enumerate(rounds):
        began = 4 * number
        assert [(d.client, d.fate) for d in done.dispatches] == [(0, "used"), (1, "used"), (2, "used")]
        assert [d.sent for d in done.dispatches] == pytest.approx([began] * 3)
        assert [d.back for d in done.dispatches] == pytest.approx([began + 2, began + 3, began + 4])


def test_who_drops_out_of_a_round_is_told_too(tiny: Any, simulate: Callable[..., Any]) -> None:
    rounds = simulate(tiny(clients__dropout=0.5, logging__dispatches=True)).rounds
    assert [[d.client for d in done.dispatches] for done in rounds] == [[0, 1, 2]] * 4
    assert [[d.client for d in done.dispatches if d.fate == "used"] for done in rounds] == [r.cohort for r in rounds]
    assert {d.fate for done in rounds for d in done.dispatches} == {"used", "dropped"}


@pytest.mark.usefixtures("slowness")
def test_fedasync_with_two_clients_by_hand(tiny: Any, simulate: Callable[..., Any]) -> None:
    """18 samples of a ninth of a second: away for 2 and 3 s. Each is sent the model again once its update was taken:
    client 0 at 0, 2 and 4, client 1 at 0 and 3. At 6 both are back; client 1's makes the fourth update, and the last.
    """
    schedule = {"kind": "asynchronous", "concurrency": 2, "buffer_size": 1, "speeds": {"seconds_per_sample": 1 / 9}}
    rounds = simulate(tiny(clients__count=2, schedule=schedule, logging__dispatches=True)).rounds
    told = [[(d.client, d.fate, round(d.sent, 9), round(d.back, 9)) for d in done.dispatches] for done in rounds]
    assert [sorted(of_round) for of_round in told] == [
        [(0, "used", 0, 2), (1, "used", 0, 3)],
        [(0, "used", 2, 4)],
        [(1, "used", 3, 6)],
        [(0, "unused", 4, 6)],
    ]


@pytest.mark.parametrize(
    ("how", "fate"),
    [
        ({"update": 3}, "used"),
        ({"dropped": True}, "dropped"),
        ({"discarded": True}, "discarded"),
        ({}, "unused"),
    ],
)
def test_what_comes_of_a_dispatch(how: dict[str, Any], fate: str) -> None:
    assert (
        Dispatch(**{"number": 0, "client": 0, "version": 0, "sent": 0.0, "back": 1.0, "dropped": False} | how).fate
        == fate
    )


@pytest.mark.parametrize("places", [None, [[0], [2, 1]]], ids=["one host", "two hosts"])
def test_memories_with_room_for_all_hold_what_was_seen(places: Any, tiny: Any, simulate: Callable[..., Any]) -> None:
    """36 samples, 9 of each class, 2 classes a task; a client's memory has room for its 12. Evaluated each round."""
    config = tiny(scenario=CLASSES, methods={"er": {}}, evaluation={"every_rounds": 1}, logging__memory=True)
    run = simulate(config, places=places)
    of_tasks = [task.classes for task in run.simulation.federation.tasks]
    first = [[9 if label in of_tasks[0] else 0 for label in range(4)], [0] * 4]
    both = [first[0], [9 if label in of_tasks[1] else 0 for label in range(4)]]
    assert [done.memory for done in run.rounds] == [first, first, both, both]
    assert line(run.rounds[-1])["memory"] == both


def test_a_sample_counts_for_the_task_in_which_it_was_seen(tiny: Any, simulate: Callable[..., Any]) -> None:
    """Permuted pixels: both tasks have all 36 samples; after the second, all are held twice."""
    run = simulate(tiny(methods={"er": {}}, logging__memory=True))
    assert [done.memory for done in run.rounds] == [None, [[9] * 4, [0] * 4], None, [[9] * 4] * 2]


def test_memories_that_are_full_hold_their_capacity(tiny: Any, simulate: Callable[..., Any]) -> None:
    run = simulate(tiny(methods={"er": {}}, memory={"capacity": 5}, logging__memory=True))
    assert [sum(map(sum, done.memory)) for done in run.rounds if done.memory] == [15, 15]


def test_targets_that_are_no_labels_have_one_column(tiny: Any, simulate: Callable[..., Any]) -> None:
    data = {"name": "friedman", "train": 36, "test": 20}
    config = tiny(dataset=data, objective="regression", methods={"er": {}}, logging__memory=True)
    assert [done.memory for done in simulate(config).rounds if done.memory] == [[[36], [0]], [[36], [36]]]


@pytest.mark.parametrize("schedule", [{}, {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2}])
def test_telling_moves_no_bit_and_nothing_is_told_unasked(
    schedule: dict[str, Any], tiny: Any, simulate: Callable[..., Any]
) -> None:
    overrides = {"methods": {"er": {}}, "model__dropout": 0.3} | ({"schedule": schedule} if schedule else {})
    silent, told = (simulate(tiny(**overrides, logging={"dispatches": on, "memory": on})) for on in (False, True))
    assert told.sha256 == silent.sha256
    assert {"dispatches", "memory"}.isdisjoint(key for done in silent.rounds for key in line(done))
    unlike = ("dispatches", "memory", "seconds")
    assert [{k: v for k, v in line(done).items() if k not in unlike} for done in told.rounds] == [
        {k: v for k, v in line(done).items() if k not in unlike} for done in silent.rounds
    ]


def test_without_memories_there_is_nothing_to_count(tiny: Any, simulate: Callable[..., Any]) -> None:
    assert [done.memory for done in simulate(tiny(logging__memory=True)).rounds] == [None] * 4
