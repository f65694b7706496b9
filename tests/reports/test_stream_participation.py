"""Who takes part, in the picture of a stream: the same as in the run's rounds.jsonl."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_stream_picture import BASE, drawn, facts_of, of_class, texts

import raysim
from raysim.reports.stream.participation import FATES, ClientTrip, shares_by_column
from raysim.system.seeding import generator

CHANGING = {
    "clients": {
        "count": 5,
        "dropout": 0.3,
        "arrive": {"at": [{"round": 3, "clients": [4]}]},
        "leave": [{"round": 7, "clients": [0]}],
    },
    "participation": {"count": 3},
}
BUFFERED = {
    "clients": {"count": 5, "dropout": 0.2},
    "schedule": {
        "kind": "asynchronous",
        "concurrency": 3,
        "buffer_size": 2,
        "max_staleness": 1,
        "speeds": {"kind": "log_normal"},
        "bandwidth": 100000,
    },
    "methods": {"er": {}},
}


def rounds_of(changes: Mapping[str, object], out: Path) -> list[dict[str, Any]]:
    raysim.run(BASE, changes, out=out, local=True)
    return [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]


def used_in(trips: Sequence[ClientTrip]) -> list[int]:
    return [trip.round for trip in trips if trip.fate == "used"]


@pytest.mark.parametrize("changes", [CHANGING, {**CHANGING, "participation": {"fraction": 0.5, "sampler": "by_size"}}])
def test_it_is_who_takes_part_in_the_run(changes: Mapping[str, object], tmp_path: Path) -> None:
    lines, turnout = rounds_of(changes, tmp_path / "run"), facts_of(changes).turnout
    for client in range(5):
        assert used_in(turnout.trips[client]) == [line["round"] for line in lines if client in line["cohort"]]
        dropped = [(trip.start, trip.end) for trip in turnout.trips[client] if trip.fate == "dropped"]
        fates = [(who, fate, line["round"]) for line in lines for who, *_, fate in line["dispatches"]]
        sent = [round for who, fate, round in fates if (who, fate) == (client, "dropped")]
        assert dropped == [(round - 1, round) for round in sent]
    assert turnout.totals["used"] == sum(len(line["cohort"]) for line in lines)
    assert turnout.totals["dropped"] > 0


def test_dispatches_are_those_of_the_run(tmp_path: Path) -> None:
    """By client and fate, in the order in which they are sent; used ones end in the round whose cohort has them.

    A trip begins in the round in which the client is sent the model.
    """
    lines, turnout = rounds_of(BUFFERED, tmp_path / "run"), facts_of(BUFFERED).turnout
    sent = [(who, fate, line["round"]) for line in lines for who, *_, fate in line["dispatches"]]
    assert {fate for _, fate, _ in sent} == {*FATES}
    for client in range(5):
        trips = turnout.trips[client]
        assert [trip.fate for trip in trips] == [fate for who, fate, _ in sent if who == client]
        assert sorted(used_in(trips)) == sorted(
            line["round"] for line in lines for member in line["cohort"] if member == client
        )
        for trip, begun in zip(trips, (round for who, _, round in sent if who == client), strict=True):
            assert begun - 1 <= trip.start <= begun
            assert trip.start <= trip.end <= 8
            assert trip.round - 1 <= trip.end <= trip.round
    assert turnout.totals == Counter(fate for _, fate, _ in sent)
    assert turnout.seconds == lines[-1]["virtual_time"]
    root = drawn(BUFFERED)
    legend = {text.partition(" (")[0] for text in texts(root)}
    assert {"away, its update is used", "too old, discarded", "not back before the end", "drops out"} <= legend


def test_where_all_take_part_nothing_is_drawn_but_said() -> None:
    root = drawn()
    assert not of_class(root, "trips")
    assert "every client that is there takes part in every round" in texts(root)


def test_a_method_may_choose_who_takes_part() -> None:
    """Fixed trains in task 1 only: rounds 1 to 4."""
    assert used_in(facts_of({"methods": {"fixed": {}}}).turnout.trips[1]) == [1, 2, 3, 4]


def test_a_custom_method_that_chooses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "choosy.py").write_text(
        "from dataclasses import dataclass\n"
        "from raysim.api import Method, ServerHalf\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Choosy(Method):\n"
        "    'Chooses.'\n"
        "    class Server(ServerHalf):\n"
        "        def select(self, server):\n"
        "            raise AssertionError('only a run may call this')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    facts = facts_of({"methods": {"choosy:Choosy": {}}})
    assert facts.notes == ["Choosy chooses the clients during the run, so no participation is drawn."]
    assert not facts.turnout.trips


def test_columns_have_the_share_of_their_rounds() -> None:
    """280 rounds are 140 columns of two. All four rounds of the first two columns, then half of the third's."""
    trips = [ClientTrip(0, 4, "used", 4), ClientTrip(4.5, 5.5, "used", 6), ClientTrip(6, 8, "discarded", 8)]
    shares = shares_by_column(trips, 280, 280)
    assert (len(shares), shares[:4]) == (140, [1.0, 1.0, 0.5, 0.0])


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        ({"clients": {"count": 4, "dropout": 0.5}}, "drops out"),
        ({"clients": {"count": 4}, "participation": {"count": 2}}, "takes part"),
    ],
)
def test_not_all_are_said_to_take_part(changes: Mapping[str, object], mark: str) -> None:
    """Everybody is chosen and half of them drop out, or half are chosen."""
    found = {text.partition(" (")[0] for text in texts(drawn(changes))}
    assert "every client that is there takes part in every round" not in found
    assert mark in found


def test_the_totals_of_many_rounds_are_of_all_clients() -> None:
    """Of 6,000 rounds some are looked at, and 24 of 40 clients are listed. Their half drops out, within 5 sigma."""
    facts = facts_of({"clients": {"count": 40, "dropout": 0.5}, "training": {"rounds_per_task": 3000}})
    turnout, rounds = facts.turnout, [trip.round for trip in facts.turnout.trips[0]]
    assert (len(turnout.trips), len(rounds)) == (24, turnout.looked_at)
    assert 3000 < turnout.looked_at < 6000
    draws = 40 * turnout.looked_at
    dropped = sum(generator(0, "dropout", client, round).random() < 0.5 for client in range(40) for round in rounds)
    assert turnout.totals == {"dropped": dropped, "used": draws - dropped}
    assert abs(dropped - draws / 2) < 5 * math.sqrt(draws / 4)
