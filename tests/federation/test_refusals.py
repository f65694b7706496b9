"""Data that do not suit the config are refused in words that say what to do."""

import numpy as np
import pytest

from raysim.data.scenario import Task
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

LABELS = np.arange(24) % 4


def halves(dataset, tasks, generator, *, classes=4):
    """Tasks with all classes, or with fewer."""
    rows = np.arange(20)
    return [Task(f"part {number}", tuple(range(classes)), None, rows, rows) for number in range(tasks)]


@pytest.mark.parametrize(
    ("y", "found"),
    [
        (LABELS.astype(float), "float32 [24, 1]"),  # numbers [N] are stored as [N, 1]
        (np.eye(4)[LABELS], "float32 [24, 4]"),
        (np.eye(4, dtype=int)[LABELS], "int64 [24, 4]"),
        (LABELS[:, None], "int64 [24, 1]"),
    ],
)
def test_targets_that_are_no_labels_are_named_before_tasks_are_made(tiny, tmp_path, y, found):
    """Floats have one class, so that two tasks of classes would be refused for another reason."""
    x = np.zeros((24, 3), np.float32)
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    config = tiny(
        dataset={"name": "npz", "path": str(tmp_path / "mine.npz")}, scenario={"kind": "class_incremental", "tasks": 2}
    )
    with pytest.raises(ConfigError) as error:
        build_federation(config)
    assert str(error.value) == (
        f"objective: classification in the training samples: found targets of {found}, allowed: labels, int64 [N]; "
        "save y.astype(int), y.argmax(1) of one-hot rows, or y[:, 0] of one column; or set another objective"
    )


def test_a_partition_that_one_task_cannot_have_names_the_task(tiny):
    """Task 1 has classes 0 to 2 and task 2 has class 3: a quarter of 40 samples, 10, for 4 clients of 5 each."""
    keys = {
        "dataset": {"name": "synthetic", "classes": 4, "train": 40},
        "scenario": {"kind": "class_incremental", "tasks": 2, "classes": [[0, 1, 2], [3]]},
        "clients": {"count": 4},
    }
    partition = {"kind": "quantity", "alpha": 1000, "min_samples": 5}
    with pytest.raises(ConfigError) as error:
        build_federation(tiny(**keys, partition=partition))
    assert str(error.value) == (
        "partition.min_samples: found 5, which not all of 4 clients got of 10 samples with alpha 1000.0, allowed: at "
        "most 2; lower it, or raise alpha; this is in task 2 of 2 (classes 3), and partition.per=run divides all tasks "
        "at once"
    )
    streams = build_federation(tiny(**keys, partition={**partition, "per": "run"})).streams
    assert all(len(stream) >= 5 for stream in streams)


def test_heads_per_task_are_refused_where_a_custom_scenario_has_all_classes_in_all_tasks(tiny):
    """Its tasks are unknown when the model is built, and without heads or a mask the key would change nothing."""
    custom = {"kind": "test_refusals:halves", "tasks": 2}
    with pytest.raises(ConfigError) as error:
        build_federation(tiny(scenario=custom, training__logits="task"))
    assert str(error.value) == "training.logits: found task, but every task has all classes, allowed: all"
    assert build_federation(tiny(scenario=custom)).protocols == ("domain_il",)
    assert build_federation(tiny(scenario={**custom, "tasks": 1}, training__logits="task")).protocols == ("domain_il",)
