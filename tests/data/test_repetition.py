"""Class-incremental with repetition: which classes come again, which samples each task shows, what is tested."""

from typing import Any

import numpy as np
import pytest

import raysim
from raysim.config import load
from raysim.config.scenarios import ClassIncremental
from raysim.data.class_incremental import classes
from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task
from raysim.system.errors import ConfigError


def of(count: int, each: int) -> Dataset:
    """So many training samples and two test samples of every class, which take turns."""
    splits = [Split(np.zeros((many * count, 3), np.float32), np.arange(many * count) % count) for many in (each, 2)]
    return Dataset(*splits, classes=count)


def tasks_of(dataset: Dataset, tasks: int, seed: int = 0, **keys: Any) -> list[Task]:
    spec = ClassIncremental.model_validate({"kind": "class_incremental", "tasks": tasks, **keys})
    return classes(dataset, spec, np.random.default_rng(seed))


def counts(dataset: Dataset, tasks: list[Task]) -> list[list[int]]:
    return [np.bincount(dataset.train.y[task.train], minlength=dataset.classes).tolist() for task in tasks]


def test_listed_classes_share_their_samples_among_their_tasks() -> None:
    """Ten samples of each class: class 0 in three tasks has 4, 3 and 3 of them, class 2 in two 5 and 5."""
    dataset = of(4, 10)
    found = tasks_of(dataset, 3, classes=[[1, 0], [0, 2], [2, 3, 0]], repetition="listed")
    assert [task.classes for task in found] == [(0, 1), (0, 2), (0, 2, 3)]
    assert counts(dataset, found) == [[4, 10, 0, 0], [3, 0, 5, 0], [3, 0, 5, 10]]
    assert sorted(np.concatenate([task.train for task in found])) == list(range(40))
    assert [task.name for task in found] == ["classes 0 1", "classes 0 2", "classes 0 2 3"]
    for task in found:  # all test samples of its classes
        assert task.test.tolist() == [row for row in range(8) if row % 4 in task.classes]
        assert task.train.dtype == task.test.dtype == np.int32
        assert (np.diff(task.train) > 0).all()


def test_classes_come_again_with_the_probability() -> None:
    """From task t on, class c of task t comes in each later task with p: of 6 classes in 3 tasks 2*2 + 2*1 chances."""
    dataset, again = of(6, 30), 0
    for seed in range(400):
        found = tasks_of(dataset, 3, seed, repetition={"probability": 0.3})
        for task, (its, new) in enumerate(zip(found, ((0, 1), (2, 3), (4, 5)), strict=True)):
            assert {*new} <= {*its.classes} <= {*range(2 * task + 2)}
            again += len(its.classes) - 2
        assert np.sum(counts(dataset, found), axis=0).tolist() == [30] * 6
    # 2400 chances: the mean is 720, the standard deviation sqrt(2400 * .3 * .7) = 22.4
    assert abs(again - 720) < 5 * 22.4


def test_where_classes_first_come_is_as_without() -> None:
    dataset = of(10, 30)
    for seed in range(10):
        keys = {"class_order": "seeded", "first_task_classes": 4}
        plain = tasks_of(dataset, 3, seed, **keys)
        found = tasks_of(dataset, 3, seed, **keys, repetition={"probability": 0.5})
        first = {label: task for task in (2, 1, 0) for label in found[task].classes}
        assert first == {label: task for task in range(3) for label in plain[task].classes}


def test_more_tasks_than_classes() -> None:
    dataset = of(4, 60)
    for seed in range(30):
        found = tasks_of(dataset, 12, seed, repetition={"probability": 0.1, "introduced_by": 2})
        assert {*found[0].classes} == {0, 1}
        assert {2, 3} <= {*found[1].classes}
        assert all(task.classes and len(task.train) for task in found)  # one is drawn where none would come
    every = tasks_of(dataset, 12, repetition={"probability": 1.0, "introduced_by": 1})
    assert counts(dataset, every) == [[5] * 4] * 12


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"tasks": 6, "repetition": {"probability": 0.5}},
            "scenario.repetition.introduced_by: found 6, allowed: 1 to 4",
        ),
        (
            {"tasks": 9, "repetition": {"probability": 1.0, "introduced_by": 4}},
            "scenario.repetition: found class 0 in 9 tasks, of 3 training samples, allowed",
        ),
        (
            {"tasks": 2, "classes": [[0, 1], [1, 2, 3]]},
            "more than once, allowed: each of the 4 classes once; keep one of them, or set scenario.repetition=listed",
        ),
        (
            {"tasks": 2, "classes": [[0, 0], [1, 2, 3]], "repetition": "listed"},
            "scenario.classes.0: found a class twice in it",
        ),
        (
            {"tasks": 2, "classes": [[0, 1], [1, 3]], "repetition": "listed"},
            "found no class 2, allowed: each of the 4 classes; add",
        ),
    ],
)
def test_what_does_not_fit_the_data_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tasks_of(of(4, 3), **keys)
    assert words in str(refused.value)


CONFIG: dict[str, Any] = {
    "name": "again",
    "dataset": {"name": "digits", "train_samples": 400},
    "scenario": {"kind": "class_incremental", "tasks": 4, "repetition": {"probability": 0.4, "introduced_by": 3}},
    "clients": {"count": 2},
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"rounds_per_task": 2, "logits": "seen"},
    "logging": {"tensorboard": False},
}


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            {"scenario.repetition": "listed"},
            "scenario.repetition='listed': found listed, allowed: {probability: 0.2} or null without",
        ),
        (
            {"scenario.repetition.introduced_by": 5},
            "scenario.repetition.introduced_by=5: found 5, allowed: 1 to 4 (scenario.tasks)",
        ),
        (
            {"scenario.repetition.probability": 0.0},
            "scenario.repetition.probability=0.0: found 0.0, allowed: a number > 0 and <= 1",
        ),
        (
            {"scenario.classes": [[0]] * 4},
            "scenario.repetition: found a block, allowed: listed or null with scenario.classes",
        ),
        (
            {"scenario.repetition.introduced_by": 1, "scenario.first_task_classes": 3},
            "with scenario.repetition.introduced_by=1, a task of",
        ),
    ],
)
def test_keys_that_do_not_go_together_are_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(CONFIG, keys)
    assert words in str(refused.value)


@pytest.mark.parametrize("methods", ["icarl", "glfc", {"lwf": {}, "er": {}}])
def test_runs_with_methods_that_know_classes(methods: Any, tmp_path: Any) -> None:
    """Every column is a task's test set, of all its classes; the same config gives the same bits."""
    result = raysim.run(CONFIG, {"methods": methods}, out=tmp_path / "run", local=True)
    again = raysim.run(tmp_path / "run" / "config.yaml", out=tmp_path / "again", local=True)
    assert again.model_sha256 == result.model_sha256
    assert np.shape(result.evaluation["class_il"]["accuracy"]) == (4, 4)
    assert all(value is not None for value in result.evaluation["task_il"].values())
