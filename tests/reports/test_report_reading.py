"""Which directories count as finished runs, and what is said of the others."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from made_runs import MATRIX, make_run

from raysim.config.yaml_text import to_yaml
from raysim.reports.plots.data import read_holdings
from raysim.reports.reading import find_runs
from raysim.reports.round_records import read_rounds
from raysim.system.errors import ConfigError
from raysim.system.version import VERSION


def test_runs_are_found_at_any_depth_and_each_once(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / path, {"seed": seed}) for seed, path in enumerate(["a", "b/c/d", "b/c/d/e"])]
    left_out: list[str] = []
    found = find_runs([tmp_path, tmp_path / "b", tmp_path / "b" / "c" / ".." / "c"], left_out)
    assert [run.directory for run in found] == runs
    assert [run.summary.seed for run in found] == [0, 1, 2]
    assert left_out == []
    assert found[1].command == f"raysim run {runs[1]}/config.yaml"


def test_a_command_quotes_its_path(tmp_path: Path) -> None:
    make_run(tmp_path / "my run")
    assert find_runs([tmp_path], [])[0].command == f"raysim run '{tmp_path}/my run/config.yaml'"


def matrix_of(change: object) -> dict[str, object]:
    return {"evaluation": {"domain_il": {**METRICS, **(change if isinstance(change, dict) else {})}}}


METRICS = {
    "accuracy": MATRIX,
    "average_accuracy": 0.65,
    "forgetting": 0.2,
    "final_forgetting": 0.2,
    "backward_transfer": -0.2,
    "forward_transfer": 0.0,
}
BROKEN = {
    "failed": ({"status": "failed"}, "found the status failed, counted: done"),
    "diverged": ({"status": "failed", "problem": "it diverged"}, "counted: done (FedAvg, seed 0): it diverged"),
    "interrupted": ({"status": "interrupted"}, "found the status interrupted"),
    "no protocol": ({"evaluation": {}}, "evaluation: found no protocol"),
    "no matrix": (matrix_of({"accuracy": None}), "domain_il.accuracy: input should be a valid array"),
    "a matrix of another size": (matrix_of({"accuracy": [[1.0]]}), "found no matrix of 2 x 2 tasks"),
    "a ragged matrix": (matrix_of({"accuracy": [[1.0], [1.0, 1.0]]}), "found no matrix of 2 x 2 tasks"),
    "a matrix with words": (matrix_of({"accuracy": [["a", 0], [0, 0]]}), "input should be a valid number"),
    "a metric that is not finite": (matrix_of({"forgetting": float("nan")}), "forgetting: input should be a finite"),
    "a seed that is none": ({"seed": "first"}, "seed: input should be a valid integer"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_run_is_left_out_with_a_line(case: str, tmp_path: Path) -> None:
    summary, fragment = BROKEN[case]
    make_run(tmp_path / "bad", **summary)
    make_run(tmp_path / "good")
    left_out: list[str] = []
    assert [run.directory.name for run in find_runs([tmp_path], left_out)] == ["good"]
    (line,) = left_out
    assert line.startswith(str(tmp_path / "bad"))
    assert fragment in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("summary.json", b"{", "allowed: a summary.json that raysim wrote"),
        ("summary.json", b"[1]", "summary.json: input should be an object; allowed: a summary.json that raysim wrote"),
        ("summary.json", b"\xff\xfe", "summary.json: invalid JSON: "),
        ("summary.json", b"[" * 100_000, "summary.json: invalid JSON: "),
        ("summary.json", json.dumps({"title": "of another tool"}).encode(), "summary.json: name: field required"),
        ("config.yaml", b"name: [", "config.yaml:1: broken YAML"),
        ("config.yaml", b"", "the file is empty"),
    ],
)
def test_a_foreign_file_is_left_out_with_a_line(name: str, content: bytes, fragment: str, tmp_path: Path) -> None:
    make_run(tmp_path / "good")
    (make_run(tmp_path / "bad") / name).write_bytes(content)
    left_out: list[str] = []
    find_runs([tmp_path], left_out)
    (line,) = left_out
    assert str(tmp_path / "bad" / name) in line
    assert fragment in line


def test_a_summary_of_another_version_that_cannot_be_read_names_the_version(tmp_path: Path) -> None:
    bad = make_run(tmp_path / "bad")
    summary = json.loads((bad / "summary.json").read_text())
    changed = {**summary, "rounds": {}, "versions": {**summary["versions"], "raysim": "2.0.0"}}
    (bad / "summary.json").write_text(json.dumps(changed))
    make_run(tmp_path / "good")
    left_out: list[str] = []
    find_runs([tmp_path], left_out)
    (line,) = left_out
    assert line.endswith(f"; raysim 2.0.0 wrote this run, and this is raysim {VERSION}: install that version")


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_a_file_without_an_end_is_left_out_with_a_line(kind: str, tmp_path: Path) -> None:
    make_run(tmp_path / "good")
    bad = make_run(tmp_path / "bad")
    summary, rounds, holdings = paths = [bad / name for name in ("summary.json", "rounds.jsonl", "clients.json")]
    for path in paths:
        path.unlink(missing_ok=True)
        os.mkfifo(path) if kind == "a pipe" else path.symlink_to("/dev/zero")
    said = "this is no regular file, but a pipe or a device"
    left_out: list[str] = []
    assert [run.directory.name for run in find_runs([tmp_path], left_out)] == ["good"]
    assert left_out == [f"{summary}: {said}; allowed: the directory of a run that ended"]
    for read, path in ((read_rounds, rounds), (read_holdings, holdings)):
        with pytest.raises(ConfigError, match=rf"^{path}: {said}$"):
            read(bad)


def test_keys_of_other_versions_may_come_and_go(tmp_path: Path) -> None:
    path = make_run(tmp_path / "a") / "summary.json"
    summary = json.loads(path.read_text())
    for key in ("steps", "participation", "virtual_time", "actors"):  # of later versions
        summary.pop(key, None)
    path.write_text(json.dumps({**summary, "of_tomorrow": [1]}))
    assert [run.summary.name for run in find_runs([tmp_path], [])] == ["made"]


def test_a_run_under_way_and_a_missing_config_are_left_out(tmp_path: Path) -> None:
    make_run(tmp_path / "good")
    (make_run(tmp_path / "bare") / "config.yaml").unlink()
    begun = make_run(tmp_path / "begun")
    (begun / "summary.json").unlink()
    left_out: list[str] = []
    find_runs([tmp_path], left_out)
    resume = "with --trust if it has custom components: raysim run --resume --out"
    assert left_out == [
        f"{tmp_path}/bare/config.yaml: there is no such file",
        f"{begun}: no summary.json: the run was killed; resume it, {resume} {begun}",
    ]


def test_a_directory_that_cannot_be_read_below_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "good")
    (tmp_path / "locked").mkdir()
    lock(tmp_path / "locked", monkeypatch)
    left_out: list[str] = []
    find_runs([tmp_path], left_out)
    assert left_out == [f"{tmp_path}/locked: the directory cannot be read: Permission denied"]


def lock(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refusing(path: str | Path) -> Any:
        if Path(path) == directory:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)


def test_what_is_no_directory_with_runs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    make_run(tmp_path / "failed" / "run", status="failed")
    (tmp_path / "locked").mkdir()
    lock(tmp_path / "locked", monkeypatch)
    for name, fragment in [
        ("gone", "there is no such directory"),
        ("file", "this is a file"),
        ("locked", "the directory cannot be read: Permission denied"),
        ("empty", "found no finished run, so nothing was written; allowed"),
        ("failed", "found no finished run (1 left out; "),
    ]:
        with pytest.raises(ConfigError) as refused:
            find_runs([tmp_path / name], [])
        assert str(refused.value).startswith(str(tmp_path / name))
        assert fragment in str(refused.value)


def test_a_sweep_s_runs_that_have_no_directory_are_named(tmp_path: Path) -> None:
    """They failed before they began, or are yet to come."""
    make_run(tmp_path / "FL/seed-0")
    runs = {f"FL/seed-{seed}": {"methods": "FL", "seed": f"{seed}"} for seed in range(6)}
    (tmp_path / "sweep.yaml").write_text(to_yaml({"name": "made", "runs": runs}))
    left_out: list[str] = []
    assert len(find_runs([tmp_path], left_out)) == 1
    words = "found no directory of FL/seed-1, FL/seed-2, FL/seed-3 and 2 more, counted: runs that began (6 are listed)"
    assert left_out == [f"{tmp_path}/sweep.yaml: {words}"]


def test_a_sweep_yaml_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """A sweep's config may be called so, too."""
    make_run(tmp_path / "FL")
    left_out: list[str] = []
    (tmp_path / "sweep.yaml").write_text("name: made\nruns: {FL: {seed: 0}}\n")
    find_runs([tmp_path], left_out)
    words = "runs.FL.seed: input should be a valid string, allowed: a file that a sweep wrote; runs below have no names"
    assert left_out == [f"{tmp_path}/sweep.yaml: {words}, and trials count as runs"]
    (tmp_path / "sweep.yaml").write_text("name: made\nbase: quickstart\ngrid: {seed: [0, 1]}\n")
    left_out.clear()
    find_runs([tmp_path], left_out)
    assert left_out == []
