"""checkpoints/losses.jsonl: every round that is computed again is counted, however the run ended before."""

import json

import pytest

import raysim
from raysim.engine.events import RoundDone
from raysim.engine.simulation import load_parts
from raysim.launch.display import RunDisplay
from raysim.system.errors import ConfigError, RunError


class Leave(RunDisplay):
    """A second Ctrl-C, or SIGTERM, after a round: nothing more is done in it."""

    def __init__(self, after):
        self.after = after

    def take(self, event):
        if isinstance(event, RoundDone) and event.round == self.after:
            raise KeyboardInterrupt


def test_rounds_lost_by_leaving_at_once_are_counted(tiny, tmp_path):
    """4 rounds, a checkpoint every 2: left after round 3, round 3 is computed again."""
    out = tmp_path / "out"
    config = tiny(checkpoint={"every_rounds": 2}, logging={"tensorboard": False})
    with pytest.raises(KeyboardInterrupt):
        raysim.run(config, out=out, local=True, display=Leave(3))
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], "problem" in summary) == ("interrupted", False)
    result = raysim.run(None, out=out, local=True, resume=True)
    assert (result.recoveries, result.rounds_recomputed) == (1, 1)
    (noted,) = (out / "checkpoints" / "losses.jsonl").read_text().splitlines()
    assert json.loads(noted)["why"] == "the run was interrupted before a checkpoint"


@pytest.mark.parametrize("tensorboard", [False, True])
def test_a_damaged_line_before_the_checkpoint_is_refused_and_nothing_changes(tiny, tmp_path, tensorboard):
    """6 rounds, a checkpoint every 2, left after round 5: line 1 must be what raysim wrote."""
    out = tmp_path / "out"
    config = tiny(checkpoint={"every_rounds": 2}, training__rounds_per_task=3, logging={"tensorboard": tensorboard})
    with pytest.raises(KeyboardInterrupt):
        raysim.run(config, out=out, local=True, display=Leave(5))
    rounds = out / "rounds.jsonl"
    rounds.write_bytes(b"x" + rounds.read_bytes()[1:])
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=rf"{rounds}: found no rounds"):
        raysim.run(None, out=out, local=True, resume=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_run_that_ends_while_another_command_reads_its_data_stays(tiny, tmp_path, monkeypatch):
    """Two commands with the same --out: the first run ends between the second's check and its first write."""
    out, first = tmp_path / "out", tiny(seed=1)

    def slowly(config):
        parts = load_parts(config)
        if config.seed == 2:
            raysim.run(first, out=out, local=True)
        return parts

    monkeypatch.setattr("raysim.launch.run.load_parts", slowly)
    with pytest.raises(ConfigError, match="this directory is not empty, allowed: a new or empty one"):
        raysim.run(tiny(seed=2), out=out, local=True)
    assert (raysim.load(out).status, raysim.load(out).seed) == ("done", 1)


@pytest.mark.parametrize("link", ["checkpoints", "checkpoints/000002", "checkpoints/000002/server.bin"])
def test_a_checkpoint_that_is_a_link_is_refused(tiny, tmp_path, link):
    """The run would read and write elsewhere. A checkpoint every 2 rounds, left after round 3."""
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    config = tiny(checkpoint={"every_rounds": 2}, logging={"tensorboard": False})
    with pytest.raises(KeyboardInterrupt):
        raysim.run(config, out=out, local=True, display=Leave(3))
    (out / link).rename(elsewhere)
    (out / link).symlink_to(elsewhere)
    with pytest.raises(RunError, match=rf"^{out / link}: this is a link to {elsewhere}, allowed: the run's own folder"):
        raysim.run(None, out=out, local=True, resume=True)
