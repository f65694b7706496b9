"""Top-k accuracy, on a model whose logits are the sample itself, and everything that shows it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import raysim
from raysim.cli import main
from raysim.data.dataset import Dataset, Split
from raysim.data.scenario import Task
from raysim.evaluation.scoring import score, split_into_chunks
from raysim.federation.availability import Availability
from raysim.federation.federation import Federation
from raysim.system.errors import ConfigError

ON_A_CPU = "no GPU here that torch can use; ties are broken on the CPU, with the same rows and counts, in any case"
WITH_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason=ON_A_CPU)
CLASSES = {"kind": "class_incremental", "tasks": 2}

# logits of classes 0..5, label, its place among all, its place among its task's (0 1 2 or 3 4 5); of equal logits the
# lower class comes first
ROWS = [
    ([3, 2, 1, 0, 0, 0], 2, 3, 3),
    ([5, 5, 5, 0, 0, 0], 0, 1, 1),
    ([5, 5, 5, 0, 0, 0], 1, 2, 2),
    ([5, 5, 5, 9, 9, 9], 2, 6, 3),
    ([0, 0, 0, 0, 0, 0], 3, 4, 1),
    ([9, 0, 0, 1, 2, 3], 4, 3, 2),
    ([9, 8, 7, 1, 2, 1], 5, 6, 3),
    ([0, 0, 0, -1, -2, -2], 5, 6, 3),
]


def federation_of(rows: list[Any], tasks: list[tuple[int, ...]], classes: int) -> Federation:
    x, y = np.array([row[0] for row in rows], np.float32), np.array([row[1] for row in rows], np.int64)
    made = [
        Task("", own, None, np.zeros(0, np.int32), np.flatnonzero(np.isin(y, own)).astype(np.int32)) for own in tasks
    ]
    split = Split(x, y)
    protocols = ("class_il", "task_il")
    return Federation(Dataset(split, split, classes), made, [], Availability([], [], [1]), protocols, None, ())


def count(federation: Federation, top_k: int, chunk: int = 100, device: str = "cpu") -> dict[str, list[int]]:
    source = federation.source("test", torch.device(device))
    parts = split_into_chunks(federation, chunk)
    found = score(nn.Identity(), torch.float32, source, federation, parts, top_k)
    return {protocol: counts.sum(axis=1).tolist() for protocol, counts in found.items()}


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_the_label_counts_where_its_place_is_within_k(top_k: int, chunk: int) -> None:
    """Class-IL right for k = 1, 2, 3: 1, 2, 3 of task 1 and 0, 0, 1 of task 2; task-IL: 1, 2, 4 and 1, 2, 4."""
    of_tasks = [[row for row in ROWS if row[1] < 3], [row for row in ROWS if row[1] >= 3]]
    expected = {
        "class_il": [sum(row[2] <= top_k for row in rows) for rows in of_tasks],
        "task_il": [sum(row[3] <= top_k for row in rows) for rows in of_tasks],
    }
    assert expected["class_il"] == [[1, 0], [2, 0], [3, 1]][top_k - 1]
    assert expected["task_il"] == [[1, 1], [2, 2], [4, 4]][top_k - 1]
    assert count(federation_of(ROWS, [(0, 1, 2), (3, 4, 5)], 6), top_k, chunk) == expected


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=WITH_GPU)])
@pytest.mark.parametrize("classes", [4, 40, 400, 3000])
def test_of_many_equal_logits_the_first_k_classes_count(classes: int, device: str) -> None:
    """torch.topk and a sort that is not stable return others of them; with all classes everything is right."""
    rows = [([1.0] * classes, label) for label in range(0, classes, max(1, classes // 40))]
    federation = federation_of(rows, [tuple(range(classes))], classes)
    for top_k in (1, 2, 4, classes):
        right = sum(label < top_k for _, label in rows)
        assert count(federation, top_k, device=device) == {"class_il": [right], "task_il": [right]}


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ({"scenario": CLASSES}, "1 to 2, as many classes as the task with the fewest has (classes 0 1)"),
        (
            {"scenario": {**CLASSES, "first_task_classes": 3}},
            "1 to 1, as many classes as the task with the fewest has (classes 3)",
        ),
        ({}, "1 to 4, as many classes as the task with the fewest has (permutation 1)"),
    ],
)
def test_more_than_a_task_has_classes_is_refused(tiny: Any, tmp_path: Path, keys: Any, most: str) -> None:
    config = tiny(**keys, evaluation__top_k=5)
    with pytest.raises(ConfigError) as refused:
        raysim.run(config, out=tmp_path / "out", local=True)
    assert str(refused.value) == f"evaluation.top_k: found 5, allowed: {most}"
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def pair(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One run tested by the largest logit and by the two largest; its tasks have 3 and 3 of 6 classes."""
    data = {"name": "synthetic", "classes": 6, "shape": [6], "train": 60, "test": 60, "noise": 3.0}
    evaluation = {"every_rounds": 1, "per_client": True}
    config = tiny(dataset=data, scenario=CLASSES, evaluation=evaluation, logging__tensorboard=True)
    out = tmp_path_factory.mktemp("runs")
    return [raysim.run(config, {"evaluation.top_k": k}, out=out / str(k), local=True) for k in (1, 2)]


def test_a_run_is_tested_by_top_k_and_trained_the_same(pair: Any) -> None:
    by_one, by_two = pair
    assert (by_one.top_k, by_two.top_k) == (1, 2)
    assert by_one.model_sha256 == by_two.model_sha256
    for protocol in ("class_il", "task_il"):
        one, two = (np.array(found.evaluation[protocol]["accuracy"]) for found in pair)
        assert (one <= two).all()
        assert (one < two).any()
        assert by_two.evaluation[protocol]["average_accuracy"] == pytest.approx(two[-1].mean())
        assert by_one.per_client[protocol]["mean"] < by_two.per_client[protocol]["mean"]
    written = [json.loads((found.directory / "summary.json").read_text()) for found in pair]
    assert ("top_k" in written[0], written[1]["top_k"]) == (False, 2)
    assert [raysim.load(found.directory).top_k for found in pair] == [1, 2]


def test_a_finished_run_is_evaluated_by_another_k(pair: Any, capsys: pytest.CaptureFixture[str]) -> None:
    by_one, by_two = pair
    found = raysim.evaluate(by_one.directory, {"evaluation.top_k": 2})
    assert found.top_k == 2
    assert found.evaluation["task_il"]["accuracy"] == by_two.evaluation["task_il"]["accuracy"][-1]
    assert found.per_client == by_two.per_client
    assert main(["evaluate", str(by_two.directory)]) == 0
    shown = capsys.readouterr().out
    assert "accuracy in %, class-IL top-2, test samples of each task" in shown
    assert "accuracy in % on the clients' own classes and tasks, task-IL top-2: mean" in shown
    with pytest.raises(ConfigError, match=r"evaluation\.top_k: found 4, allowed: 1 to 3"):
        raysim.evaluate(by_one.directory, {"evaluation.top_k": 4})


def test_what_a_terminal_shows_says_top_k(pair: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = str(pair[1].directory / "config.yaml")
    assert main(["run", config, "--local", "--out", str(tmp_path / "out"), "logging.tensorboard=false"]) == 0
    lines = [line for line in capsys.readouterr().out.replace(" (seen classes)", "").splitlines() if "-IL" in line]
    assert sum(line.startswith("task ") for line in lines) == 4  # a line for each of the four rounds
    assert all(line.count("class-IL") + line.count("task-IL") == line.count("-IL top-2") > 0 for line in lines)


def test_tensorboard_names_accuracies_by_k(pair: Any) -> None:
    tags = []
    for run in pair:
        shown = EventAccumulator(str(run.directory))
        shown.Reload()
        tags.append({tag for kind in ("scalars", "images") for tag in shown.Tags()[kind] if "_il" in tag})
    assert {"class_il/task_1", "average/task_il/forgetting", "class_il/accuracy_matrix"} < tags[0]
    assert {re.sub("(_il|_il_seen)/", r"\1_top_2/", tag) for tag in tags[0]} == tags[1]
