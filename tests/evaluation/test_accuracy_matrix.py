"""Matrices a[t][i] (row: after task t; column: test set of task i) small enough to do by hand."""

import json
import math

import pytest

from raysim.evaluation import accuracy_matrix

ONE = [[0.8]]
TWO = [[0.9, 0.2], [0.6, 0.8]]
# task 2 was at 0.75 before its own training and at 0.65 right after it
THREE = [[0.9, 0.75, 0.1], [0.7, 0.65, 0.3], [0.5, 0.6, 0.95]]
# training on task 2 helped task 1
HELPED = [[0.5, 0.1], [0.7, 0.9]]


def close(value):
    return pytest.approx(value, rel=1e-14)


def test_average_accuracy_is_over_the_tasks_so_far():
    assert accuracy_matrix.average_accuracy(ONE) == 0.8
    assert accuracy_matrix.average_accuracy(TWO) == close((0.6 + 0.8) / 2)
    assert accuracy_matrix.average_accuracy(THREE) == close((0.5 + 0.6 + 0.95) / 3)
    assert accuracy_matrix.average_accuracy(THREE, after=1) == 0.9
    assert accuracy_matrix.average_accuracy(THREE, after=2) == close((0.7 + 0.65) / 2)
    assert accuracy_matrix.average_accuracy(THREE[:2]) == close((0.7 + 0.65) / 2)  # a run that was interrupted
    assert accuracy_matrix.average_accuracy([]) is None
    assert accuracy_matrix.average_accuracy(TWO, after=3) is None


def test_forgetting_takes_the_best_before_the_last():
    """TWO: 0.9 - 0.6. THREE: ((0.9 - 0.5) + (0.75 - 0.6)) / 2, the 0.75 from before task 2's training."""
    assert accuracy_matrix.forgetting(TWO) == close(0.3)
    assert accuracy_matrix.forgetting(THREE) == close((0.4 + 0.15) / 2)


def test_forgetting_is_negative_where_the_last_task_helped():
    assert accuracy_matrix.forgetting(HELPED) == close(-0.2)
    assert accuracy_matrix.final_forgetting(HELPED) == close(-0.2)
    assert accuracy_matrix.backward_transfer(HELPED) == close(0.2)


def test_final_forgetting_takes_the_accuracy_right_after_training():
    """THREE: ((0.9 - 0.5) + (0.65 - 0.6)) / 2."""
    assert accuracy_matrix.final_forgetting(TWO) == close(0.3)
    assert accuracy_matrix.final_forgetting(THREE) == close((0.4 + 0.05) / 2)
    assert accuracy_matrix.backward_transfer(THREE) == close(-(0.4 + 0.05) / 2)


def test_forward_transfer_compares_with_the_untrained_model():
    """TWO: a[1][2] - b_2 = 0.2 - 0.25. THREE: ((0.75 - 0.3) + (0.3 - 0.4)) / 2."""
    assert accuracy_matrix.forward_transfer(TWO, [0.5, 0.25]) == close(-0.05)
    assert accuracy_matrix.forward_transfer(THREE, [0.2, 0.3, 0.4]) == close((0.45 - 0.1) / 2)


def test_what_is_undefined_is_none():
    for matrix in (ONE, []):
        assert accuracy_matrix.forgetting(matrix) is None
        assert accuracy_matrix.final_forgetting(matrix) is None
        assert accuracy_matrix.backward_transfer(matrix) is None
        assert accuracy_matrix.forward_transfer(matrix, [0.1]) is None


def test_no_change_is_zero_and_not_minus_zero():
    value = accuracy_matrix.backward_transfer([[0.5, 0.1], [0.5, 0.9]])
    assert value == 0
    assert math.copysign(1, value) == 1


def test_the_summary_has_the_contracts_keys_and_is_json():
    summary = accuracy_matrix.summarise(TWO, [0.5, 0.25])
    assert json.loads(json.dumps(summary, allow_nan=False)) == {
        "accuracy": TWO,
        "average_accuracy": close(0.7),
        "forgetting": close(0.3),
        "final_forgetting": close(0.3),
        "backward_transfer": close(-0.3),
        "forward_transfer": close(-0.05),
        "average_incremental_accuracy_by_task": close((0.9 + 0.7) / 2),
    }
    assert accuracy_matrix.summarise(ONE, [0.1])["forgetting"] is None


def test_the_worked_example_of_the_documentation():
    """docs/metrics.md: the means by hand, (0.5 + 0.7 + 0.9) / 3 and so on."""
    matrix = [[0.90, 0.20, 0.10], [0.95, 0.80, 0.30], [0.50, 0.70, 0.90]]
    assert accuracy_matrix.average_accuracy(matrix) == pytest.approx(0.70)
    assert accuracy_matrix.forgetting(matrix) == pytest.approx(0.275)
    assert accuracy_matrix.backward_transfer(matrix) == pytest.approx(-0.25)
    assert accuracy_matrix.forward_transfer(matrix, [0.1, 0.1, 0.1]) == pytest.approx(0.15)
    # of 100, 100 and 200 test samples: 90 of 100, 95 + 80 of 200, 50 + 70 + 180 of 400
    found = accuracy_matrix.summarise(matrix, [0.1, 0.1, 0.1], samples=[100, 100, 200])
    assert found["accuracy_seen"] == close([0.9, 0.875, 0.75])
    assert found["final_accuracy"] == close(0.75)
    assert found["average_incremental_accuracy"] == close(2.525 / 3)
    assert found["average_incremental_accuracy_by_task"] == close((0.9 + 0.875 + 0.7) / 3)
    # the second reading of class-IL: it is right more often before the last task, and never on a task to come
    seen = [[0.95, 0.00, 0.00], [0.95, 0.85, 0.00], [0.50, 0.70, 0.90]]
    found = accuracy_matrix.summarise(seen, None, samples=[100, 100, 200])
    assert found["accuracy_seen"] == close([0.95, 0.9, 0.75])
    assert found["average_incremental_accuracy"] == close(2.6 / 3)
    assert (found["average_accuracy"], found["forgetting"]) == (close(0.7), close((0.45 + 0.15) / 2))
    assert found["forward_transfer"] is None


def test_over_samples_and_over_tasks_agree_where_the_test_sets_are_equally_large():
    found = accuracy_matrix.summarise(THREE, [0.1] * 3, samples=[7, 7, 7])
    by_task = [0.9, (0.7 + 0.65) / 2, (0.5 + 0.6 + 0.95) / 3]
    assert found["accuracy_seen"] == close(by_task)
    assert found["average_incremental_accuracy"] == close(sum(by_task) / 3)
    assert found["average_incremental_accuracy_by_task"] == close(sum(by_task) / 3)
    assert found["final_accuracy"] == close(found["average_accuracy"])


def test_one_task_and_none_have_what_they_can_have():
    found = accuracy_matrix.summarise(ONE, [0.1], samples=[30])
    assert (found["average_incremental_accuracy"], found["accuracy_seen"]) == (0.8, [0.8])
    found = accuracy_matrix.summarise([], [0.1], samples=[30])  # interrupted before the first row
    assert (found["average_incremental_accuracy"], found["accuracy_seen"], found["final_accuracy"]) == (None, [], None)


def test_clients_that_are_not_in_step_may_have_seen_every_task():
    """No row is after task t, so no mean over the tasks is defined; 0.9 * 10 + 0.2 * 30 of 40 samples are 0.375."""
    found = accuracy_matrix.summarise(TWO, [0.5, 0.25], in_step=False, samples=[10, 30])
    assert found["accuracy_seen"] == close([0.375, (0.6 * 10 + 0.8 * 30) / 40])
    assert found["average_incremental_accuracy"] is None
    assert found["average_incremental_accuracy_by_task"] is None


def test_an_older_summary_gets_what_its_matrix_says():
    """AIA by task is (0.9 + (0.7 + 0.65)/2 + (0.5 + 0.6 + 0.95)/3) / 3; over samples only with the test sets' sizes."""
    new = accuracy_matrix.summarise(THREE, [0.1] * 3, samples=[10, 20, 30])
    added = accuracy_matrix.OverTime.__annotations__.keys()
    old = {key: value for key, value in new.items() if key not in added}
    by_task = (0.9 + 0.675 + 2.05 / 3) / 3
    assert accuracy_matrix.complete(old) == {**old, "average_incremental_accuracy_by_task": close(by_task)}
    assert accuracy_matrix.complete(old, [10, 20, 30]) == new
    assert accuracy_matrix.complete(new, [1, 1, 1]) == new  # what the run itself wrote stays
    apart = {**old, "forgetting": None}
    assert accuracy_matrix.complete(apart) == {**apart, "average_incremental_accuracy_by_task": None}
    broken = {**old, "accuracy": [[0.5], []]}
    assert accuracy_matrix.complete(broken) == broken
