"""What a run leaves behind of clients in time: the picture of who is at which task, virtual time, updates by client."""

import json
from io import BytesIO

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import raysim
from raysim.objectives.classification import ACCURACY_METRIC
from raysim.records.figures import matrix_image, number_rows, timeline_image


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    """Two rounds of a task; client 2 comes with round 2 and changes its task a round early or late, or not."""
    config = tiny(
        logging__tensorboard=True,
        scenario={
            "kind": "domain_incremental",
            "tasks": 2,
            "shift": "permutation",
            "boundaries": {"jittered": {"rounds": 1}},
        },
        training__rounds_per_task=3,
        clients={"count": 3, "arrive": {"at": [{"round": 2, "clients": [2]}]}},
        evaluation={"every_rounds": 2},
    )
    return raysim.run(config, out=tmp_path_factory.mktemp("time") / "run", local=True)


@pytest.fixture(scope="module")
def board(run):
    shown = EventAccumulator(str(run.directory), size_guidance={"histograms": 0})
    shown.Reload()
    return shown


def test_the_picture_is_there_only_where_clients_differ(run, board, tiny, tmp_path):
    with Image.open(run.directory / "clients_at_tasks.png") as picture:
        assert picture.size[0] > 400
    (image,) = board.Images("clients_at_tasks")
    assert image.encoded_image_string.startswith(b"\x89PNG")
    together = raysim.run(tiny(logging__tensorboard=False), out=tmp_path / "together", local=True)
    assert not (together.directory / "clients_at_tasks.png").exists()


def test_the_picture_has_the_tasks_colors_and_white_where_no_client_is():
    """Two tasks in violet (94, 60, 160) and yellow (240, 215, 50); a third of the cells is empty."""
    timeline = np.repeat(np.array([[0, 1, -1], [1, 0, -1]]), 40, axis=1)
    image = timeline_image(timeline).reshape(-1, 3)
    violet, yellow = (
        (np.abs(image.astype(int) - color).max(1) <= 2).sum() for color in ((94, 60, 160), (240, 215, 50))
    )
    assert violet == pytest.approx(yellow, rel=0.15)  # the bar beside it has both
    assert violet > 0.15 * len(image)


def test_nothing_is_forgotten_where_no_task_ends(tiny, tmp_path):
    """Under asynchronous boundaries summary.json has null, and a row of the matrix is after a part of the run."""
    boundaries = {"boundaries": {"asynchronous": {"window": 8, "rounds_per_window": 1}}}
    scenario = {"kind": "domain_incremental", "tasks": 2, "shift": "permutation"} | boundaries
    found = raysim.run(
        tiny(scenario=scenario, training__rounds_per_task=None, logging__tensorboard=True),
        out=tmp_path / "run",
        local=True,
    )
    shown = EventAccumulator(str(found.directory))
    shown.Reload()
    assert found.evaluation["domain_il"]["forgetting"] is None
    assert [tag for tag in shown.Tags()["scalars"] if "forgetting" in tag or "transfer" in tag] == []
    drawn = shown.Images("domain_il/accuracy_matrix")[-1].encoded_image_string
    with Image.open(BytesIO(drawn)) as picture:
        pixels = np.asarray(picture)
    matrix = found.evaluation["domain_il"]["accuracy"]
    assert np.array_equal(pixels, matrix_image(matrix, "domain_il", False, 1, ACCURACY_METRIC))
    assert not np.array_equal(pixels, matrix_image(matrix, "domain_il", True, 1, ACCURACY_METRIC))
    axes = Figure().add_subplot()
    number_rows(axes, len(matrix), in_step=False)
    assert axes.get_ylabel() == "after part of the run"


def test_updates_are_counted_by_client(run):
    rounds = [json.loads(line) for line in (run.directory / "rounds.jsonl").read_text().splitlines()]
    assert run.participation == [sum(k in line["cohort"] for line in rounds) for k in range(3)]
    assert run.participation == [6, 6, 5]
    assert run.virtual_time == rounds[-1]["virtual_time"] == pytest.approx(6 * 0.012)


def test_accuracy_stands_against_virtual_time_and_bytes_too(run, board):
    """Evaluated after rounds 2, 3, 4 and 6; 12 ms a round; 236 bytes of model up and down per update."""
    accuracies = [event.value for event in board.Scalars("average/domain_il/accuracy")]
    by_time = board.Scalars("domain_il/accuracy_by_virtual_ms")
    by_bytes = board.Scalars("domain_il/accuracy_by_KiB")
    assert [event.step for event in by_time] == [24, 36, 48, 72]
    assert [event.step for event in by_bytes] == [n * 2 * 236 // 1024 for n in (5, 8, 11, 17)]
    assert [event.value for event in by_time] == [event.value for event in by_bytes] == accuracies
    assert [event.step for event in board.Histograms("clients/updates")] == [3, 6]
    assert [(event.step, event.value) for event in board.Scalars("clients/cohort")][:2] == [(1, 2), (2, 3)]
