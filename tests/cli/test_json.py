"""With --json, standard output is one JSON document."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_configs import SMALL

import raysim
from raysim.algorithms import METHODS
from raysim.cli import main

Captured = pytest.CaptureFixture[str]


def document(capsys: Captured, *argv: str) -> Any:
    assert main(argv) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    return json.loads(output)


def test_check(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "tiny.yaml").write_text(json.dumps(SMALL))
    found = document(capsys, "check", str(tmp_path / "tiny.yaml"), "--json")
    assert found["steps"] == "24 gradient steps"
    assert found.keys() == raysim.check(SMALL).keys()


def test_list(capsys: Captured) -> None:
    assert {"kind": "methods", "description": "what clients and server do beyond FedAvg"} in document(
        capsys, "list", "--json"
    )
    assert [one["name"] for one in document(capsys, "list", "methods", "--json")] == [*METHODS]
    (mu,) = document(capsys, "list", "methods", "fedprox", "--json")
    assert (mu["key"], mu["default"], mu["allowed"]) == ("mu", "0.01", "a number >= 0")
    replay = [one["key"] for one in document(capsys, "list", "methods", "er", "--json")]
    assert replay == ["sample_size", "memory.capacity", "memory.per", "memory.policy", "memory.fill"]


def test_report(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysim.reports.write.PLOTS", {})
    for seed in (0, 1):
        raysim.run(SMALL, {"seed": seed}, out=tmp_path / "runs" / str(seed), local=True)
    found = document(capsys, "report", str(tmp_path / "runs"), "--out", str(tmp_path / "report"), "--json")
    assert found["directory"] == str(tmp_path / "report")
    assert [run["seed"] for run in found["runs"]] == [0, 1]
    accuracies = [
        raysim.load(tmp_path / "runs" / str(seed)).evaluation["class_il"]["average_accuracy"] for seed in (0, 1)
    ]
    assert [run["class_il.average_accuracy"] for run in found["runs"]] == accuracies
    (mean,) = (one for one in found["means"] if one["protocol"] == "class_il")
    assert mean["average accuracy, %"] == pytest.approx(100 * sum(accuracies) / 2)
    assert found["left_out"] == []
    assert (tmp_path / "report" / "report.html").exists()
