"""Which classes each task of a class-incremental scenario has."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from raysim.config import load
from raysim.config.scenarios import ClassIncremental
from raysim.data.class_incremental import classes
from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task
from raysim.federation.federation import federation_without_clients
from raysim.system.errors import ConfigError

ANIMALS = ("ant", "bee", "cat", "dog")


def tasks_of(dataset: Dataset, tasks: int, seed: int = 0, **keys: Any) -> list[Task]:
    spec = ClassIncremental.model_validate({"kind": "class_incremental", "tasks": tasks, **keys})
    return classes(dataset, spec, np.random.default_rng(seed))


def of(count: int, names: tuple[str, ...] | None = None) -> Dataset:
    """Two training samples and one test sample of every class."""
    train, test = (np.arange(many * count, dtype=np.int64) % count for many in (2, 1))
    splits = [Split(np.zeros((len(y), 3), np.float32), y) for y in (train, test)]
    return Dataset(*splits, classes=count, names=names)


def blocks(dataset: Dataset, tasks: int, **keys: Any) -> list[tuple[int, ...]]:
    return [task.classes for task in tasks_of(dataset, tasks, **keys)]


def test_natural_classes_are_blocks_of_labels(colours: Dataset) -> None:
    first, second = tasks_of(colours, 2)
    assert (first.classes, second.classes) == ((0, 1), (2, 3))
    assert first.train.tolist() == [row for row in range(20) if row % 4 < 2]  # labels are row % 4
    assert second.test.tolist() == [2, 3, 6, 7]
    assert first.pixels is None
    assert first.train.dtype == first.test.dtype == np.int32


def test_seeded_classes_cover_all_in_an_order_of_the_seed(colours: Dataset) -> None:
    orders = set()
    for seed in range(20):
        tasks = tasks_of(colours, 2, seed, class_order="seeded")
        orders.add(tuple(task.classes for task in tasks))
        assert sorted(label for task in tasks for label in task.classes) == [0, 1, 2, 3]
        assert np.array_equal(np.sort(np.concatenate([task.train for task in tasks])), np.arange(20))
        for task in tasks:
            assert set(colours.train.y[task.train]) == set(task.classes) == set(colours.test.y[task.test])
            assert task.classes == tuple(sorted(task.classes))
    assert len(orders) > 3


@pytest.mark.parametrize(
    ("count", "tasks", "first", "sizes"),
    [
        (10, 5, None, [2, 2, 2, 2, 2]),
        (10, 3, None, [4, 3, 3]),  # 10 = 3 * 3 + 1: one task has one more
        (10, 4, None, [3, 3, 2, 2]),  # 10 = 4 * 2 + 2
        (10, 4, 4, [4, 2, 2, 2]),
        (10, 4, 5, [5, 2, 2, 1]),  # 5 left for 3: 3 * 1 + 2
        (10, 4, 1, [1, 3, 3, 3]),
        (10, 4, 7, [7, 1, 1, 1]),
        (100, 11, 50, [50, *[5] * 10]),  # B50 in ten steps
        (100, 6, 50, [50, *[10] * 5]),  # B50 in five
        (4, 4, None, [1, 1, 1, 1]),
    ],
)
def test_sizes_of_tasks(count: int, tasks: int, first: int | None, sizes: list[int]) -> None:
    found = blocks(of(count), tasks, first_task_classes=first)
    assert [len(block) for block in found] == sizes
    assert [label for block in found for label in block] == [*range(count)]  # in order, each once


def test_an_order_is_dealt_from_its_front() -> None:
    order = [9, 8, 7, 0, 1, 2, 3, 4, 5, 6]
    assert blocks(of(10), 3, class_order=order) == [(0, 7, 8, 9), (1, 2, 3), (4, 5, 6)]
    assert blocks(of(10), 3, class_order=order, first_task_classes=2) == [(8, 9), (0, 1, 2, 7), (3, 4, 5, 6)]
    drawn = np.random.default_rng(7).permutation(10).tolist()
    seeded = {"class_order": "seeded", "first_task_classes": 6, "seed": 7}
    assert blocks(of(10), 2, **seeded) == [tuple(sorted(drawn[:6])), tuple(sorted(drawn[6:]))]


def test_classes_are_listed_by_number_and_by_name() -> None:
    named = of(4, ANIMALS)
    assert blocks(named, 3, classes=[["dog"], [2, 0], ["bee"]]) == [(3,), (0, 2), (1,)]
    assert blocks(named, 2, class_order=["dog", "bee", 2, "ant"]) == [(1, 3), (0, 2)]
    (_, second, _) = tasks_of(named, 3, classes=[["dog"], [2, 0], ["bee"]])
    assert (second.train.tolist(), second.test.tolist()) == ([0, 2, 4, 6], [0, 2])


def test_folders_of_images_have_names(tmp_path: Path) -> None:
    for name in ANIMALS:
        (tmp_path / name).mkdir()
        for number in range(3):
            Image.new("L", (4, 4)).save(tmp_path / name / f"{number}.png")
    config = load(
        {
            "name": "named",
            "dataset": {"name": "image_folder", "path": str(tmp_path), "size": 4},
            "scenario": {"kind": "class_incremental", "tasks": 2, "classes": [["dog", "ant", "cat"], ["bee"]]},
            "clients": {"count": 1},
            "model": {"name": "mlp"},
            "training": {"rounds_per_task": 1},
        }
    )
    assert [task.classes for task in federation_without_clients(config).tasks] == [(0, 2, 3), (1,)]


def test_a_number_is_a_label_and_a_string_a_name() -> None:
    """Folders named 0, 1, 10, 2 are sorted as strings: the class named '10' has the label 2."""
    named = of(4, ("0", "1", "10", "2"))
    assert blocks(named, 2, classes=[[2, 0], ["2", "1"]]) == [(0, 2), (1, 3)]


EACH = "allowed: each of the 4 classes once"


@pytest.mark.parametrize(
    ("names", "keys", "message"),
    [
        (None, {"tasks": 5}, "scenario.tasks: found 5, allowed: 1 to 4, as each has at least one class"),
        (None, {"tasks": 2, "first_task_classes": 4}, ("scenario.first_task_classes: found 4 of 4 classes, allowed: 1 "
         "to 3, as each of the 2 tasks has at least one; or fewer tasks")),
        (None, {"tasks": 2, "classes": [[0, 1], [1, 2, 3]]}, ("scenario.classes: found class 1 more than once, "
         f"{EACH}; keep one of them, or set scenario.repetition=listed")),
        (ANIMALS, {"tasks": 2, "classes": [[0, "dog"], ["ant", 1, 2]]}, ("scenario.classes: found class 0 (ant) more "
         f"than once, {EACH}; keep one of them, or set scenario.repetition=listed")),
        (ANIMALS, {"tasks": 2, "classes": [[0], [1]]}, (f"scenario.classes: found no classes 2 (cat), 3 (dog), {EACH}; "
         "add what is missing")),
        (None, {"tasks": 2, "class_order": [3, 2, 1]}, (f"scenario.class_order: found no class 0, {EACH}; add what is "
         "missing")),
        (None, {"tasks": 2, "classes": [[0, 1], [2, 4]]}, ("scenario.classes: found the class 4, allowed: 0 to 3, as "
         "the dataset has no names")),
        (None, {"tasks": 2, "classes": [[0, 1], [2, "dog"]]}, ("scenario.classes: found the class 'dog', allowed: 0 to "
         "3, as the dataset has no names")),
        (ANIMALS, {"tasks": 2, "classes": [[0, 1], [2, "dgo"]]}, ("scenario.classes: found the class 'dgo', allowed: 0 "
         "to 3 or the dataset's names of classes; did you mean 'dog'?")),
    ],
)  # fmt: skip
def test_what_is_no_division_of_the_classes_is_refused(
    names: tuple[str, ...] | None, keys: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        tasks_of(of(4, names), **keys)
    assert str(refused.value) == message


def test_a_task_without_samples_is_refused(colours: Dataset) -> None:
    lacking = Dataset(colours.train, Split(colours.test.x[:2], colours.test.y[:2]), classes=4)
    with pytest.raises(ConfigError, match="the task of classes 2 3 has 10 training and 0 test samples"):
        tasks_of(lacking, 2)
