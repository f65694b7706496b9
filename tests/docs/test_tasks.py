"""The tasks of examples/tasks: their checker gives all points to solutions as the skill says, and few to others."""

import csv
import importlib.util
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pages import ROOT

import raysim
from raysim.cli import main

TASKS = ROOT / "examples" / "tasks"
SKILL = (ROOT / "raysim" / "skill.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", SKILL, re.DOTALL | re.MULTILINE)
CLIPPED = """
from __future__ import annotations
from dataclasses import dataclass
from raysim.api import Client, ClientHalf, Delta, Method, Terms

@dataclass(frozen=True, kw_only=True)
class Clipped(Method):
    '''Clipped: updates of at most this norm.'''
    limit: float = 1.0

    class Client(ClientHalf):
        method: Clipped

        def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
            norm = float(delta.parameters.norm())
            factor = 1.0 if norm <= self.method.limit else self.method.limit / norm
            return Delta(factor * delta.parameters, delta.buffers), {}
"""


def block(kind: str, holding: str) -> str:
    """The skill's block of code of a language with these words."""
    (found,) = [text for language, text in BLOCKS if language == kind and holding in text]
    return found


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("check_of_tasks", TASKS / "check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield module
    sys.modules.pop("clipped", None)


def fresh(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(shutil.copytree(TASKS / task, tmp_path / task))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    return folder


@pytest.mark.soak
def test_own_data_is_solved_from_the_skill(check, tmp_path, monkeypatch) -> None:
    folder = fresh("own_data", tmp_path, monkeypatch)
    assert check.grade("own_data", folder)[0] == 0
    config = block("yaml", "name: table")
    for old, new in {
        "path: mine.csv": "path: readings.csv",
        "target: label": "target: broken",
        "client: site": "client: shop",
        "time: day": "time: hour",
        "[machine]": "[tool]",
        "column: day": "column: hour",
        "count: 6": "count: 5",
    }.items():
        assert config.count(old) == 1
        config = config.replace(old, new)
    (folder / "mine.yaml").write_text(config)
    assert main(["run", "mine.yaml", "--local", "--quiet", "--out", "run"]) == 0
    assert check.grade("own_data", folder)[:2] == (5, 5), check.grade("own_data", folder)
    (folder / "mine.yaml").write_text(config.replace("[tool]", "[]").replace("natural", "iid"))
    assert check.grade("own_data", folder)[0] == 2
    (folder / "mine.yaml").write_text(config)
    shutil.rmtree("run")
    raysim.run("quickstart", methods="er", out="run", local=True)
    assert check.grade("own_data", folder)[0] == 4


@pytest.mark.soak
def test_own_method_is_solved(check, tmp_path, monkeypatch) -> None:
    folder = fresh("own_method", tmp_path, monkeypatch)
    (folder / "clipped.py").write_text(CLIPPED)
    raysim.run("quickstart", {"methods": {"clipped:Clipped": {"limit": 0.5}}}, out="run", local=True)
    assert check.grade("own_method", folder)[:2] == (5, 5), check.grade("own_method", folder)
    sys.modules.pop("clipped")
    (folder / "clipped.py").write_text(CLIPPED.replace("norm <= self.method.limit", "True"))
    assert check.grade("own_method", folder)[0] <= 3


@pytest.mark.soak
def test_the_table_is_solved(check, tmp_path, monkeypatch) -> None:
    folder = fresh("table", tmp_path, monkeypatch)
    (folder / "grid.yaml").write_text(
        "name: grid\nbase: quickstart\nset: {training.rounds_per_task: 3}\n"
        "grid:\n  seed: [0, 1]\n  methods: {FedAvg: {}, ER: {er: {}}, LwF: {lwf: {}}}\n"
    )
    assert main(["sweep", "grid.yaml", "--local", "--quiet"]) == 0
    assert main(["report", "runs", "--out", "paper"]) == 0
    with Path("paper/means.csv").open(encoding="utf-8") as file:
        means = [*csv.DictReader(file)]
    rows = [
        (
            next((name for name in ("LwF", "ER") if name in row["methods"]), "FedAvg"),
            next(float(value) for key, value in row.items() if key.startswith("average accuracy") and "std" not in key),
            next(float(value) for key, value in row.items() if key.startswith("forgetting") and "std" not in key),
        )
        for row in means
    ]
    rows.sort(key=lambda row: -row[1])
    lines = [f"{name},{accuracy:.2f},{forgetting:.2f}" for name, accuracy, forgetting in rows]
    Path("answer.csv").write_text("\n".join(["method,accuracy,forgetting", *lines]))
    assert check.grade("table", folder)[:2] == (5, 5), (check.grade("table", folder), lines)
    Path("answer.csv").write_text("\n".join(["method,accuracy,forgetting", *lines[::-1]]))
    assert check.grade("table", folder)[0] == 4


def test_an_empty_folder_has_no_points_and_wrong_arguments_are_refused(check, tmp_path, capsys) -> None:
    assert check.main(["table", str(tmp_path)]) == 1
    assert capsys.readouterr().out.endswith("of 5 points\n")
    assert check.main(["table"]) == check.main(["no_task", str(tmp_path)]) == 2


def test_the_readings_are_what_the_script_makes(tmp_path) -> None:
    spec = importlib.util.spec_from_file_location("make_readings", TASKS / "make_readings.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.write(tmp_path / "made.csv")
    assert (tmp_path / "made.csv").read_bytes() == module.FILE.read_bytes()


def test_the_skills_code_runs(tmp_path, monkeypatch, capsys) -> None:
    """Its dataset with its config, its method, and the names in its text of what reports write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "my_data.py").write_text(block("python", "def load"))
    (tmp_path / "my_method.py").write_text(block("python", "class Shrink"))
    (tmp_path / "mine.yaml").write_text(block("yaml", "name: mine\n"))
    try:
        command = ["run", "mine.yaml", "methods={my_method:Shrink: {factor: 0.9}}", "training.rounds_per_task=1"]
        assert main([*command, "--local", "--quiet", "--out", "out"]) == 0
    finally:
        for name in ("my_data", "my_method"):
            sys.modules.pop(name, None)
    assert raysim.load("out").tasks == 2
    assert main(["skill"]) == 0
    assert capsys.readouterr().out == SKILL


def test_the_skill_needs_no_other_page() -> None:
    assert "](" not in SKILL
    assert SKILL.startswith("---\nname: raysim\ndescription: ")
