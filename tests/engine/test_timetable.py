"""The order of events under an asynchronous schedule: by hand for fixed durations."""

import math

import numpy as np
import pytest

from raysim.config.timing import AsynchronousSchedule, Constant, Hinge, LogNormal, NoDiscount, Pareto, Polynomial
from raysim.engine.virtual_time import Clock, EventSimulation, discount, slowness


def play(durations, updates, present=None, dropout=0.0, **schedule):
    """The timetable of clients that are away for so long, each time."""
    everyone = range(len(durations))
    simulation = EventSimulation(
        seed=1,
        schedule=AsynchronousSchedule(kind="asynchronous", **schedule),
        dropout=dropout,
        updates=updates,
        present=present or (lambda version: everyone),
        seconds=lambda client, version: durations[client],
    )
    return list(simulation.timetable())


def said(update):
    return (update.time, sorted(d.client for d in update.dispatched), [d.client for d in update.arrivals],
            [d.staleness for d in update.arrivals])  # fmt: skip


def test_fedasync_with_two_clients_by_hand():
    """Away for 2 and 3 s, both at a time, one update each. Versions sent: a 0, b 0; a is back at 2 and makes version 1,
    leaves with it, back at 4; b is back at 3 with version 0 (one update since: age 1), makes 2, and so on."""
    rows = play([2.0, 3.0], 5, concurrency=2, buffer_size=1)
    assert [said(row) for row in rows] == [
        (2.0, [0, 1], [0], [0]),
        (3.0, [0], [1], [1]),
        (4.0, [1], [0], [1]),
        (6.0, [0], [rows[3].arrivals[0].client], [rows[3].arrivals[0].staleness]),
        (6.0, [], [rows[4].arrivals[0].client], [rows[4].arrivals[0].staleness]),
    ]
    # at 6 both are back at once: b was sent version 2 (at 3), a version 3 (at 4); in the order in which they were sent
    assert [(d.client, d.version, d.staleness) for row in rows[3:] for d in row.arrivals] == [(1, 2, 1), (0, 3, 1)]


def test_equals_with_a_buffer_for_all_are_rounds():
    """All are back at once, so all are sent the newest version: nobody's update is old."""
    for number, row in enumerate(play([1.5] * 4, 3, concurrency=4, buffer_size=4), 1):
        assert said(row)[:2] == (1.5 * number, [0, 1, 2, 3])
        assert sorted(d.client for d in row.arrivals) == [0, 1, 2, 3]
        assert [d.staleness for d in row.arrivals] == [0] * 4


def test_a_fast_client_may_be_twice_in_a_buffer():
    """1 s and 10 s, buffers of 3: the fast one fills all of the first three updates alone."""
    rows = play([1.0, 10.0], 3, concurrency=2, buffer_size=3)
    assert [[d.client for d in row.arrivals] for row in rows] == [[0, 0, 0]] * 3
    assert [row.time for row in rows] == [3.0, 6.0, 9.0]


def test_no_more_are_away_than_may_be():
    rows = play([1.0, 2.0, 3.0, 4.0, 5.0], 40, concurrency=2, buffer_size=1)
    sent = [d for row in rows for d in row.dispatched]
    for time in np.arange(0.25, rows[-1].time, 0.5):
        assert sum(d.sent <= time < d.back for d in sent) == 2
    counts = np.bincount([d.client for d in sent], minlength=5)
    assert counts.min() > 0


def test_the_idle_are_drawn_uniformly():
    """6 equal clients, 1 away at a time, 3000 dispatches: the 5 others are idle but so is the one that came back, so
    each is drawn with p = 1/6; sd sqrt(3000 * 5/36) = 20.4, 5 sigma."""
    rows = play([1.0] * 6, 3000, concurrency=1, buffer_size=1)
    counts = np.bincount([d.client for row in rows for d in row.dispatched], minlength=6)
    assert np.abs(counts - 500).max() < 5 * math.sqrt(3000 * 5 / 36)


def test_updates_that_are_too_old_are_discarded():
    """Away for 1 and 2.5 s, updates at 1 and 2; b comes at 2.5 with version 0 at the third update: age 2 > 1."""
    rows = play([1.0, 2.5], 4, concurrency=2, buffer_size=1, max_staleness=1)
    assert [[d.client for d in row.arrivals] for row in rows] == [[0], [0], [0], [0]]
    assert [[(d.client, d.version) for d in row.discarded] for row in rows] == [[], [], [(1, 0)], []]
    assert [d.update for d in rows[2].discarded] == [None]


def test_a_client_that_drops_out_takes_its_time_and_gives_nothing():
    rows = play([1.0, 1.0, 1.0], 400, dropout=0.25, concurrency=3, buffer_size=1)
    sent = [d for row in rows for d in row.dispatched]
    dropped = [d for d in sent if d.dropped]
    assert all(d.update is None for d in dropped)
    n = len(sent)
    assert abs(len(dropped) - n / 4) < 5 * math.sqrt(n * 3 / 16)
    assert sum(len(row.arrivals) for row in rows) == 400


def test_with_nobody_left_the_server_makes_do_with_what_it_has():
    """2 clients leave after version 1; a buffer of 2 with 1 and 3 s: (0, 0) at 2; then 1 alone, then nothing."""
    rows = play([1.0, 3.0], 4, present=lambda version: (0, 1) if version < 1 else (), concurrency=2, buffer_size=2)
    assert [[d.client for d in row.arrivals] for row in rows] == [[0, 0], [1], [], []]
    assert [row.time for row in rows] == [2.0, 3.0, 3.0, 3.0]


def test_more_concurrency_than_clients_is_all_of_them():
    assert [len(row.dispatched) for row in play([1.0, 1.0], 2, concurrency=9, buffer_size=2)] == [2, 2]


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        (NoDiscount(kind="constant"), [1, 1, 1, 1]),
        (Polynomial(power=0.5), [1, 2**-0.5, 3**-0.5, 0.5]),
        (Hinge(kind="hinge", slope=10, after=1), [1, 1, 1 / 11, 1 / 21]),
    ],
)
def test_the_discounts(how, wanted):
    """FedAsync, section 5.2: 1; (1 + a)^-power; 1 up to `after`, then 1 / (slope (a - after) + 1). Ages 0 to 3."""
    assert [discount(age, how) for age in range(4)] == pytest.approx(wanted, rel=1e-15)


@pytest.mark.parametrize("how", [Polynomial(power=100), Hinge(kind="hinge", slope=1e30, after=0)])
def test_a_discount_leaves_a_weight_that_does_not_round_to_0(how):
    """Weights are multiples of 2^-62, and shares may be a millionth: 2^-40 * 2^-20 = 2^-60."""
    assert [discount(age, how) for age in (0, 3)] == [1, 2**-40]


def test_slowness_has_its_distribution():
    """4000 clients. Log-normal: the logarithms have mean 0 and sd 0.5 (5 sigma: 5 * 0.5 / sqrt(4000) = 0.04). Pareto of
    shape 3: P(s > 2) = 1/8 (5 sigma: 5 sqrt(7/64 / 4000) = 0.026), and none below 1."""
    logs = np.log([slowness(0, k, LogNormal(kind="log_normal", sigma=0.5)) for k in range(4000)])
    assert abs(logs.mean()) < 0.04
    assert abs(logs.std() - 0.5) < 0.03
    tail = np.array([slowness(0, k, Pareto(kind="pareto", shape=3.0)) for k in range(4000)])
    assert abs((tail > 2).mean() - 1 / 8) < 0.026
    assert tail.min() >= 1
    assert {slowness(0, k, Constant()) for k in range(5)} == {1.0}


def test_the_clock_counts_samples_epochs_and_bytes(tiny):
    schedule = {"kind": "synchronous", "speeds": {"seconds_per_sample": 0.5}, "bandwidth": 200}
    clock = Clock(tiny(schedule=schedule, training__local_epochs=3))
    assert clock.training(0, 7) == 0.5 * 7 * 3
    assert clock.travel(500) == 2.5
    assert Clock(tiny()).travel(500) == 0
