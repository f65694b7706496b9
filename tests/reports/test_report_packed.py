"""Packed results are read as the directories that they were packed from; a broken file is one line of error."""

import gzip
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from made_runs import make_run
from matplotlib.figure import Figure
from pack_results import evaluated_rounds, pack, unpack

from raysim.cli import main
from raysim.config.yaml_text import to_yaml
from raysim.reports.packed import read_packed
from raysim.reports.reading import FinishedRun, find_runs
from raysim.reports.write import write_report
from raysim.system.errors import ConfigError

ROUNDS = [
    {"round": 1, "bytes_up": 1, "seconds": 0.25},
    {"round": 2, "bytes_up": 2, "seconds": 0.5, "evaluation": {"domain_il": [0.8, 0.1]}},
    {"round": 3, "bytes_up": 4, "seconds": 1.0, "tasks": [2]},
    {"round": 4, "bytes_up": 8, "seconds": 2.0, "tasks": [2], "evaluation": {"domain_il": [0.1 + 0.2, 1e-05]}},
]


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A sweep of three runs, one of which failed, and a run that it does not list."""
    directory = tmp_path / "sweep"
    for seed in (0, 1):
        overrides = {"seed": seed, "training.optimizer.lr": 1e-05}
        make_run(directory / "FedAvg" / f"seed-{seed}", overrides, rounds=ROUNDS, seconds=0.1 + 0.2)
    make_run(directory / "FedAvg" / "seed-2", {"seed": 2}, status="failed")
    make_run(directory / "other")
    names = {f"FedAvg/seed-{seed}": {"methods": "FedAvg", "seed": str(seed)} for seed in (1, 0, 2)}
    (directory / "sweep.yaml").write_text(to_yaml({"name": "a sweep", "runs": names}))
    return directory


def facts(run: FinishedRun) -> tuple[object, ...]:
    return run.directory, run.summary, run.config, run.names, run.sweep, run.place, run.config_text, run.command


def test_a_packed_sweep_is_read_as_its_directory(sweep: Path) -> None:
    left_out: list[str] = []
    loose = [facts(run) for run in find_runs([sweep], left_out)]
    file = pack(sweep)
    shutil.rmtree(sweep)
    for place in (sweep, file, sweep.parent):
        again: list[str] = []
        assert [facts(run) for run in find_runs([place], again)] == loose
        assert again == left_out
    assert [run.directory.name for run in find_runs([sweep / "FedAvg"], [])] == ["seed-0", "seed-1"]
    assert not sweep.exists()


def test_a_report_of_packed_runs_has_the_same_figures(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **how: Path(file).write_text("<svg></svg>"))
    for run in sweep.rglob("rounds.jsonl"):
        run.unlink()
    before = write_report(sweep, sweep.parent / "loose").out
    file = pack(sweep)
    shutil.rmtree(sweep)
    after = write_report(file, sweep.parent / "packed").out
    for name in ("report.csv", "means.csv", "report.tex"):
        assert (after / name).read_text() == (before / name).read_text()
    command = "python tools/pack_results.py --unpack"
    assert (after / "report.html").read_text() == (before / "report.html").read_text()
    for name in ("report.md", "settings/made.html"):
        lines, packed = ((out / name).read_text().splitlines() for out in (before, after))
        (added,) = {line for line in packed if line not in lines}
        assert command in added
    assert write_report(file).out == sweep


def test_the_same_runs_make_the_same_bytes_and_come_back(sweep: Path) -> None:
    file = pack(sweep)
    first = file.read_bytes()
    texts = {
        path.relative_to(sweep): path.read_text() for path in sweep.rglob("*") if path.suffix in (".yaml", ".json")
    }
    assert pack(sweep).read_bytes() == first
    shutil.rmtree(sweep)
    assert unpack(file) == sweep
    assert {path.relative_to(sweep): path.read_text() for path in sweep.rglob("*") if path.is_file()} == texts


def test_a_packed_run_has_the_rounds_that_were_evaluated(sweep: Path) -> None:
    file = pack(sweep)
    shutil.rmtree(sweep)
    rounds = find_runs([file], [])[0].rounds()
    assert [(line.round, line.bytes_up, line.seconds) for line in rounds] == [(2, 3, 0.75), (4, 12, 3.0)]
    assert rounds[1].evaluation == {"domain_il": [0.1 + 0.2, 1e-05]}
    assert evaluated_rounds([]) == []


def test_a_run_without_rounds_has_none_when_packed(sweep: Path) -> None:
    (sweep / "other" / "rounds.jsonl").unlink()
    file = pack(sweep)
    shutil.rmtree(sweep)
    (run,) = (run for run in find_runs([file], []) if run.directory.name == "other")
    with pytest.raises(ConfigError, match=r"other/rounds\.jsonl: No such file or directory"):
        run.rounds()


def test_a_run_that_is_in_both_is_read_from_its_directory(sweep: Path) -> None:
    file = pack(sweep)
    shutil.rmtree(sweep)
    loose = make_run(sweep / "FedAvg" / "seed-0", name="run again")
    for place in (sweep, file, sweep.parent):
        runs = find_runs([place], [])
        assert len(runs) == 3
        assert [run.summary.name for run in runs if run.directory == loose] == ["run again"]


def test_a_packed_directory_of_one_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    before = facts(find_runs([run], [])[0])
    file = pack(run)
    shutil.rmtree(run)
    (tmp_path / "run").mkdir()  # a report of an earlier day may lie there
    assert facts(find_runs([file], [])[0]) == before


def test_a_directory_beside_a_file_of_that_name_is_read_as_before(sweep: Path) -> None:
    """The file may be of another tool, such as a dataset; a pipe of such a name is not waited for."""
    (sweep.parent / "sweep.jsonl.gz").write_bytes(gzip.compress(b'{"text": "a"}\n'))
    os.mkfifo(sweep / "pipe.jsonl.gz")
    left_out: list[str] = []
    assert len(find_runs([sweep], left_out)) == 3
    assert "sweep.jsonl.gz:1: format: field required" in left_out[0]


def test_rounds_of_a_run_that_began_again_are_not_those_of_the_packed_one(sweep: Path) -> None:
    for path in sweep.rglob("rounds.jsonl"):
        path.unlink()
    file = pack(sweep)
    shutil.rmtree(sweep)
    (make_run(sweep / "other", rounds=ROUNDS) / "summary.json").unlink()
    (run,) = (run for run in find_runs([file], []) if run.directory.name == "other")
    with pytest.raises(ConfigError):
        run.rounds()


def lines_changed(change: Callable[[list[bytes]], None]) -> Callable[[bytes], bytes]:
    def changed(packed: bytes) -> bytes:
        lines = gzip.decompress(packed).splitlines(keepends=True)
        change(lines)
        return gzip.compress(b"".join(lines))

    return changed


def key_set(line: int, **values: object) -> Callable[[bytes], bytes]:
    def change(lines: list[bytes]) -> None:
        lines[line] = json.dumps(json.loads(lines[line]) | values).encode() + b"\n"

    return lines_changed(change)


def key_dropped(line: int, key: str) -> Callable[[bytes], bytes]:
    def change(lines: list[bytes]) -> None:
        left = {name: value for name, value in json.loads(lines[line]).items() if name != key}
        lines[line] = json.dumps(left).encode() + b"\n"

    return lines_changed(change)


BROKEN: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "truncated": (lambda packed: packed[: len(packed) // 2], "the file is truncated"),
    "damaged": (lambda packed: packed[:40] + b"\0" * 20 + packed[60:], "expected packed results"),
    "not compressed": (gzip.decompress, "Not a gzipped file"),
    "no bytes": (lambda packed: b"", "the file is empty"),
    "nothing in it": (lambda packed: gzip.compress(b""), "the file is empty"),
    "no JSON": (lines_changed(lambda lines: lines.__setitem__(2, b"{\n")), ":3: invalid JSON: "),
    "no UTF-8": (lines_changed(lambda lines: lines.__setitem__(2, b'{"path": "\xff"}\n')), ":3: "),
    "deep": (lines_changed(lambda lines: lines.__setitem__(1, b"[" * 100_000)), ":2: invalid JSON: "),
    "of another tool": (lambda packed: gzip.compress(b'{"text": "a", "label": 1}\n'), ":1: format: field required"),
    "a later format": (key_set(0, format=2), "got format 2, expected at most 1: update raysim"),
    "an unknown key": (key_set(1, more=1), ":2: more: extra inputs are not permitted"),
    "a missing key": (key_dropped(3, "summary"), ":4: summary: field required"),
    "a summary of nothing": (key_set(1, summary={}), ":2: summary.name: field required"),
    "a config that is a list": (key_set(1, config=[]), ":2: config: input should be"),
    "a path above": (key_set(1, path="../../x"), ":2: path: value error, got '../../x'"),
    "an absolute path": (key_set(1, path="/x"), ":2: path: value error, got '/x'"),
    "a line of gigabytes": (lambda packed: gzip.compress(b" " * 10_000_001), "got a line of more than 10000000 bytes"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_one_line_of_error(case: str, sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, fragment = BROKEN[case]
    file = pack(sweep)
    shutil.rmtree(sweep)
    make_run(sweep.parent / "good")
    file.write_bytes(change(file.read_bytes()))
    assert main(["report", str(sweep), "--out", str(sweep.parent / "report")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(file) in line
    assert fragment in line
    with pytest.raises(ConfigError):
        read_packed(file)
    left_out: list[str] = []
    assert [run.directory.name for run in find_runs([sweep.parent], left_out)] == ["good"]
    (line,) = left_out
    assert fragment in line


def test_a_folder_of_several_sweeps_is_not_packed(sweep: Path) -> None:
    """Their labels would be lost, and their trials on validation samples would become results."""
    with pytest.raises(SystemExit, match=f"^{sweep.parent}: found {sweep}/sweep.yaml, allowed: the directory of one "):
        pack(sweep.parent)
