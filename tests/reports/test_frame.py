"""Finished runs as a data frame, with a small stand-in for pandas; with pandas itself where it is installed."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import raysim


@pytest.fixture
def runs(tiny, tmp_path: Path) -> Path:
    for seed in (0, 1):
        methods = {"fedprox": {}} if seed else {}
        config = tiny(seed=seed, methods=methods, logging__tensorboard=False)
        raysim.run(config, out=tmp_path / "runs" / str(seed), local=True)
    return tmp_path / "runs"


@pytest.fixture
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = ModuleType("pandas")
    vars(stand_in)["DataFrame"] = list
    monkeypatch.setitem(sys.modules, "pandas", stand_in)


@pytest.mark.usefixtures("pandas")
def test_there_is_a_row_for_each_run_and_protocol(runs: Path) -> None:
    rows: Any = raysim.frame(runs)
    first = raysim.load(runs / "0")
    assert [row["methods"] for row in rows] == ["FedAvg"] * len(first.evaluation) + ["fedprox"] * len(first.evaluation)
    for row in rows[: len(first.evaluation)]:
        values = first.evaluation[row["protocol"]]
        assert row["average_accuracy"] == values["average_accuracy"]
        assert (row["seed"], row["rounds"], row["bytes_up"]) == (0, first.rounds, first.bytes_up)
        assert row["directory"] == str(runs / "0")
        assert "accuracy" not in row
        assert row["split"] == "test"


@pytest.mark.usefixtures("pandas")
def test_what_was_evaluated_on_held_out_samples_says_so(tiny, tmp_path: Path) -> None:
    config = tiny(evaluation={"split": "validation"}, logging__tensorboard=False)
    result = raysim.run(config, out=tmp_path / "run", local=True)
    rows: Any = raysim.frame([result, tmp_path])
    assert [row["split"] for row in rows] == ["validation"] * 2 * len(result.evaluation)


@pytest.mark.usefixtures("pandas")
def test_results_and_several_directories_are_taken(runs: Path) -> None:
    whole: Any = raysim.frame(runs)
    assert raysim.frame([runs / "0", raysim.load(runs / "1")]) == whole
    assert raysim.frame(raysim.load(runs / "0")) == whole[: len(whole) // 2]
    with pytest.raises(raysim.ConfigError, match="there is no such directory"):
        raysim.frame(runs / "gone")


def test_without_pandas_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(raysim.ConfigError, match=r"^the package pandas .*; pip install 'raysim-cfl\[pandas\]'$"):
        raysim.frame(tmp_path)


def test_with_pandas_itself(runs: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is an extra: the rows are tested with a stand-in for it")
    table = raysim.frame(runs)
    assert isinstance(table, pandas.DataFrame)
    assert table.groupby("methods")["average_accuracy"].mean().index.tolist() == ["FedAvg", "fedprox"]
