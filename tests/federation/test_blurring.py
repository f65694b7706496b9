"""Blurred task boundaries: how many samples change sides, which, and what methods and tests see of it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from raysim.config import Config, load
from raysim.federation.blurring import blur_boundaries, in_mixed_windows, in_stages
from raysim.federation.federation import build_federation
from raysim.federation.stream import Stream
from raysim.system.errors import ConfigError


def numbered(*sizes: int) -> list[Any]:
    """Row numbers 0, 1, 2, ... in parts of these sizes."""
    return np.split(np.arange(sum(sizes), dtype=np.int32), np.cumsum(sizes)[:-1])


def by_window(stream: Stream) -> list[dict[int, int]]:
    return [stream.counts_in(window, window + 1) for window in range(stream.windows)]


def rows_in(stream: Stream) -> list[int]:
    return [int(row) for part in stream.rows for row in part]


def test_a_share_of_each_task_comes_in_its_neighbours_time() -> None:
    """blur .4 of ten samples: at each boundary round(.2 * 10) = 2 of either task go to the other side."""
    stream = in_stages(blur_boundaries(numbered(10, 10, 10), [0, 1, 2], 0.4, np.random.default_rng(0)), [0, 1, 2])
    assert by_window(stream) == [{0: 8, 1: 2}, {0: 2, 1: 6, 2: 2}, {1: 2, 2: 8}]
    assert sorted(rows_in(stream)) == list(range(30))
    for rows, task in zip(stream.rows, stream.tasks, strict=True):
        assert {int(row) // 10 for row in rows} <= {task}  # a sample keeps its task
        assert rows.dtype == np.int32
    assert [stream.stage(window) for window in range(3)] == [0, 1, 2]
    assert [stream.samples_of(task) for task in range(3)] == [10, 10, 10]
    assert [stream.tasks_before(stage) for stage in range(4)] == [[], [0, 1], [0, 1, 2], [0, 1, 2]]


def test_a_stage_has_a_task_even_if_most_of_its_samples_are_of_others() -> None:
    """blur .9 of ten samples: round(4.5) = 4 go to each side, so the middle stage has 2 of its own task 0.

    The order is 2, 0, 1. In the first stage task 2 has begun, the third one, and no higher one follows.
    """
    rows, tasks = numbered(10, 10, 10), [2, 0, 1]
    stream = in_stages(blur_boundaries(rows, tasks, 0.9, np.random.default_rng(0)), tasks, 2)
    assert stream.counts_in(2, 4) == {2: 4, 0: 2, 1: 4}
    found = [stream.task_of_stage(window) for window in range(6)]
    assert found == [(2, 3), (2, 3), (0, 3), (0, 3), (1, 3), (1, 3)]
    marked = np.ones(30, dtype=np.bool_)
    assert [stream.take(marked).task_of_stage(window) for window in range(6)] == found
    assert [stream.task_of_window(window) for window in range(6)] == [2, 2, 0, 0, 1, 1]


def test_unequal_tasks_and_absent_ones() -> None:
    """round(.2 * 10) = 2 and round(.2 * 5) = 1; the client has nothing of the third, so no boundary with it."""
    rows, tasks = numbered(10, 5, 0, 6), [3, 1, 0, 2]
    times = blur_boundaries(rows, tasks, 0.4, np.random.default_rng(0))
    assert by_window(in_stages(times, tasks)) == [{3: 8, 1: 1}, {3: 2, 1: 4}, {}, {2: 6}]


def test_any_share_leaves_each_sample_once() -> None:
    for size in range(12):
        for blur in (0.01, 0.5, 0.99):
            times = blur_boundaries(numbered(size, size, size), [0, 1, 2], blur, np.random.default_rng(size))
            assert sorted(rows_in(in_stages(times, [0, 1, 2]))) == list(range(3 * size))
            assert by_window(in_stages(times, [0, 1, 2]))[1].get(1, 0) == size - 2 * round(blur / 2 * size)


def test_which_samples_is_drawn() -> None:
    def early(seed: int) -> set[int]:
        times = blur_boundaries(numbered(20, 20), [0, 1], 0.2, np.random.default_rng(seed))
        return {int(row) for task, part in times[0] for row in part if task == 1}

    assert early(0) == early(0)
    assert all(len(early(seed)) == 2 for seed in range(20))
    assert len(set.union(*map(early, range(60)))) > 15  # all 20, but for chance: a row is missed with .9^60 = .002


def test_gradual_drift_is_drawn_from_the_rows_nearest_to_the_boundary_on_both_sides() -> None:
    """blur .4 of 20 rows: 4 rows of each task change sides, drawn from the 8 that are nearest to the boundary.

    Of the rows 0 to 19 of the first task these are 12 to 19, and of the second task's 20 to 39 the first 8. A row is
    missed in all 60 draws with a probability of 2^-60.
    """
    late, early = set(), set()
    for seed in range(60):
        first, second = blur_boundaries(numbered(20, 20), [0, 1], 0.4, np.random.default_rng(seed), nearest=True)
        moved = [
            {int(row) for task, part in time for row in part if task == other}
            for time, other in ((second, 0), (first, 1))
        ]
        assert [len(rows) for rows in moved] == [4, 4]
        late |= moved[0]
        early |= moved[1]
    assert (late, early) == ({*range(12, 20)}, {*range(20, 28)})


def test_where_both_sides_reach_the_same_rows_each_changes_sides_once() -> None:
    """blur .8 of an inner task of 10: 4 rows to each side, of the first 8 and of the last 8, and 2 stay."""
    earlier, later = set(), set()
    for seed in range(60):
        rows, draws = numbered(10, 10, 10), np.random.default_rng(seed)
        first, second, third = blur_boundaries(rows, [0, 1, 2], 0.8, draws, nearest=True)
        moved = [{int(row) - 10 for task, part in time for row in part if task == 1} for time in (first, second, third)]
        assert [len(rows) for rows in moved] == [4, 2, 4]
        assert set.union(*moved) == {*range(10)}
        earlier |= moved[0]
        later |= moved[2]
    assert (earlier, later) == ({*range(8)}, {*range(2, 10)})


def test_online_every_window_has_its_share() -> None:
    """Six samples in each window of five: of 30, 24 and 6 foreign ones."""
    times = blur_boundaries(numbered(30, 30), [0, 1], 0.4, np.random.default_rng(0))
    stream = in_stages(times, [0, 1], 5)
    assert [stream.size(window) for window in range(10)] == [6] * 10
    assert all(of[0] in (4, 5) and of[1] in (1, 2) for of in by_window(stream)[:5])
    assert [stream.stage(window) for window in range(10)] == [0] * 5 + [5] * 5
    assert stream.tasks_before(1) == [0, 1]


def test_online_few_samples_are_spread_over_all_windows() -> None:
    """10 samples in 10 rounds are one in each, of which 2 of 10 are of the other task."""
    times = blur_boundaries(numbered(10, 10), [0, 1], 0.4, np.random.default_rng(0))
    stream = in_stages(times, [0, 1], 10)
    assert [stream.size(window) for window in range(20)] == [1] * 20
    assert [stream.counts_in(first, first + 10) for first in (0, 10)] == [{0: 8, 1: 2}, {0: 2, 1: 8}]


def test_windows_of_unknown_tasks_are_mixed_evenly() -> None:
    times = blur_boundaries(numbered(30, 30), [0, 1], 0.4, np.random.default_rng(0))
    stream = in_mixed_windows(times, 10)
    assert [stream.size(window) for window in range(6)] == [10] * 6
    assert [of.get(1, 0) for of in by_window(stream)] == [2, 2, 2, 8, 8, 8]
    assert stream.stage(5) == 0
    assert [stream.task_of_window(window) for window in range(6)] == [0, 0, 0, 1, 1, 1]  # most of the samples
    assert in_mixed_windows(blur_boundaries(numbered(0, 0), [0, 1], 0.4, np.random.default_rng(0)), 10).windows == 1


SPLIT = {
    "name": "blurred",
    "dataset": {"name": "digits", "train_samples": 300},
    "scenario": {"kind": "class_incremental", "tasks": 5, "blur": 0.2},
    "clients": {"count": 3},
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"rounds_per_task": 2},
    "logging": {"tensorboard": False},
}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"scenario.order": "per_client", "scenario.online": True},
        {"scenario.boundaries": {"jittered": {"rounds": 1}}, "training.rounds_per_task": 3},
        {
            "scenario.boundaries": {"asynchronous": {"window": 20, "rounds_per_window": 1}},
            "training.rounds_per_task": None,
        },
        {"scenario": {"kind": "domain_incremental", "tasks": 3, "blur": 0.2}, "partition.kind": "shards"},
    ],
)
def test_each_client_has_all_its_samples_once(keys: dict[str, Any]) -> None:
    blurred, sharp = (build_federation(load(SPLIT, {**keys, "scenario.blur": blur})) for blur in (0.2, 0.0))
    for mixed, plain in zip(blurred.streams, sharp.streams, strict=True):
        pairs = [
            sorted((task, row) for task, rows in zip(s.tasks, s.rows, strict=True) for row in rows.tolist())
            for s in (mixed, plain)
        ]
        assert pairs[0] == pairs[1]
        assert max(len(mixed.tasks_in(window, window + 1)) for window in range(mixed.windows)) > 1
    assert [task.test.tolist() for task in blurred.tasks] == [task.test.tolist() for task in sharp.tasks]


def test_the_softmax_has_the_classes_that_a_client_has() -> None:
    federation = build_federation(load(SPLIT))
    stream = federation.streams[0]
    assert federation.admitted(stream, 0, "task") == (0, 1, 2, 3)
    assert federation.admitted(stream, 2, "task") == tuple(range(2, 8))
    assert federation.admitted(stream, 2, "seen") == tuple(range(8))
    assert federation.classes_before(1) == (0, 1, 2, 3)


@pytest.mark.parametrize("methods", ["icarl", "lwf", "joint", "c_flag", {"er": {}, "fed_a_gem": {}}])
def test_methods_of_every_kind_run(methods: Any, simulate: Callable[..., Any]) -> None:
    """With exemplars, a teacher, all data so far, and memories; on hosts packed otherwise, the same bits."""
    config = load(SPLIT, {"methods": methods, "scenario.tasks": 3, "training.logits": "seen"})
    first = simulate(config)
    assert all(torch.isfinite(value).all() for value in first.state.values())
    assert simulate(config, places=[[0, 2], [1]]).sha256 == first.sha256


def refusal(config: Config | dict[str, Any], keys: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        load(config, keys)
    return str(refused.value)


def test_what_does_not_go_with_it_is_refused() -> None:
    assert "scenario.blur: found 0.2, allowed: 0.0 with scenario.tasks=1" in refusal(SPLIT, {"scenario.tasks": 1})
    assert "scenario.blur=1.0: found 1.0, allowed: a number >= 0 and < 1" in refusal(SPLIT, {"scenario.blur": 1.0})
    domains: Sequence[Any] = ({"kind": "domain_incremental", "tasks": 2, "blur": 0.2},)
    words = "training.logits='task': found 'task', allowed: all with scenario.blur, where a client has samples"
    assert words in refusal(SPLIT, {"scenario": domains[0], "training.logits": "task"})
    own = {"asynchronous": {"window": 5, "windows": 3, "stream": "tests.nowhere:stream"}}
    assert "stream" in refusal(SPLIT, {"scenario.boundaries": own, "training.rounds_per_task": None})
