"""checkpoints/losses.jsonl: every round that is computed again is counted, however the run ended before."""

import json

import pytest

import raysim
from raysim.engine.events import RoundDone
from raysim.launch.display import RunDisplay


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
