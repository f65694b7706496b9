"""Who is there when, with which window of which tasks: by hand for small federations."""

import numpy as np
import pytest

from raysim.federation.availability import ALWAYS, Attendance, Availability, Progress
from raysim.federation.federation import build_federation
from raysim.federation.stream import Stream, in_windows, online
from raysim.system import seeding
from raysim.system.errors import ConfigError


def numbered(*sizes):
    """Portions of so many rows, which are 0, 1, 2, ... through all of them."""
    return np.split(np.arange(sum(sizes), dtype=np.int32), np.cumsum(sizes)[:-1])


def windows_of(federation, client):
    calendar = federation.availability
    return [calendar.window(client, round) for round in range(1, calendar.rounds + 1)]


def rows_of(federation, client, round):
    stream = federation.streams[client]
    window = federation.availability.window(client, round)
    return stream.locate(stream.span(window, window + 1))[0].tolist()


def test_windows_cut_across_tasks():
    """Tasks of 5, 0 and 4 samples in windows of 3: 000 | 002 | 222."""
    stream = in_windows(numbered(5, 0, 4), [0, 1, 2], 3)
    assert [stream.size(window) for window in range(stream.windows)] == [3, 3, 3]
    assert [stream.counts_in(window, window + 1) for window in range(3)] == [{0: 3}, {0: 2, 2: 1}, {2: 3}]
    assert stream.tasks_in(0, 3) == [0, 2]
    assert [stream.stage(window) for window in range(3)] == [0, 0, 0]  # nobody is told where a task ends
    rows, tasks = stream.locate(stream.span(1, 2))
    assert rows.tolist() == [3, 4, 5]
    assert tasks.tolist() == [0, 0, 2]


def test_the_last_window_may_be_smaller_and_an_empty_stream_has_an_empty_one():
    assert [in_windows(numbered(7), [0], 3).size(window) for window in range(3)] == [3, 3, 1]
    assert in_windows(numbered(0), [0], 3).size(0) == 0


def test_an_online_stream_deals_a_task_to_its_rounds_and_its_stages_are_tasks():
    """5 and 2 samples to 3 rounds each: 2 2 1 | 1 1 0."""
    stream = online(numbered(5, 2), [1, 0], 3)
    assert [stream.size(window) for window in range(stream.windows)] == [2, 2, 1, 1, 1, 0]
    assert [stream.stage(window) for window in range(6)] == [0, 0, 0, 3, 3, 3]
    assert stream.tasks_in(0, 3) == [1]
    assert stream.samples_of(1) == 5


def test_a_client_is_there_from_its_first_window_until_it_is_gone():
    there = Attendance([3, 3, 6], gone=8)
    assert [there.window(round) for round in range(1, 10)] == [None, None, 1, 1, 1, 2, 2, None, None]


def test_the_first_and_the_last_rounds_of_tasks_of_3_1_and_2_rounds():
    ends = (3, 4, 6)
    rounds = [
        Progress(round, 6, task, end - lasts, lasts)
        for task, (end, lasts) in enumerate(zip(ends, (3, 1, 2), strict=True))
        for round in range(end - lasts + 1, end + 1)
    ]
    assert [one.round for one in rounds] == [1, 2, 3, 4, 5, 6]
    assert [one.round for one in rounds if one.is_first] == [1, 4, 5]
    assert [one.round for one in rounds if one.is_last] == [3, 4, 6]
    assert [one.round for one in rounds if one.is_final] == [6]


def test_clients_without_data_are_not_present():
    streams = [Stream(numbered(2, 0)), Stream(numbered(0, 3))]
    calendar = Availability(streams, [Attendance([1, 3]), Attendance([1, 3])], [2, 4])
    assert [calendar.present(round) for round in (1, 2, 3, 4)] == [(0,), (0,), (1,), (1,)]
    assert [calendar.row(round) for round in (1, 2, 3, 4)] == [0, 0, 1, 1]
    assert calendar.timeline().tolist() == [[0, 0, -1, -1], [-1, -1, 1, 1]]
    assert calendar.rounds == 4
    assert calendar.rounds < ALWAYS


def test_who_is_present_is_what_the_windows_say_and_is_looked_up_once_between_changes():
    """Nine clients of any times and empty windows; the tenth has data in rounds 4 to 7, and nobody else changes."""
    draws = np.random.default_rng(0)
    streams = [Stream(numbered(*draws.integers(0, 2, 4))) for _ in range(9)]
    times = [Attendance(sorted(draws.integers(1, 9, 4).tolist()), int(draws.integers(3, 12))) for _ in range(9)]
    calendar = Availability(streams, times, [12])
    for round in [*range(1, 13), *range(12, 0, -1)]:
        assert calendar.present(round) == tuple(k for k in range(9) if calendar.window(k, round) is not None)
    assert len({calendar.present(round) for round in range(1, 13)}) > 5

    calm = Availability([Stream(numbered(3, 3))] * 2, [Attendance([1, 2]), Attendance([4, 5], gone=8)], [9])
    assert [calm.present(round) for round in (3, 4, 7, 8)] == [(0,), (0, 1), (0, 1), (0,)]
    assert calm.present(5) is calm.present(6)


def test_asynchronous_boundaries(tiny):
    """3 clients with 12 + 12 samples in windows of 10, 2 rounds each: 3 windows, 6 rounds, rows after 3 and 6."""
    scenario = {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"}
    windows = {"asynchronous": {"window": 10, "rounds_per_window": 2}}
    config = tiny(scenario=scenario | {"boundaries": windows}, training__rounds_per_task=None)
    federation = build_federation(config)
    assert federation.availability.rounds == 6
    assert federation.availability.rows == (3, 6)
    assert windows_of(federation, 0) == [0, 0, 1, 1, 2, 2]
    assert [federation.availability.size(0, round) for round in range(1, 7)] == [10, 10, 10, 10, 4, 4]
    stream = federation.streams[0]
    assert [stream.tasks_in(window, window + 1) for window in range(3)] == [[0], [0, 1], [1]]
    # the whole of both tasks, shuffled: the partition's rows come sorted
    first = stream.locate(stream.span(0, 3))[0].tolist()[:12]
    assert sorted(first) == sorted(stream.rows[0].tolist())
    assert first != sorted(first)


@pytest.mark.parametrize(("on_exhausted", "wanted"), [("drop", [0, 1, None, None]), ("repeat", [0, 1, 1, 1])])
def test_an_exhausted_client_leaves_or_keeps_its_last_window(tiny, on_exhausted, wanted):
    """36 samples, Dirichlet: a client with at most 20 of 36 has two windows of 10, the largest decides the length."""
    windows = {"asynchronous": {"window": 10, "rounds_per_window": 1, "on_exhausted": on_exhausted}}
    config = tiny(
        dataset={"name": "synthetic", "classes": 4, "shape": [6], "train": 60, "test": 20},
        scenario={"kind": "domain_incremental", "tasks": 1, "shift": "permutation", "boundaries": windows},
        training__rounds_per_task=None,
        partition={"kind": "dirichlet", "alpha": 0.5, "min_samples": 5, "balanced": False},
        seed=3,
    )
    federation = build_federation(config)
    sizes = [len(stream) for stream in federation.streams]
    assert sum(sizes) == 60
    short = next(k for k, size in enumerate(sizes) if 10 < size <= 20)
    assert federation.availability.rounds == -(-max(sizes) // 10)
    assert windows_of(federation, short)[:4] == wanted[: federation.availability.rounds]


def test_jitter_moves_every_boundary_by_a_few_rounds_but_not_the_start(tiny):
    """Boundaries at rounds 8 and 15, +-3: uniform over 7 values, drawn from (seed, "boundaries", client)."""
    scenario = {"kind": "domain_incremental", "tasks": 3, "shift": "permutation"}
    config = tiny(
        scenario=scenario | {"boundaries": {"jittered": {"rounds": 3}}},
        training__rounds_per_task=7,
        clients__count=12,
    )
    federation = build_federation(config)
    for client in range(12):
        draws = seeding.generator(0, "boundaries", client)
        second, third = 8 + int(draws.integers(-3, 4)), 15 + int(draws.integers(-3, 4))
        wanted = [0 if r < second else 1 if r < third else 2 for r in range(1, 22)]
        assert windows_of(federation, client) == wanted
    assert len({tuple(windows_of(federation, client)) for client in range(12)}) > 6
    assert federation.availability.rows == (7, 14, 21)


def test_every_client_may_meet_the_tasks_in_its_own_order(tiny):
    scenario = {"kind": "class_incremental", "tasks": 4, "order": "per_client"}
    federation = build_federation(tiny(scenario=scenario, clients__count=6))
    orders = [stream.tasks for stream in federation.streams]
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert len(set(orders)) > 2
    for client, order in enumerate(orders):
        labels = {federation.dataset.train.y[rows_of(federation, client, round)[0]] for round in (1, 2)}
        assert labels == {order[0]}  # one class per task
        assert federation.admitted(federation.streams[client], 1, "task") == (order[1],)
        assert federation.admitted(federation.streams[client], 1, "seen") == tuple(sorted(order[:2]))


@pytest.mark.parametrize(
    "clients",
    [
        {"count": 5, "arrive": {"first": 2, "per_task": 1}},
        {"count": 5, "leave": [{"round": 3, "clients": [0]}, {"round": 6, "clients": [1, 2]}]},
    ],
)
def test_with_an_order_per_client_each_has_the_tasks_that_it_is_there_for(tiny, clients):
    """Every assigned sample reaches its client in some round."""
    scenario = {"kind": "class_incremental", "tasks": 4, "order": "per_client"}
    config = tiny(scenario=scenario, clients=clients, dataset__train=80, seed=2)
    federation = build_federation(config)
    rounds = range(1, federation.availability.rounds + 1)
    for client, stream in enumerate(federation.streams):
        there = [round for round in rounds if client in federation.availability.present(round)]
        seen = {row for round in there for row in rows_of(federation, client, round)}
        assert len(seen) == len(stream) > 0


@pytest.mark.parametrize("seed", range(6))
def test_jitter_takes_nothing_from_clients_that_come_and_go(tiny, seed):
    """Client 1 leaves in round 9, and client 2 comes with task 2, each between two of its boundaries."""
    clients = {
        "count": 3,
        "arrive": {"at": [{"round": 6, "clients": [2]}]},
        "leave": [{"round": 9, "clients": [1]}],
    }
    scenario = {
        "kind": "domain_incremental",
        "tasks": 4,
        "shift": "permutation",
        "boundaries": {"jittered": {"rounds": 1}},
    }
    federation = build_federation(tiny(scenario=scenario, training__rounds_per_task=4, clients=clients, seed=seed))
    there = [[w is not None for w in windows_of(federation, client)] for client in range(3)]
    assert there[1] == [round < 9 for round in range(1, 17)]
    assert there[2] == [round >= 6 for round in range(1, 17)]


def test_online_every_sample_comes_in_one_round(tiny):
    scenario = {"kind": "class_incremental", "tasks": 2, "online": True}
    federation = build_federation(tiny(scenario=scenario, training__rounds_per_task=3))
    for client in range(3):
        seen = [row for round in range(1, 7) for row in rows_of(federation, client, round)]
        assert len(seen) == len(set(seen)) == len(federation.streams[client])
        assert windows_of(federation, client) == [0, 1, 2, 3, 4, 5]


def test_clients_that_come_with_later_tasks_share_those_only(tiny):
    """2 clients, then one more with each of tasks 2 and 3 of 2 rounds: each task is dealt among those there."""
    config = tiny(
        dataset={"name": "synthetic", "classes": 6, "shape": [6], "train": 60, "test": 20},
        scenario={"kind": "class_incremental", "tasks": 3},
        clients={"count": 4, "arrive": {"first": 2, "per_task": 1}},
    )
    federation = build_federation(config)
    assert [federation.availability.present(round) for round in (1, 2, 3, 4, 5)] == [
        (0, 1), (0, 1), (0, 1, 2), (0, 1, 2), (0, 1, 2, 3),
    ]  # fmt: skip
    assert [[stream.samples_of(task) for task in range(3)] for stream in federation.streams] == [
        [10, 7, 5], [10, 7, 5], [0, 6, 5], [0, 0, 5],
    ]  # fmt: skip


def test_clients_come_and_go_at_given_rounds(tiny):
    """Client 1 from round 2, client 2 until round 2; with one partition for the run each keeps its own samples."""
    clients = {
        "count": 3,
        "arrive": {"at": [{"round": 2, "clients": [1]}]},
        "leave": [{"round": 3, "clients": [2]}],
    }
    config = tiny(clients=clients)
    federation, whole = build_federation(config), build_federation(tiny())
    assert [federation.availability.present(round) for round in (1, 2, 3, 4)] == [(0, 2), (0, 1, 2), (0, 1), (0, 1)]
    assert rows_of(federation, 1, 2) == rows_of(whole, 1, 2)
    assert federation.streams[2].samples_of(1) == 0  # gone before task 2


def test_a_task_that_nobody_is_there_for_is_refused(tiny):
    clients = {"count": 3, "leave": [{"round": 3, "clients": [0, 1, 2]}]}
    with pytest.raises(ConfigError, match=r"^clients: nobody is there in task 2, allowed: at least one client"):
        build_federation(tiny(clients=clients))


def a_class_each(labels, clients, generator):
    """A partition that gives each client one class."""
    return [np.flatnonzero(labels == client) for client in range(clients)]


def test_a_task_without_samples_of_any_present_client_is_refused(tiny):
    """Clients 0 and 1 have the classes of task 1, and arrive in task 2. Clients 2 and 3 are there, without samples."""
    partition = {"kind": "test_calendar:a_class_each", "per": "run"}
    clients = {"count": 4, "arrive": {"at": [{"round": 3, "clients": [0, 1]}]}}
    config = tiny(clients=clients, partition=partition, scenario={"kind": "class_incremental", "tasks": 2})
    with pytest.raises(ConfigError, match=r"^partition: no client that is there in task 1 has samples of it, allowed"):
        build_federation(config)


def test_a_client_that_leaves_before_it_arrives_is_refused(tiny):
    clients = {"count": 3, "arrive": {"at": [{"round": 3, "clients": [1]}]}, "leave": [{"round": 2, "clients": [1]}]}
    with pytest.raises(
        ConfigError, match=r"^clients\.leave: found client 1 in round 2, allowed: after round 3, in which"
    ):
        build_federation(tiny(clients=clients))
