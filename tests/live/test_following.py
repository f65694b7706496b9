"""A run is followed by its files: what is read equals summary.json, and every way in which the files may change."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from followed import TWO_TASKS, catch_up, drawn, follow, head

import raysim
from raysim.callbacks import Callback, RunView
from raysim.engine.events import RoundDone
from raysim.live import growing_file, lock_watch, run_files
from raysim.live.following import FollowedRun
from raysim.records import run_directory
from raysim.sweeps import cells
from raysim.system.files import lock_directory

Copy = Callable[..., Path]


@pytest.mark.parametrize("name", ["two_tasks", "apart"])
@pytest.mark.parametrize("ended", [True, False])
def test_what_is_read_equals_the_summary(name: str, ended: bool, copied: Copy, request: pytest.FixtureRequest) -> None:
    """To the last digit, whether the summary is there or not."""
    directory = request.getfixturevalue(name)
    summary = raysim.load(directory)
    run = follow(directory if ended else copied(directory))
    assert run.state == ("done" if ended else "killed")
    for protocol, metrics in summary.evaluation.items():
        assert [row[1][protocol] for row in run.feeds["rows"].items] == metrics["accuracy"]
        assert run.feeds["evaluations"].items[-1][3][protocol] == [metrics["average_accuracy"], metrics["forgetting"]]
    assert (run.feeds["evaluations"].items[-1][3]["class_il"][1] is None) == (name == "apart")
    last = run.feeds["rounds"].items[-1]
    assert (last[0], last[4], last[5], last[7]) == (
        summary.rounds,
        summary.bytes_up,
        summary.bytes_down,
        summary.updates,
    )
    assert last[8] == pytest.approx(summary.virtual_time)
    assert (head(run)["rounds"], head(run)["tasks"], head(run)["clients"]) == (summary.rounds, 2, 3)


def test_evaluations_between_two_rows_are_the_next_row_so_far(two_tasks: Path) -> None:
    """Evaluated after rounds 3, 4, 6 and 8; 4 and 8 are rows. Forgetting is of task 1 since round 4."""
    run = follow(two_tasks)
    items = run.feeds["evaluations"].items
    assert [item[0] for item in items] == [3, 4, 6, 8]
    assert [row[0] for row in run.feeds["rows"].items] == [4, 8]
    rows = [json.loads(line) for line in (two_tasks / "rounds.jsonl").read_text().splitlines()]
    at = {row["round"]: row["evaluation"]["task_il"] for row in rows if "evaluation" in row}
    assert [item[3]["task_il"] for item in items] == [
        [at[3][0], None],
        [at[4][0], None],
        [(at[6][0] + at[6][1]) / 2, at[4][0] - at[6][0]],
        [(at[8][0] + at[8][1]) / 2, at[4][0] - at[8][0]],
    ]
    held = [[sum(task) for task in row["memory"]] for row in rows if "memory" in row]
    assert [item[4] for item in items] == held
    assert held[-1][1] > 0


def test_jittered_boundaries_leave_rows_and_forgetting(tmp_path: Path) -> None:
    """Clients receive the same tasks at about the same time, so task 1 is rated after the second task, too."""
    jittered = {"scenario.boundaries": {"jittered": {"rounds": 1}}}
    summary = raysim.run(TWO_TASKS, jittered, out=tmp_path / "run", local=True)
    forgotten = summary.evaluation["class_il"]["forgetting"]
    run = follow(tmp_path / "run")
    assert forgotten is not None
    assert run.feeds["evaluations"].items[-1][3]["class_il"][1] == forgotten
    assert [row[0] for row in run.feeds["rows"].items] == [4, 8]


def test_trips_have_the_task_that_the_client_is_at(apart: Path) -> None:
    """By clients.json, in the round in which it was sent the model; discarded updates are told from used ones."""
    changes = json.loads((apart / "clients.json").read_text())["at_tasks"]
    expected = []
    for line in (apart / "rounds.jsonl").read_text().splitlines():
        row = json.loads(line)
        for client, sent, back, fate in row["dispatches"]:
            task = [task for round, task in changes[client] if round <= row["round"]][-1]
            expected.append([client, round(sent, 6), round(back, 6), task, fate])
    run = follow(apart)
    assert run.feeds["trips"].items == expected
    assert {trip[3] for trip in expected} == {1, 2}
    assert {trip[4] for trip in expected} >= {"used", "discarded"}


def test_a_line_counts_once_it_is_whole(two_tasks: Path, copied: Copy) -> None:
    whole = (two_tasks / "rounds.jsonl").read_bytes()
    directory = copied(two_tasks, 0)
    run = follow(directory)
    assert head(run)["round"] == 0
    with (directory / "rounds.jsonl").open("ab", buffering=0) as file:
        for begin in range(0, len(whole), 97):
            file.write(whole[begin : begin + 97])
            catch_up(run)
            assert head(run)["round"] == whole[: begin + 97].count(b"\n")
    assert drawn(run) == drawn(follow(two_tasks))


def test_a_run_that_is_resumed_is_read_anew(two_tasks: Path, copied: Copy) -> None:
    """It is cut back to round 5, and has written more than before when it is read again, with other seconds."""
    directory = copied(two_tasks, 7)
    run = follow(directory)
    lines = (two_tasks / "rounds.jsonl").read_text().splitlines(keepends=True)
    again = [json.dumps({**json.loads(line), "seconds": 1000.0}) + "\n" for line in lines[5:]]
    os.truncate(directory / "rounds.jsonl", len("".join(lines[:5])))
    with (directory / "rounds.jsonl").open("a") as file:
        file.write("".join(again))
    catch_up(run)
    assert drawn(run) == drawn(follow(directory))
    assert run.feeds["rounds"].items[-1][6] >= 3000
    os.truncate(directory / "rounds.jsonl", 0)
    catch_up(run)
    assert head(run)["round"] == 0
    (directory / "new").write_text("".join(lines[:2]))
    (directory / "new").rename(directory / "rounds.jsonl")
    catch_up(run)
    assert head(run)["round"] == 2


def test_a_large_file_is_read_in_pieces(two_tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_file, "PIECE", 1000)
    run = FollowedRun(two_tasks, "two")
    read = []
    while not read or run.more:
        run.refresh()
        read.append(head(run)["read"])
    assert read == sorted(read)
    assert read[0] < 0.5
    assert drawn(run)["rows"] == drawn(follow(two_tasks))["rows"]


def test_a_file_that_is_deleted_while_it_is_read_in_pieces(
    two_tasks: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no more to read: the stream waits before it looks again."""
    monkeypatch.setattr(growing_file, "PIECE", 1000)
    directory = copied(two_tasks)
    run = FollowedRun(directory, "two")
    run.refresh()
    assert run.more
    shutil.rmtree(directory)
    run.refresh()
    assert (run.state, run.more) == ("deleted", False)


def test_states(two_tasks: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absent, begun, at work, without a process, ended, deleted; the rounds that were read stay on the page."""
    monkeypatch.setattr(lock_watch, "SECONDS_BETWEEN_LOOKS", 0.0)
    directory = two_tasks.parent / "absent"
    assert follow(directory).state == "waiting"
    directory = copied(two_tasks, 0)
    run = follow(directory)
    assert (run.state, head(run)["round"]) == ("killed", 0)
    with lock_directory(directory, "run"):
        run.refresh()
        assert run.state == "running"
    run.refresh()
    assert run.state == "killed"
    copied(two_tasks)
    for status in ("interrupted", "failed", "done"):
        (directory / "summary.json").write_text(json.dumps({"status": status}))
        run.refresh()
        assert (run.state, head(run)["round"], head(run)["summary"]["problem"]) == (status, 8, None)
    (directory / "summary.json").write_text(json.dumps({"status": "failed", "problem": "it diverged" + " " * 5000}))
    run.refresh()
    assert head(run)["summary"]["problem"] == f"{'it diverged':<1000}"
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    run.refresh()
    assert (run.state, head(run)["round"]) == ("deleted", 8)


def test_a_run_of_a_machine_with_other_locks_is_at_work_while_it_writes(
    two_tasks: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there at the first reading may be old, and a second reading that finds nothing is no sign of work."""
    directory = copied(two_tasks, 3)
    run = follow(directory)
    catch_up(run)
    assert run.state == "killed"
    copied(two_tasks, 4)
    catch_up(run)
    assert run.state == "running"
    monkeypatch.setattr(lock_watch, "LEAST_PATIENCE", -1.0)
    assert not lock_watch.LockWatch(directory).at_work(0.0)


def test_a_run_whose_first_round_is_seen_is_at_work(two_tasks: Path, copied: Copy) -> None:
    """On a machine with other locks: at the first reading there was no round, so the first one is new."""
    directory = copied(two_tasks, 0)
    run = follow(directory)
    assert run.state == "killed"
    copied(two_tasks, 1)
    catch_up(run)
    assert (run.state, head(run)["round"]) == ("running", 1)


def test_the_directory_in_a_command_is_quoted_for_the_shell(tmp_path: Path) -> None:
    run = follow(tmp_path / "FL + ER")
    assert head(run)["directory"] == f"'{tmp_path}/FL + ER'"


class Stopping(Callback):
    """Ends the run in the middle of the second task."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_round(self, run: RunView, done: RoundDone) -> None:
        if done.round == self.after:
            run.stop("enough")


@pytest.mark.parametrize(("after", "rows"), [(6, [4, 6]), (7, [4])])
def test_the_last_row_of_a_run_that_a_callback_stops(after: int, rows: list[int], tmp_path: Path) -> None:
    """Round 6 is evaluated, and round 7 is not."""
    result = raysim.run(TWO_TASKS, out=tmp_path / "run", local=True, callbacks=[Stopping(after)])
    assert result.stopped_by == "Stopping"
    run = follow(tmp_path / "run")
    assert [row[0] for row in run.feeds["rows"].items] == rows
    for protocol, metrics in result.evaluation.items():
        assert [row[1][protocol] for row in run.feeds["rows"].items] == metrics["accuracy"]
        if after == 6:
            last = run.feeds["evaluations"].items[-1][3][protocol]
            assert last == [metrics["average_accuracy"], metrics["forgetting"]]


@pytest.mark.parametrize(
    ("file", "content", "trouble"),
    [
        ("rounds.jsonl", "nonsense\n", "rounds.jsonl:1: found no round 1"),
        ("rounds.jsonl", '{"round": 3, "tasks": [], "cohort": []}\n', "rounds.jsonl:1: found no round 1"),
        ("rounds.jsonl", "[" * 100_000 + "\n", "rounds.jsonl:1: found no round 1"),
        ("rounds.jsonl", '{"round": 1, "tasks": [1e400], "cohort": []}\n', "rounds.jsonl:1: found no round 1"),
        ("config.yaml", "name: x\n", "found no config of a run"),
        ("config.yaml", "name: [\n", "config.yaml"),
        ("config.yaml", "scenario: {tasks: 1000000000}\nclients: {count: 1}\n", "found no config of a run"),
    ],
)
def test_files_that_are_not_raysims(file: str, content: str, trouble: str, two_tasks: Path, copied: Copy) -> None:
    """A word says so, the file is not read again and again, and the run's own file helps."""
    directory = copied(two_tasks, 2)
    right = (directory / file).read_bytes()
    (directory / file).write_text(content)
    run = follow(directory)
    assert run.state == "unreadable"
    assert trouble in head(run)["trouble"]
    assert not run.more
    (directory / file).write_bytes(right)
    catch_up(run)
    assert (run.state, head(run)["round"]) == ("killed", 2)


def test_a_number_beyond_a_float_in_a_summary_is_not_shown(two_tasks: Path, copied: Copy) -> None:
    directory = copied(two_tasks, 2)
    text = (two_tasks / "summary.json").read_text()
    accuracy = str(json.loads(text)["evaluation"]["class_il"]["average_accuracy"])
    assert accuracy in text
    (directory / "summary.json").write_text(
        text.replace(f'"average_accuracy": {accuracy}', '"average_accuracy": 1e999')
    )
    shown = head(follow(directory))["summary"]["evaluation"]["class_il"]
    assert "average_accuracy" not in shown
    assert json.dumps(shown, allow_nan=False)


def test_what_cannot_be_reached_is_waited_for(two_tasks: Path) -> None:
    """A name that is too long fails as a folder without permission does, also for root: by an error of the system."""
    assert follow(two_tasks.parent / ("x" * 300)).state == "waiting"


def test_a_pipe_is_not_waited_for(two_tasks: Path, copied: Copy) -> None:
    directory = copied(two_tasks)
    for name in ("rounds.jsonl", "summary.json"):
        (directory / name).unlink(missing_ok=True)
        os.mkfifo(directory / name)
    run = follow(directory)
    assert (run.state, head(run)["trouble"]) == ("unreadable", "this is no regular file")


@pytest.mark.slow
def test_pytorch_is_not_imported_for_a_page(two_tasks: Path) -> None:
    """It takes seconds, and hundreds of megabytes of a machine on which others compute."""
    code = f"""
import sys
from pathlib import Path
from raysim.live.http_server import serve
from raysim.live.watched import Watched
with serve(Watched(Path({str(two_tasks)!r})), 0) as server:
    assert server.watched.message(0, {{}})[0]["rows"]
sys.exit("torch" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_names_of_files() -> None:
    """As those who write them call them."""
    assert (run_files.ROUNDS, run_files.CLIENTS) == (run_directory.ROUNDS, run_directory.CLIENTS)
    assert run_files.SWEEP_FILE == cells.SWEEP_FILE
