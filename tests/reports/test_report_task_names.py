"""The names of tasks in plots."""

import re
from pathlib import Path
from typing import Any

import pytest
from made_runs import make_run, one_scene

from raysim.reports.plots.accuracy import draw_over_tasks
from raysim.reports.task_names import strip_common

FIVE = {"domain_il": [[0.5] * 5] * 5}
DIGITS = {"dataset": {"name": "digits"}, "training.rounds_per_task": 1}
BY_CLASS: dict[str, Any] = {"kind": "class_incremental", "tasks": 5}


@pytest.mark.parametrize(
    ("titles", "names"),
    [
        (["npz pacs_photo.npz", "npz pacs_art_painting.npz"], ["photo", "art_painting"]),
        (["mnist", "usps"], ["mnist", "usps"]),
        (["npz a/one.npz", "npz b/two.npz"], ["a/one", "b/two"]),
        (["emnist letters", "emnist digits"], ["letters", "digits"]),
        (["mnist", "mnist"], ["mnist", "mnist"]),
        (["only"], ["only"]),
    ],
)
def test_what_all_datasets_have_in_common_is_no_name(titles: list[str], names: list[str]) -> None:
    assert strip_common(titles) == names


def names_of(directory: Path, scenario: dict[str, Any], seeds: int = 1, **more: Any) -> list[str]:
    for seed in range(seeds):
        make_run(directory / f"{seed}", {**DIGITS, "scenario": scenario, "seed": seed, **more}, FIVE)
    return [*one_scene(directory).task_names]


def test_classes_are_the_same_for_all_seeds(tmp_path: Path) -> None:
    """Ten digits in five tasks, in their order."""
    names = [f"{task}: classes {2 * task - 2} {2 * task - 1}" for task in range(1, 6)]
    assert names_of(tmp_path, BY_CLASS, seeds=2) == names
    matrix, *_ = draw_over_tasks(one_scene(tmp_path))
    assert [text.get_text() for text in matrix.figure.axes[0].get_yticklabels()] == names


def test_what_is_drawn_with_the_seed_is_no_name_of_several_seeds(tmp_path: Path) -> None:
    drawn = {**BY_CLASS, "class_order": "seeded"}
    numbers = [f"task {task}" for task in range(1, 6)]
    assert names_of(tmp_path / "two", drawn, seeds=2) == numbers
    assert all(re.fullmatch(r"\d: classes \d \d", name) for name in names_of(tmp_path / "one", drawn))
    rotated = {"kind": "domain_incremental", "tasks": 5, "shift": "rotation"}
    assert names_of(tmp_path / "rotated", rotated, seeds=2) == numbers
    assert all(re.fullmatch(r"\d: rotation \d+\.\d", name) for name in names_of(tmp_path / "once", rotated))


def test_permutations_and_missing_data_have_numbers(tmp_path: Path) -> None:
    permuted = {"kind": "domain_incremental", "tasks": 5, "shift": "permutation"}
    assert names_of(tmp_path / "a", permuted)[0] == "task 1"
    missing = {"dataset": {"name": "npz", "path": "nowhere.npz"}}
    assert names_of(tmp_path / "b", BY_CLASS, **missing)[0] == "task 1"
