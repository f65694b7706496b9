"""Class-incremental tasks of unequal size through everything that a run does with tasks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raysim
from raysim.engine.events import RoundDone
from raysim.evaluation.accuracy_matrix import summarise
from raysim.federation.federation import build_federation
from raysim.reports.write import write_report

DATA = {"name": "synthetic", "classes": 5, "shape": [6], "train": 60, "test": 30}
LISTED = {"kind": "class_incremental", "tasks": 3, "classes": [[4], [0, 2, 3], [1]]}
FIRST = {"kind": "class_incremental", "tasks": 3, "first_task_classes": 3, "class_order": [4, 0, 2, 1, 3]}
UNEVEN = {"kind": "class_incremental", "tasks": 3, "class_order": "seeded"}
STREAMS = {"listed": LISTED, "first": FIRST, "uneven": UNEVEN}

pytestmark = pytest.mark.filterwarnings("ignore:scenario.tasks. found . of 3 tasks with one class")

TIMES = ("seconds", "seconds_per_round", "seconds_starting", "peak_memory_bytes", "recoveries", "rounds_recomputed")


class Power(Exception):
    """It fails."""


class Outage:
    """Ends a run after a round as if the power had failed."""

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == 5:
            raise Power

    def say(self, text: str) -> None:
        """Nothing."""


def config_of(tiny: Any, scenario: dict[str, Any], **more: Any) -> Any:
    return tiny(dataset=DATA, scenario=scenario, logging__tensorboard=False, **more)


def test_clients_have_the_samples_of_their_task_and_admit_its_classes(tiny: Any) -> None:
    """12 training samples of each of 5 classes for 3 clients; task 2 of `listed` has 36 of them, the others 12."""
    federation = build_federation(config_of(tiny, LISTED))
    for stream in federation.streams:
        assert [stream.size(window) for window in range(3)] == [4, 12, 4]
        assert [federation.admitted(stream, window, "task") for window in range(3)] == [(4,), (0, 2, 3), (1,)]
        assert [federation.admitted(stream, window, "seen") for window in range(3)] == [
            (4,), (0, 2, 3, 4), (0, 1, 2, 3, 4)
        ]  # fmt: skip
    assert [federation.classes_before(stage) for stage in range(3)] == [(), (4,), (0, 2, 3, 4)]
    assert [len(task.test) for task in federation.tasks] == [6, 18, 6]


def test_the_metrics_are_means_over_tasks_whatever_their_size(tiny: Any, tmp_path: Path) -> None:
    """A task of one class is answered rightly wherever the task is known; fractions are of the task's own samples."""
    done = raysim.run(config_of(tiny, LISTED, evaluation__per_client=True), out=tmp_path / "out", local=True)
    task_il = done.evaluation["task_il"]
    matrix = np.array(task_il["accuracy"])
    assert matrix.shape == (3, 3)
    assert (matrix[:, [0, 2]] == 1).all()
    assert np.allclose(matrix[:, 1] * 18, np.round(matrix[:, 1] * 18))
    assert task_il["average_accuracy"] == pytest.approx((2 + matrix[2, 1]) / 3)
    assert task_il["forgetting"] == pytest.approx((max(matrix[0, 1], matrix[1, 1]) - matrix[2, 1]) / 2)
    class_il = np.array(done.evaluation["class_il"]["accuracy"])
    assert (class_il <= matrix).all()
    assert summarise(class_il.tolist(), [0.0] * 3)["forgetting"] == done.evaluation["class_il"]["forgetting"]
    # clients have equally many samples, all together as many of every class: their mean is that over classes
    assert done.per_client is not None
    assert done.per_client["task_il"]["mean"] == pytest.approx((2 + 3 * matrix[2, 1]) / 5)


@pytest.mark.parametrize(
    "name", [name if name == "listed" else pytest.param(name, marks=pytest.mark.soak) for name in STREAMS]
)
def test_a_run_cut_off_and_resumed_is_the_whole_run(tiny: Any, tmp_path: Path, name: str) -> None:
    keys: dict[str, Any] = {"memory": {"capacity": 4, "per": "task"}, "methods": {"er": {}}}
    config = config_of(tiny, {**STREAMS[name], "order": "per_client"}, checkpoint__every_rounds=2, **keys)
    whole = raysim.run(config, out=tmp_path / "whole", local=True)
    with pytest.raises(Power):
        raysim.run(config, out=tmp_path / "cut", local=True, display=Outage())
    (tmp_path / "cut" / "summary.json").unlink()
    resumed = raysim.run(None, out=tmp_path / "cut", local=True, resume=True)
    same = {key: value for key, value in vars(whole).items() if key not in (*TIMES, "directory", "versions")}
    assert {key: vars(resumed)[key] for key in same} == same
    sections = write_report([tmp_path / "whole"]).sections
    assert len(sections[0].plots) >= 3


@pytest.mark.parametrize("name", STREAMS)
def test_check_foresees_steps_and_bytes(tiny: Any, tmp_path: Path, name: str) -> None:
    from costs import cost_of

    config = config_of(tiny, STREAMS[name], methods={"fedcurv": {}}, training__logits="seen")
    cost, done = cost_of(config), raysim.run(config, out=tmp_path / "out", local=True)
    assert (cost.steps, sum(cost.up.values()), sum(cost.down.values())) == (done.steps, done.bytes_up, done.bytes_down)
