"""The runs of a folder: which are found, the settings in which they differ, and how little is sent of many."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysim.live import run_folder, watched
from raysim.live.feed import Seen
from raysim.live.run_folder import RunFolder
from raysim.live.settings import find_differing, flatten
from raysim.live.watched import Watched
from raysim.system.errors import ConfigError


def copy_runs(two_tasks: Path, folder: Path, seeds: range) -> None:
    """Runs that differ in their seeds, each as after round 4."""
    config = (two_tasks / "config.yaml").read_text()
    lines = (two_tasks / "rounds.jsonl").read_text().splitlines(keepends=True)
    for seed in seeds:
        run = folder / f"run-{seed}"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(config.replace("seed: 0\n", f"seed: {seed}\n", 1))
        shutil.copy(two_tasks / "clients.json", run)
        (run / "rounds.jsonl").write_text("".join(lines[:4]))


def receive(folder: Watched, seen: dict[str, Seen], overlaid: range = range(0)) -> dict[str, Any]:
    """All that a page lacks."""
    found, more = folder.message(None, seen, True, overlaid)
    while more:
        message, more = folder.message(None, seen, False, overlaid)
        found |= message
    return found


def size(message: object) -> int:
    return len(json.dumps(message, separators=(",", ":")))


def test_runs_are_found_at_any_depth_and_no_link_is_followed(two_tasks: Path, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    for place in ("x/seed-0/one", "two", ".hidden/three"):
        shutil.copytree(two_tasks, inside / place)
    shutil.copytree(two_tasks, inside / "two" / "checkpoint")  # within a run
    (inside / "configs").mkdir()
    (inside / "configs" / "config.yaml").write_text("name: no run\n")
    shutil.copytree(two_tasks, tmp_path / "outside")
    (inside / "link").symlink_to(tmp_path / "outside")
    assert [*RunFolder(inside).list_runs(0.0)] == ["two", "x/seed-0/one"]


def test_a_run_that_comes_later_is_added(two_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched, "SEARCHED_EVERY", 0)
    monkeypatch.setattr(run_folder, "SHARE", 0)
    copy_runs(two_tasks, tmp_path, range(1))
    shown = Watched(tmp_path)
    seen: dict[str, Seen] = {}
    receive(shown, seen)
    copy_runs(two_tasks, tmp_path, range(1, 2))
    assert [run["label"] for _, run in receive(shown, seen)["runs"]["items"]] == ["run-0", "run-1"]


def test_a_search_that_takes_long_is_followed_by_a_long_pause(
    two_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search of 2 seconds: none before 2 * 50 seconds later, and the next one at 103."""
    copy_runs(two_tasks, tmp_path, range(1))
    folder = RunFolder(tmp_path)
    times = iter([1.0, 3.0, 102.9, 103.0, 103.1])
    monkeypatch.setattr(run_folder, "monotonic", lambda: next(times))
    assert [len(folder.list_runs(5.0)) for _ in range(3)] == [1, 0, 1]


def test_a_folder_that_may_not_be_read_has_no_runs(
    two_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_runs(two_tasks, tmp_path, range(1))
    copy_runs(two_tasks, tmp_path / "closed", range(1))
    scan = os.scandir

    def refuse(folder: Path) -> Iterator[os.DirEntry[str]]:  # as the system does for all but root
        if folder.name == "closed":
            raise PermissionError
        return scan(folder)

    monkeypatch.setattr(run_folder.os, "scandir", refuse)
    assert [*RunFolder(tmp_path).list_runs(0.0)] == ["run-0"]


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"found no config\.yaml and no sweep\.yaml, and no run below it; allowed"):
        Watched(tmp_path)


@pytest.mark.parametrize(
    "inner", [[str(place) for place in range(30)], [f"{a}/{b}" for a in range(5) for b in range(5)]]
)
def test_a_large_folder_hides_no_run_beside_it(
    inner: list[str], two_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 20 folders, 16 are left for a data set before the run: it may have no more, wherever they are in it."""
    monkeypatch.setattr(run_folder, "MOST_FOLDERS", 20)
    monkeypatch.setattr(run_folder, "WIDE", 4)
    for name in inner:
        (tmp_path / "data" / name).mkdir(parents=True)
    shutil.copytree(two_tasks, tmp_path / "runs" / "seed-0" / "a")
    message = receive(Watched(tmp_path), {})
    assert [run["label"] for _, run in message["runs"]["items"]] == ["runs/seed-0/a"]
    assert message["folder"]["items"][0][1]["cut_after"] == 20


def test_a_search_that_stopped_early_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder and 20 in it are 21."""
    for place in range(20):
        (tmp_path / str(place)).mkdir()
    for most, words in ((20, "no run below it; looked at the first 20 folders"), (21, "no run below it; allowed")):
        monkeypatch.setattr(run_folder, "MOST_FOLDERS", most)
        with pytest.raises(ConfigError, match=words):
            RunFolder(tmp_path)


def test_settings_differ_by_value_or_by_being_there() -> None:
    runs = [
        flatten({"seed": 0, "training": {"optimizer": {"lr": 0.1}}, "methods": {"er": {"sample_size": None}}}),
        flatten({"seed": 0, "training": {"optimizer": {"lr": 0.2}}, "methods": {}}),
    ]
    assert runs[0] == {"seed": "0", "training.optimizer.lr": "0.1", "methods.er.sample_size": "null"}
    assert find_differing(runs) == ["training.optimizer.lr", "methods.er.sample_size", "methods"]
    assert find_differing(runs[:1]) == []


def test_long_values_and_deep_blocks_are_cut() -> None:
    deep: dict[str, object] = {}
    for _ in range(2000):
        deep = {"a": deep}
    flat = flatten({"long": "x" * 1000, "deep": deep["a"]})
    assert flat["long"] == "x" * 200
    assert list(flat)[1:] == ["deep" + ".a" * 7]
    assert all(len(key) <= 200 and len(value) <= 200 for key, value in flat.items())


def test_of_many_runs_only_what_changed_is_sent(two_tasks: Path, tmp_path: Path) -> None:
    """A new round of one run of 20 is one row; in the chart it is one point more, and no earlier one again."""
    copy_runs(two_tasks, tmp_path, range(20))
    shown = Watched(tmp_path)
    seen: dict[str, Seen] = {}
    first = receive(shown, seen, range(6))
    assert {f"over/{number}" for number in range(6)} == {name for name in first if name.startswith("over/")}
    assert size(first) < 20 * 500
    assert receive(shown, seen, range(6)) == {}
    lines = (two_tasks / "rounds.jsonl").read_text().splitlines(keepends=True)
    for number in (3, 11):  # one in the chart, and one that is not
        run = shown.runs[number].directory
        (run / "rounds.jsonl").write_text("".join(lines[:6]))
        new = receive(shown, seen, range(6))
        assert size(new) < 400
        assert new.keys() == ({"states", "over/3"} if number == 3 else {"states"})
        assert [item[0] for item in new["states"]["items"]] == [number]
        if number == 3:
            assert [(item[0], len(item)) for _, item in new["over/3"]["items"]] == [(6, 2)]  # round and means


def test_of_very_many_runs_the_running_ones_are_shown(
    two_tasks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four, of which the last one failed and the others were killed, two are shown: it, and the first."""
    monkeypatch.setattr(watched, "MOST_RUNS", 2)
    copy_runs(two_tasks, tmp_path, range(4))
    (tmp_path / "run-3" / "summary.json").write_text('{"status": "failed"}')
    message = receive(Watched(tmp_path), {})
    assert message["folder"]["items"][0][1]["of"] == 4
    assert [run["label"] for _, run in message["runs"]["items"]] == ["run-0", "run-3"]
