"""A run of 1,000 clients and 20,000 rounds: what a page receives is bounded, and is right where it is aggregated."""

import json
import math

import pytest

from raysim.live import run_course, trips
from raysim.live.round_line import RoundLine, Trip
from raysim.live.run_course import Evaluations, Rounds
from raysim.live.trips import Trips

MOST_BYTES = 512 * 1024
CLIENTS, ROUNDS, TASKS = 1000, 20_000, 10


def make_line(round: int) -> RoundLine:
    """A round of which all values follow from its number: every one evaluated, with three trips and memories."""
    task = 1 + (round - 1) * TASKS // ROUNDS
    values = [math.sin(round * (i + 1)) / 2 + 0.5 for i in range(TASKS)]
    sent = 0.37 * round
    ways = [
        (round * 7 % CLIENTS, 0.3, "used"),
        (round * 11 % CLIENTS, 40.0, "used"),
        (round % CLIENTS, 9.0, "discarded"),
    ]
    return RoundLine(
        round=round,
        tasks=[task],
        so_far=task,
        updates=2,
        loss=None if round % 7 == 0 else 1 / round,
        bytes_up=1000,
        bytes_down=3000,
        seconds=0.25,
        virtual_time=sent,
        evaluation={"class_il": values, "task_il": values[::-1]},
        memory=[round] * TASKS,
        dispatches=[Trip(client, sent, sent + lasts, fate) for client, lasts, fate in ways],
    )


@pytest.fixture(scope="module")
def long_run() -> tuple[Rounds, Evaluations, Trips]:
    ends = [ROUNDS // TASKS * task for task in range(1, TASKS + 1)]
    read = Rounds(), Evaluations(TASKS, True, True, ends), Trips(range(CLIENTS), {})
    for round in range(1, ROUNDS + 1):
        line = make_line(round)
        for part in read:
            part.add(line)
        if round % 500 == 0:
            read[2].show()
    return read


def test_what_a_page_receives_is_bounded(long_run: tuple[Rounds, Evaluations, Trips]) -> None:
    rounds, evaluations, ways = long_run
    feeds = (rounds.feed, evaluations.feed, evaluations.rows, ways.trips, ways.columns)
    size = sum(len(json.dumps(list(enumerate(feed.items)), separators=(",", ":"))) for feed in feeds)
    assert 100_000 < size < MOST_BYTES
    assert 500 <= len(rounds.feed.items) <= run_course.MOST_POINTS
    assert 150 <= len(evaluations.feed.items) <= run_course.MOST_EVALUATIONS
    assert 120 <= len(ways.columns.items) <= trips.MOST_COLUMNS


def test_the_points_are_means_and_totals(long_run: tuple[Rounds, Evaluations, Trips]) -> None:
    """Of 32 rounds each, since 20,000 / 32 = 625 are the first at most 1,000."""
    rounds = long_run[0]
    assert (rounds.width, rounds.last, len(rounds.feed.items)) == (32, ROUNDS, 625)
    for number in (0, 311, 624):
        last, so_far, tasks, loss, up, down, seconds, updates, virtual = rounds.feed.items[number]
        own = range(32 * number + 1, 32 * number + 33)
        losses = [1 / round for round in own if round % 7]
        assert last == own[-1]
        assert (up, down, updates, seconds) == (1000 * last, 3000 * last, 2 * last, pytest.approx(last / 4, rel=1e-4))
        assert loss == pytest.approx(sum(losses) / len(losses), rel=1e-4)
        assert tasks == sorted({1 + (round - 1) // 2000 for round in own})
        assert (so_far, virtual) == (tasks[-1], 0.37 * last)


def test_rows_and_the_latest_evaluation_stay(long_run: tuple[Rounds, Evaluations, Trips]) -> None:
    evaluations = long_run[1]
    kept = [item[0] for item in evaluations.feed.items]
    assert {*range(2000, 20_001, 2000)} <= set(kept)
    assert kept == sorted(kept)
    matrix = [row[1]["class_il"] for row in evaluations.rows.items]
    said = [make_line(2000 * task).evaluation for task in range(1, 11)]
    assert matrix == [one["class_il"] for one in said if one is not None]
    forgetting = sum(max(row[i] for row in matrix[:-1]) - matrix[-1][i] for i in range(9)) / 9
    mean, found = evaluations.feed.items[-1][3]["class_il"]
    assert (mean, found) == (pytest.approx(sum(matrix[-1]) / 10), pytest.approx(forgetting))


def test_rows_alone_never_thin_the_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second evaluation is a row, so the others have the numbers 0, 2, 4, ..., 18, in the rounds 1, 3, ..., 19.

    Of at most 4 of them, the fifth, number 8, has every = 2, which drops none, and then 4: 0, 4 and 8 stay. With 12
    and 16 they are five again, so every = 8: 0, 8 and 16 stay, in the rounds 1, 9 and 17.
    """
    monkeypatch.setattr(run_course, "MOST_EVALUATIONS", 4)
    evaluations = Evaluations(10, True, True, range(2, 21, 2))
    for round in range(1, 21):
        evaluations.add(make_line(round))
    assert evaluations.every == 8
    assert [item[0] for item in evaluations.feed.items] == sorted([1, 9, 17, *range(2, 21, 2)])


def test_the_columns_have_all_time_of_all_clients(long_run: tuple[Rounds, Evaluations, Trips]) -> None:
    """17 clients a lane. Over all cells: 20,000 trips of 0.3 and of 40 seconds that counted, and 9 that did not."""
    ways = long_run[2]
    assert (ways.clients_per_lane, ways.one_by_one, ways.trips.items) == (17, False, [])
    members = [17] * 58 + [14]
    spent = {True: 0.0, False: 0.0}
    for column in ways.columns.items:
        for lane, task, share in zip(column[::3], column[1::3], column[2::3], strict=True):
            spent[task > 0] += share / 100 * ways.column_width * members[lane]
    assert spent[True] == pytest.approx(20_000 * 40.3, rel=0.02)
    assert spent[False] == pytest.approx(20_000 * 9, rel=0.05)


def test_few_trips_are_shown_one_by_one_until_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trips, "MOST_TRIPS", 30)
    ways = Trips(range(3), {})
    for round in range(1, 11):
        ways.add(
            RoundLine(
                round, [1], 1, 0, None, 0, 0, 0, 0, None, None, [Trip(k, round, round + 1, "used") for k in range(3)]
            )
        )
    ways.show()
    assert (ways.one_by_one, len(ways.trips.items), ways.columns.items) == (True, 30, [])
    ways.add(RoundLine(11, [1], 1, 0, None, 0, 0, 0, 0, None, None, [Trip(0, 11, 12, "used")]))
    ways.show()
    assert (ways.one_by_one, ways.trips.items) == (False, [])
    busy = sum(sum(column[2::3]) for column in ways.columns.items) / 100 * ways.column_width
    assert busy == pytest.approx(31, rel=0.02)


def test_of_a_thousand_tasks_some_are_shown() -> None:
    """Every tenth; the means are over all of them."""
    evaluations = Evaluations(1000, True, True, [1000 * task for task in range(1, 1001)])
    values = [task / 1000 for task in range(1000)]
    for round in range(1, 101):
        line = RoundLine(round * 1000, [1], 1000, 0, None, 0, 0, 0, None, {"domain_il": values}, None, None)
        evaluations.add(line)
    assert evaluations.shown == list(range(0, 1000, 10))
    assert evaluations.feed.items[0][2]["domain_il"] == values[::10]
    assert evaluations.means["domain_il"][0] == pytest.approx(0.4995)
