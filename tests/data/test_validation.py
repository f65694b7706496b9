"""Validation: what is held out, that nobody trains on it, and that without it nothing changes."""

import numpy as np
import pytest

from raysim.config import load
from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task, hold_out
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError


def numbered(samples):
    """A dataset whose training sample n shows the number n; the test samples show -1."""
    y = np.arange(samples, dtype=np.int64) % 2
    x = np.arange(samples, dtype=np.float32)[:, None]
    return Dataset(Split(x, y), Split(-np.ones((3, 1), np.float32), y[:3]), 2, ("even", "odd"))


def task(rows):
    return Task("", (0, 1), None, np.array(rows, np.int32), np.arange(3, dtype=np.int32))


def shown(split, rows):
    return sorted(int(value) for value in split.x[rows, 0])


def test_of_every_task_a_fraction_is_held_out():
    """0.3 of 10 and of 4 samples: 3 and 1."""
    dataset, tasks = hold_out(numbered(14), [task(range(10)), task(range(10, 14))], 0.3, seed=0)
    assert [(len(t.train), len(t.test)) for t in tasks] == [(7, 3), (3, 1)]
    assert (len(dataset.train), len(dataset.test), dataset.names) == (10, 4, ("even", "odd"))
    for found, whole in zip(tasks, (range(10), range(10, 14)), strict=True):
        train, test = shown(dataset.train, found.train), shown(dataset.test, found.test)
        assert sorted(train + test) == list(whole)
        assert found.train.dtype == found.test.dtype == np.int32
    assert np.array_equal(dataset.train.y, dataset.train.x[:, 0] % 2)
    assert np.array_equal(dataset.test.y, dataset.test.x[:, 0] % 2)


def test_a_sample_that_tasks_share_is_held_out_in_all_of_them():
    dataset, tasks = hold_out(numbered(10), [task(range(10))] * 3, 0.2, seed=0)
    assert len(dataset.test) == 2
    for found in tasks:
        assert (len(found.train), len(found.test)) == (8, 2)
        assert shown(dataset.train, found.train) == shown(dataset.train, tasks[0].train)


def test_it_is_drawn_with_the_seed():
    draws = [shown(hold_out(numbered(40), [task(range(40))], 0.25, seed)[0].test, slice(None)) for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_something_is_left_on_both_sides():
    for fraction in (0.001, 0.999):
        _, (found,) = hold_out(numbered(3), [task(range(3))], fraction, seed=0)
        assert min(len(found.train), len(found.test)) == 1
    with pytest.raises(ConfigError, match=r"evaluation.split: found validation, but task 2 has one training sample"):
        hold_out(numbered(4), [task(range(3)), task([3])], 0.1, seed=0)


def test_a_task_whose_samples_are_all_held_out_with_others_is_refused():
    """Of samples 0 and 1 one is held out with task 1, and of 2 and 3 one with task 2; task 3 has both or neither."""
    tasks = [task([0, 1]), task([2, 3])]
    dataset, (first, second) = hold_out(numbered(4), tasks, 0.5, seed=0)
    held = [*shown(dataset.test, first.test), *shown(dataset.test, second.test)]
    with pytest.raises(
        ConfigError, match=r"^evaluation.split: found validation, for which all or no samples of task 3"
    ):
        hold_out(numbered(4), [*tasks, task(held)], 0.5, seed=0)


SCENARIOS = {
    "classes": {"kind": "class_incremental", "tasks": 2},
    "permutations": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"},
    "domains": {
        "kind": "domain_incremental",
        "tasks": 2,
        "shift": {"domains": [{"name": "synthetic", "seed": 0}, {"name": "synthetic", "seed": 1}]},
    },
}


VALUES = {
    "name": "held",
    "dataset": {"name": "synthetic", "seed": 0},
    "scenario": SCENARIOS["classes"],
    "clients": {"count": 3},
    "model": {"name": "mlp"},
    "training": {"rounds_per_task": 1},
}


def federation_of(scenario, **evaluation):
    return build_federation(load({**VALUES, "scenario": SCENARIOS[scenario], "evaluation": evaluation}))


def samples(split, rows=slice(None)):
    return {sample.tobytes() for sample in split.x[rows]}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nobody_trains_on_what_is_held_out_and_no_test_sample_is_seen(scenario):
    before, after = federation_of(scenario), federation_of(scenario, split="validation", validation_fraction=0.2)
    assert samples(before.dataset.train) == samples(after.dataset.train) | samples(after.dataset.test)
    owned = [samples(after.dataset.train, rows) for stream in after.streams for rows in stream.rows]
    assert set().union(*owned) == samples(after.dataset.train)
    assert not samples(after.dataset.test) & set().union(*owned)
    assert not samples(after.dataset.test) & samples(before.dataset.test)
    for was, found in zip(before.tasks, after.tasks, strict=True):
        assert len(found.test) == round(0.2 * len(was.train))
        assert len(found.train) + len(found.test) == len(was.train)
        assert (found.name, found.classes) == (was.name, was.classes)


def test_the_fraction_is_a_tenth_and_belongs_to_validation_alone():
    """So that a report takes a run of an older raysim, without the key, and one of today for the same setting."""
    assert federation_of("classes", split="validation").dataset.test.x.shape[0] == 100
    config = load({**VALUES, "evaluation": {"split": "validation", "validation_fraction": 0.3}})
    assert config.evaluation.validation_fraction == 0.3
    assert load(config, {"evaluation.split": "test"}).evaluation.validation_fraction is None
    assert load(VALUES).evaluation.validation_fraction is None


@pytest.mark.parametrize(
    ("evaluation", "words"),
    [
        (
            {"validation_fraction": 0.2},
            "found 0.2 without evaluation.split, allowed: null; or set evaluation.split=val",
        ),
        ({"split": "test", "validation_fraction": 5}, "found 5, allowed: a number > 0 and < 1 or null"),
        ({"split": "test", "validation_fraction": "x"}, "found 'x', allowed: a number > 0 and < 1 or null"),
    ],
)
def test_a_fraction_that_holds_nothing_out_is_refused(evaluation, words):
    with pytest.raises(ConfigError) as refused:
        load({**VALUES, "evaluation": evaluation})
    assert words in str(refused.value)


def of_ones_own(client, start):
    """Never called."""


def test_a_stream_of_ones_own_cannot_be_held_out_of():
    own = {"asynchronous": {"window": 5, "stream": "test_validation:of_ones_own", "windows": 2}}
    values = {
        "name": "own",
        "dataset": {"name": "synthetic"},
        "scenario": {"kind": "class_incremental", "tasks": 1, "boundaries": own},
        "clients": {"count": 1},
        "model": {"name": "mlp"},
        "training": {},
    }
    for key, found, allowed in (("split", "validation", "test"), ("per_client", True, "false")):
        with pytest.raises(ConfigError) as caught:
            load(values, {f"evaluation.{key}": found})
        assert f"allowed: {allowed} with a custom stream" in str(caught.value)
