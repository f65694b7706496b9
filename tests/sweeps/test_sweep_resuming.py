"""What a sweep leaves behind, goes on with and refuses to touch; in this process."""

import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from carrying import carried_out, standings, statuses

import raysim
from raysim.config import load
from raysim.engine.events import RoundDone
from raysim.sweeps.directory import plan_sweep, read_labels, register_runs
from raysim.sweeps.sweep import carry_out
from raysim.sweeps.sweep_display import SweepDisplay
from raysim.system.errors import ConfigError, RunError
from raysim.system.files import lock_directory

Grid = Callable[..., dict[str, Any]]

AXES = {"seed": [0, 1], "methods": {"FL": {}, "FL + ER": {"er": {}}}}
FOLDERS = ["FL/seed-0", "FL + ER/seed-0", "FL/seed-1", "FL + ER/seed-1"]


def written(out: Path) -> dict[str, int]:
    """When each run's summary was written."""
    return {str(path.relative_to(out).parent): path.stat().st_mtime_ns for path in out.rglob("summary.json")}


@pytest.fixture(scope="module")
def swept(grid: Grid, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a sweep of four runs that is done."""
    out = tmp_path_factory.mktemp("sweep") / "out"
    results = raysim.sweep(grid(AXES), out=out, local=True)
    assert [str(result.directory.relative_to(out)) for result in results] == FOLDERS
    assert {result.status for result in results} == {"done"}
    return out


@pytest.fixture
def copy(swept: Path, tmp_path: Path) -> Path:
    """A copy of it, to spoil."""
    return Path(shutil.copytree(swept, tmp_path / "copy"))


def test_every_run_is_an_ordinary_one(swept: Path, grid: Grid, tmp_path: Path) -> None:
    alone_run = raysim.run(grid({})["base"], {"seed": 1, "methods": {"er": {}}}, out=tmp_path / "run", local=True)
    of_the_sweep = raysim.load(swept / "FL + ER/seed-1")
    assert of_the_sweep.model_sha256 == alone_run.model_sha256
    assert of_the_sweep.evaluation == alone_run.evaluation
    assert {path.name for path in of_the_sweep.directory.iterdir()} == {p.name for p in alone_run.directory.iterdir()}
    assert load(of_the_sweep.directory / "config.yaml") == load(alone_run.directory / "config.yaml")
    assert of_the_sweep.seconds > of_the_sweep.seconds_starting > 0
    assert of_the_sweep.peak_memory_bytes > 2**26


def test_clients_that_change_tasks_at_their_own_times_are_pictured(grid: Grid, tmp_path: Path) -> None:
    apart = {"scenario.boundaries": {"jittered": {"rounds": 1}}, "training.rounds_per_task": 4}
    (outcome,) = carried_out(grid({"seed": [0]}, **apart), tmp_path)
    assert outcome.status == "done"
    assert (outcome.directory / "clients_at_tasks.png").stat().st_size > 1000


def test_the_register_names_every_run_on_every_axis(swept: Path) -> None:
    assert read_labels(swept).runs == {
        "FL/seed-0": {"seed": "0", "methods": "FL"},
        "FL + ER/seed-0": {"seed": "0", "methods": "FL + ER"},
        "FL/seed-1": {"seed": "1", "methods": "FL"},
        "FL + ER/seed-1": {"seed": "1", "methods": "FL + ER"},
    }


def test_what_is_done_is_not_run_again(copy: Path, grid: Grid) -> None:
    shutil.rmtree(copy / "FL/seed-1")
    before = written(copy)
    assert set(standings(grid(AXES), copy).values()) == {"done", "new"}
    # what changes no result does not make a run another
    outcomes = carried_out(grid(AXES), copy, "dataset.download=false", "resources.clients_per_actor=2")
    assert statuses(outcomes) == ["done"] * 4
    after = written(copy)
    assert {folder for folder in after if after[folder] != before.get(folder)} == {"FL/seed-1"}
    assert [outcome.result.seed for outcome in outcomes if outcome.result] == [0, 0, 1, 1]


def test_a_run_with_a_key_of_older_configs_is_done(copy: Path, grid: Grid) -> None:
    for config in copy.glob("*/*/config.yaml"):
        text = config.read_text()
        config.write_text(text.replace("evaluation:\n", "evaluation:\n  every: task\n"))
        assert config.read_text() != text
    assert set(standings(grid(AXES), copy).values()) == {"done"}


def test_a_narrowed_sweep_leaves_the_register_of_the_others(copy: Path, grid: Grid) -> None:
    before = dict(read_labels(copy).runs)
    shutil.rmtree(copy / "FL/seed-1")
    assert statuses(carried_out(grid(AXES), copy, "seed=0")) == ["done"] * 2
    del before["FL/seed-1"]  # neither of this sweep nor there
    assert [*read_labels(copy).runs.items()] == [*before.items()]  # in the order of the whole sweep


def test_a_part_of_a_sweep_leaves_the_order_of_the_whole(copy: Path, grid: Grid) -> None:
    before, plan = [*read_labels(copy).runs], plan_sweep(grid(AXES), [], copy)
    register_runs(copy, plan.name, [cell for cell, _ in plan.runs if cell.labels["seed"] == "1"])
    assert [*read_labels(copy).runs] == before


def test_unfinished_runs_are_done_again_and_only_they(copy: Path, grid: Grid) -> None:
    (copy / "FL/seed-0/summary.json").unlink()  # killed
    failed = copy / "FL/seed-1/summary.json"
    failed.write_text(failed.read_text().replace('"done"', '"failed"'))
    (copy / "FL/seed-1/checkpoints").mkdir()
    (copy / "FL + ER/seed-1/notes.txt").write_text("mine")  # what is done is not touched, whatever lies there
    assert list(standings(grid(AXES), copy).values()) == ["unfinished", "done", "failed", "done"]
    before = {folder: raysim.load(copy / folder) for folder in FOLDERS[1::2]}
    assert statuses(carried_out(grid(AXES), copy)) == ["done"] * 4
    assert {path.name for path in (copy / "FL/seed-1").iterdir()} == {
        path.name for path in (copy / "FL/seed-0").iterdir()
    }
    assert {folder: raysim.load(copy / folder) for folder in FOLDERS[1::2]} == before
    assert raysim.load(copy / "FL/seed-0").model_sha256


def test_files_that_a_kill_left_half_written_are_a_runs_own(copy: Path, grid: Grid) -> None:
    (copy / "FL/seed-0/summary.json").rename(copy / "FL/seed-0/.summary.json")
    shutil.rmtree(copy / "FL/seed-1")
    (copy / "FL/seed-1").mkdir()
    (copy / "FL/seed-1/.config.yaml").write_text("na")
    assert list(standings(grid(AXES), copy).values()) == ["unfinished", "done", "new", "done"]
    assert statuses(carried_out(grid(AXES), copy)) == ["done"] * 4
    assert not list(copy.rglob(".*"))


def test_a_disk_that_is_full_ends_a_sweep_in_one_line(grid: Grid, tmp_path: Path) -> None:
    """There is no room for the summary then either, which hides nothing."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    everything = grid({"seed": [0, 1]})

    class Fills(SweepDisplay):
        def take(self, cell: object, event: object) -> None:
            if isinstance(event, RoundDone):
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))

    try:
        plan = plan_sweep(everything, (), tmp_path / "out")
        with pytest.raises(RunError, match=r"seed-0/rounds\.jsonl could not be written \(File too large\); make room"):
            carry_out(plan, True, None, Fills())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert statuses(carried_out(everything, tmp_path / "out")) == ["done"] * 2


class Outage(Exception):
    """The power fails."""


class FailsAfterTwoRounds:
    """Ends a run as if the power had failed."""

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == 2:
            raise Outage

    def say(self, text: str) -> None:
        """Show nothing."""


@pytest.fixture
def cut_off(copy: Path) -> Path:
    """The sweep, the first of its runs cut off after round 2, with a checkpoint of round 1."""
    run = copy / "FL/seed-0"
    config = load(run / "config.yaml", {"checkpoint.every_rounds": 1})
    shutil.rmtree(run)
    with pytest.raises(Outage):
        raysim.run(config, out=run, local=True, display=FailsAfterTwoRounds())
    return copy


def test_a_run_that_was_cut_off_goes_on_from_its_checkpoint(cut_off: Path, grid: Grid) -> None:
    undisturbed = raysim.run(load(cut_off / "FL/seed-0/config.yaml"), out=cut_off.parent / "undisturbed", local=True)
    assert statuses(carried_out(grid(AXES), cut_off)) == ["done"] * 4
    ended = raysim.load(cut_off / "FL/seed-0")
    assert (ended.recoveries, ended.rounds_recomputed) == (1, 1)
    assert (ended.rounds, ended.model_sha256) == (undisturbed.rounds, undisturbed.model_sha256)


def test_one_with_a_damaged_checkpoint_fails_alone(cut_off: Path, grid: Grid) -> None:
    shutil.rmtree(cut_off / "FL/seed-1")
    (cut_off / "FL/seed-0/checkpoints/000001/server.bin").unlink()
    ended = carried_out(grid(AXES), cut_off)
    assert sorted(statuses(ended)) == ["done", "done", "done", "failed"]
    assert "000001: this checkpoint is damaged" in next(one.problem for one in ended if one.status == "failed")


def put(text: str, where: str) -> Callable[[Path], object]:
    return lambda out: (out / where).write_text(text)


def test_files_of_the_users_own_stay_in_a_run_that_is_done_again(copy: Path, grid: Grid) -> None:
    (copy / "FL/seed-0/summary.json").unlink()
    (copy / "FL/seed-0/notes.txt").write_text("mine")
    assert statuses(carried_out(grid(AXES), copy)) == ["done"] * 4
    assert (copy / "FL/seed-0/notes.txt").read_text() == "mine"


SPOILT = {
    "another seed": (
        lambda out: shutil.copytree(out / "FL/seed-1", out / "FL/seed-0", dirs_exist_ok=True),
        r"FL/seed-0: a run \(done\) of another config is there: seed: 1 there, 0 here; allowed: another --out",
    ),
    "no run": (lambda out: (out / "FL/seed-0/config.yaml").unlink(), "and no config.yaml, so this is no run's"),
    "an unreadable config": (put("seed: x\n", "FL/seed-0/config.yaml"), r"FL/seed-0/config\.yaml:1: seed: found 'x'"),
    "an unreadable summary": (put("{", "FL/seed-0/summary.json"), r"summary\.json: .*; allowed: a summary\.json that"),
    "a run above": (put("", "FL/config.yaml"), r"FL: this is a run's directory, and 'FL/seed-0' would lie in it"),
    "a run at the top": (put("", "rounds.jsonl"), r"copy: this is a run's directory"),
    "a file in the way": (
        lambda out: (shutil.rmtree(out / "FL"), (out / "FL").write_text("mine")),
        "FL: this is a file, allowed: a directory",
    ),
    "a register of somebody else": (
        put("runs: 3\n", "sweep.yaml"),
        r"sweep\.yaml: name: field required, allowed: a file",
    ),
}


@pytest.mark.parametrize("case", SPOILT)
def test_what_is_not_this_sweeps_is_refused_and_stays(case: str, copy: Path, grid: Grid) -> None:
    spoil, words = SPOILT[case]
    spoil(copy)
    shutil.rmtree(copy / "FL + ER/seed-1")  # there is something to do
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    with pytest.raises(ConfigError, match=words) as found:
        carried_out(grid(AXES), copy)
    assert "\n" not in str(found.value)
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*")} == before


def test_a_changed_config_is_refused_with_what_differs(swept: Path, grid: Grid) -> None:
    words = r"FL/seed-0: a run \(done\) of another config is there: training\.optimizer\.lr: 0\.01 there, 0\.5 here"
    with pytest.raises(ConfigError, match=words):
        plan_sweep(grid(AXES), ["training.optimizer.lr=0.5"], swept)


def test_two_sweeps_keep_out_of_each_others_way(grid: Grid, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with lock_directory(out, "sweep"), pytest.raises(ConfigError, match="another sweep is at work there"):
        carried_out(grid({"seed": [0]}), out)
    assert list(out.iterdir()) == []


def test_nothing_is_written_where_a_file_is_in_the_way(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match=r"--out .*/file/out: it cannot be written to: Not a directory"):
        carried_out(grid({"seed": [0]}), tmp_path / "file" / "out")
