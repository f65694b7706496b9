"""The run directories of tests/kept, which an older raysim wrote, are read, resumed and run again.

Cohorts, bytes and virtual times depend on no kind of CPU and are compared exactly. Losses and parameters are close on
any machine. They have the same bits on a machine where the rounds before the checkpoint have the same bits.
"""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from pack_results import pack, unpack

import raysim
from raysim.cli import main
from raysim.config.yaml_text import read_yaml
from raysim.live.following import FollowedRun
from raysim.reports.packed import read_packed
from raysim.system.version import VERSION

KEPT = Path(__file__).parents[1] / "kept"
COUNTED = ("methods", "clients", "tasks", "rounds", "updates", "test_samples", "bytes_up", "bytes_down", "steps")
IN_ROUNDS = ("round", "tasks", "cohort", "bytes_up", "bytes_down", "staleness", "virtual_time", "steps", "so_far")
CLOSE = {"rtol": 1e-3, "atol": 1e-5}


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(KEPT / name, folder / name))


def rounds(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def packed_lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in gzip.decompress(file.read_bytes()).decode().splitlines()]


def say_written_by(version: str, run: Path) -> None:
    for file in (*run.glob("checkpoints/*/manifest.json"), *run.glob("summary.json")):
        file.write_text(re.sub(r'"raysim": "[^"]*"', f'"raysim": "{version}"', file.read_text()))


def check_same(run: Path, other: Path) -> None:
    """Check that two finished runs differ at most in what depends on the kind of CPU."""
    one, two = raysim.load(run), raysim.load(other)
    for key in (*COUNTED, "participation"):
        assert getattr(one, key) == getattr(two, key), key
    assert one.virtual_time == pytest.approx(two.virtual_time)
    for ours, theirs in zip(rounds(run), rounds(other), strict=True):
        assert [ours[key] for key in IN_ROUNDS] == [theirs[key] for key in IN_ROUNDS]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-3)
    models = [torch.load(path / "model.pt", weights_only=True) for path in (run, other)]
    torch.testing.assert_close(*models, **CLOSE)


def test_a_finished_run_is_loaded() -> None:
    """After task 2, class-IL is 0 and 55% of 20 samples each: 27.5% on average. 75% of task 1 are forgotten."""
    result = raysim.load(KEPT / "finished")
    assert (result.status, result.methods, result.rounds, result.problem) == ("done", ["der"], 8, None)
    assert result.matrix.tolist() == [[0.75, 0.0], [0.0, 0.55]]
    assert (result.accuracy(), result.forgetting()) == (pytest.approx(0.275), pytest.approx(0.75))
    assert result.accuracy("task_il") == pytest.approx((0.75 + 0.55) / 2)
    assert result.participation == [4, 7, 5, 5]
    assert result.updates == 21
    # 59 parameters of 4 bytes, 6 x 5 + 5 and 5 x 4 + 4: four clients receive them in 8 rounds, and 21 updates are sent
    assert (result.bytes_up, result.bytes_down) == (21 * 59 * 4, 8 * 4 * 59 * 4)
    assert result.versions["git"] == "c8f66500034a2d3057c704914b24fb3fe12c766f"


def test_an_asynchronous_run_is_loaded_with_its_clients() -> None:
    result = raysim.load(KEPT / "asynchronous")
    assert result.participation == [8, 4, 1, 3]
    assert result.per_client is not None
    clients = result.per_client["class_il"]
    assert clients["accuracy"] == pytest.approx([0.24545, 0.50870, 0.6075, 0.20455], abs=1e-5)
    assert clients["mean"] == pytest.approx(sum(clients["accuracy"]) / 4)
    assert clients["worst"] == min(clients["accuracy"])


def test_failed_and_stopped_runs_are_loaded_and_a_killed_one_says_how_to_resume() -> None:
    failed = raysim.load(KEPT / "failed")
    assert (failed.status, failed.rounds, failed.model_sha256) == ("failed", 2, None)
    assert failed.problem is not None
    assert failed.problem.startswith("client 0 diverged in round 3 (FedAvg)")
    assert (raysim.load(KEPT / "stopped").status, raysim.load(KEPT / "stopped").rounds) == ("interrupted", 5)
    with pytest.raises(raysim.ConfigError, match=r"killed; resume it"):
        raysim.load(KEPT / "killed")


@pytest.mark.parametrize(("name", "recomputed"), [("stopped", 0), ("killed", 1)])
def test_an_unfinished_run_is_resumed(
    name: str, recomputed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five rounds were run, of which the killed run's checkpoint has four. Only 0.1.0 resumes its checkpoints."""
    monkeypatch.setattr("raysim.records.recorder.VERSION", "0.1.0")
    run, whole = copied(name, tmp_path), tmp_path / "whole"
    before = [line["loss"] for line in rounds(run)]
    result = raysim.run(None, out=run, local=True, resume=True)
    undisturbed = raysim.run(KEPT / name / "config.yaml", out=whole, local=True)
    assert (result.status, result.rounds, result.rounds_recomputed) == ("done", 8, recomputed)
    assert [line["loss"] for line in rounds(run)][: 5 - recomputed] == before[: 5 - recomputed]
    check_same(run, whole)
    if [line["loss"] for line in rounds(whole)][
        :5
    ] == before:  # the kind of CPU, and the torch, that they were run with
        assert result.model_sha256 == undisturbed.model_sha256


@pytest.mark.parametrize("name", ["finished", "asynchronous"])
def test_a_kept_config_is_run_again(name: str, tmp_path: Path) -> None:
    """With the command; one config has evaluation.every: task, the other every: null and every_rounds."""
    values = read_yaml(KEPT / name / "config.yaml").values["evaluation"]
    assert isinstance(values, dict)
    assert (values["every"], values["every_rounds"]) == {"finished": ("task", None), "asynchronous": (None, 2)}[name]
    out = tmp_path / "run"
    assert main(["run", str(KEPT / name / "config.yaml"), "--local", "--quiet", "--out", str(out)]) == 0
    check_same(out, KEPT / name)
    assert (out / "clients.json").read_bytes() == (KEPT / name / "clients.json").read_bytes()
    tested = [[line["round"] for line in rounds(run) if "evaluation" in line] for run in (out, KEPT / name)]
    assert tested == [[4, 8] if name == "finished" else [2, 4, 6, 8]] * 2


def test_a_finished_run_is_evaluated() -> None:
    """On the test samples of its own tasks, as after its last round: 0 and 55%."""
    evaluated = raysim.evaluate(KEPT / "finished")
    assert evaluated.evaluation["class_il"]["accuracy"] == pytest.approx([0.0, 0.55])


def test_a_checkpoint_of_another_version_is_refused_with_that_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one of another format, even if its other contents cannot be read."""
    run = copied("stopped", tmp_path)
    monkeypatch.setattr("raysim.records.recorder.VERSION", "1.2.0")
    words = r"is of another raysim \(0\.1\.0\), allowed: 1\.2\.0; resume with raysim 0\.1\.0, which wrote it"
    with pytest.raises(raysim.RunError, match=words):
        raysim.run(None, out=run, local=True, resume=True)
    manifest = run / "checkpoints" / "000005" / "manifest.json"
    manifest.write_text(json.dumps({"format": 3, "sha256": "", "raysim": "0.0.9"}))
    with pytest.raises(raysim.RunError, match=r"format 3, allowed: 4; resume with raysim 0\.0\.9, which wrote it"):
        raysim.run(None, out=run, local=True, resume=True)


@pytest.mark.parametrize("name", ["finished", "stopped"])
def test_a_config_of_a_later_version_is_refused_with_that_version(name: str, tmp_path: Path) -> None:
    """The version is that of the summary, or without one that of the checkpoint. With this version, none is named."""
    run = copied(name, tmp_path)
    with (run / "config.yaml").open("a") as file:
        file.write("a_later_key: 1\n")
    (run / "summary.json").unlink() if name == "stopped" else None
    say_written_by(VERSION, run)
    with pytest.raises(raysim.ConfigError, match=r"a_later_key") as error:
        raysim.evaluate(run) if name == "finished" else raysim.run(None, out=run, local=True, resume=True)
    assert "wrote this run" not in str(error.value)
    say_written_by("1.7.0", run)
    refused = rf"a_later_key.*; raysim 1\.7\.0 wrote this run, and this is raysim {re.escape(VERSION)}: install"
    with pytest.raises(raysim.ConfigError, match=refused):
        raysim.evaluate(run) if name == "finished" else raysim.run(None, out=run, local=True, resume=True)
    with pytest.raises(raysim.ConfigError, match=refused):  # the config alone
        raysim.run(run / "config.yaml", out=tmp_path / "again", local=True)
    with pytest.raises(raysim.ConfigError, match=r"^my_key=1: unknown key 'my_key' in raysim \S+; allowed: [^;]*$"):
        raysim.run(KEPT / "finished" / "config.yaml", ["my_key=1"], out=tmp_path / "again", local=True)


def test_a_finished_run_stays_finished(tmp_path: Path) -> None:
    """Also one whose config is given again: it is the same config."""
    run = copied("finished", tmp_path)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for config in (None, KEPT / "finished" / "config.yaml"):
        assert raysim.run(config, out=run, local=True, resume=True).rounds == 8
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "state", "rows", "rounds"),
    [
        ("finished", "done", [[0.75, 0.0], [0.0, 0.55]], 8),
        ("failed", "failed", [], 2),
        ("stopped", "interrupted", [[0.7, 0.0]], 5),
        ("killed", "killed", [[0.5, 0.0]], 5),
    ],
)
def test_the_live_page_reads_them(name: str, state: str, rows: list[list[float]], rounds: int, tmp_path: Path) -> None:
    """The accuracy matrix has a row for each finished task, which round 4 of the killed run ends."""
    run = FollowedRun(copied(name, tmp_path), name)
    run.refresh()
    while run.more:
        run.refresh()
    assert run.state == state
    assert [row[1]["class_il"] for row in run.feeds["rows"].items] == rows
    assert len(run.feeds["rounds"].items) == rounds


def test_a_report_joins_kept_runs_with_new_ones(tmp_path: Path) -> None:
    """A new run of a kept config is a further seed of its setting.

    Average accuracies of the sweep are .55 twice for FedAvg, and .75 and .65 for ER: a mean of 70% with a standard
    deviation of 10 / sqrt(2) points.
    """
    fresh = raysim.run(KEPT / "finished" / "config.yaml", {"seed": 1}, out=tmp_path / "fresh", local=True)
    names = ("finished", "sweep.jsonl.gz", "failed", "killed", "stopped")
    report = raysim.report([*(KEPT / name for name in names), tmp_path / "fresh"], tmp_path / "report")
    lines = (tmp_path / "report" / "report.md").read_text().splitlines()
    accuracy = fresh.accuracy()
    assert accuracy is not None
    mean = (27.5 + 100 * accuracy) / 2
    assert sum(line.startswith(f"| DER | 2 | {mean:.2f} ± ") for line in lines) == 2  # class-IL twice
    assert sum(line.startswith("| FedAvg | 2 | <u>55.00 ± 0.00</u> | ") for line in lines) == 2
    assert sum(line.startswith("| ER | 2 | **70.00 ± 7.07** | ") for line in lines) == 2
    left_out = "\n".join(report.left_out)
    for words in ("failed: found the status failed", "killed: no summary.json", "stopped: found the status interrupt"):
        assert f"{KEPT / words}" in left_out


def test_the_packed_sweep_is_unpacked_and_packed_to_the_same_lines(tmp_path: Path) -> None:
    """An unpacked run has no rounds."""
    file = Path(shutil.copy(KEPT / "sweep.jsonl.gz", tmp_path))
    kept = packed_lines(file)
    unpack(file)
    again = packed_lines(pack(tmp_path / "sweep"))
    assert again[0] == kept[0]
    assert again[1:] == [{key: value for key, value in run.items() if key != "rounds"} for run in kept[1:]]
    assert [run["path"] for run in kept[1:]] == ["ER/seed-0", "ER/seed-1", "FedAvg/seed-0", "FedAvg/seed-1"]


def test_kept_runs_are_packed(tmp_path: Path) -> None:
    for name in ("finished", "asynchronous", "failed", "stopped"):
        copied(name, tmp_path / "runs")
    runs = {run.path: run for run in read_packed(pack(tmp_path / "runs")).runs}
    assert set(runs) == {"finished", "asynchronous", "failed", "stopped"}
    for name, run in runs.items():
        assert run.summary.completed().evaluation == raysim.load(KEPT / name).evaluation
        assert run.config == read_yaml(KEPT / name / "config.yaml").values
    tested = runs["asynchronous"].rounds
    assert tested is not None
    assert [line.round for line in tested] == [2, 4, 6, 8]
