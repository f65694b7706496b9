"""The page gets the requests to forget of a run that is followed."""

from pathlib import Path

import pytest
from followed import TWO_TASKS, follow

import raysim
from raysim.live.round_line import parse_round
from raysim.records.tensorboard import BOARD


def test_requests_of_a_run_are_followed_and_in_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    keys = {"clients.forget": [{"round": 3, "clients": [1]}, {"round": 5, "classes": [0]}], "logging.tensorboard": True}
    result = raysim.run(TWO_TASKS, keys, out=tmp_path / "run", local=True)
    first, second = follow(result.directory).feeds["requests"].items
    for item, done in zip((first, second), result.forgotten, strict=True):
        nbytes = done["bytes_up"] + done["bytes_down"]
        pairs = [done["accuracy_forgotten"], done["accuracy_rest"], done["attack"]]
        assert item == [done["round"], done["what"], done["samples"], *pairs, nbytes, done["said"]]
    (file,) = result.directory.glob(BOARD)
    shown = EventAccumulator(str(file)).Reload()
    for tag, key in (("accuracy_forgotten_after", "accuracy_forgotten"), ("attack_before", "attack")):
        found = [(each.step, each.value) for each in shown.Scalars(f"forgetting/{tag}")]
        assert found == [(done["round"], pytest.approx(done[key][1])) for done in result.forgotten]


def test_a_line_with_other_requests_is_refused() -> None:
    line = b'{"round": 1, "tasks": [1], "cohort": [], "bytes_up": 0, "bytes_down": 0, "forgotten": [{"what": 1}]}'
    with pytest.raises(ValueError, match="found no round 1"):
        parse_round(line, 1)
