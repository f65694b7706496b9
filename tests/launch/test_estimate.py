"""What `raysim.check` returns: numbers, and the table that the command line prints."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from small_configs import SMALL, TINY

import raysim
from raysim.cli import main
from raysim.estimate.pace import Pace
from raysim.launch import check as checking
from raysim.launch.amounts import in_units
from raysim.system.capacity import GIB, Capacity

WEIGHTS = 6 * 5 + 5 + 5 * 4 + 4  # an mlp of 6 inputs, 5 hidden units and 4 classes


@pytest.fixture(autouse=True)
def _a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 CPUs and 8 GiB, on which a step takes a second."""
    seconds = Pace(step=1.0, beginning=2.0, sample=0.1, round=0.5, round_on_ray=1.0, call=0.25)
    monkeypatch.setattr(checking, "pace", lambda *_: seconds)
    monkeypatch.setattr(checking, "this_machine", lambda: Capacity(2, 0, 8 * GIB))


def test_its_numbers_are_the_runs(tmp_path: Path) -> None:
    """Tests have 20 samples for each of 2 permutations, and a round 3 clients with 12 samples, in batches of 4."""
    estimate, result = raysim.check(TINY), raysim.run(TINY, out=tmp_path / "run", local=True)
    same = ("name", "clients", "tasks", "rounds", "updates", "steps", "bytes_up", "bytes_down")
    assert {key: getattr(estimate, key) for key in same} == {key: getattr(result, key) for key in same}
    assert (estimate.rounds, estimate.updates, estimate.steps) == (4, 12, 36)
    assert (estimate.train_samples, estimate.test_samples) == (36, 20)
    assert (estimate.parameters, estimate.model_bytes) == (WEIGHTS, 4 * WEIGHTS)
    assert estimate.bytes_up == estimate.bytes_down == 12 * 4 * WEIGHTS
    assert estimate.actors == 4
    # steps; 9 batches in which clients begin the second task; rounds; tests before the first task and after each
    assert estimate.seconds_local == pytest.approx(36 * 1.0 + 9 * 2.0 + 4 * 0.5 + 3 * 2 * 20 * 0.1)


def test_its_numbers_are_those_of_the_table() -> None:
    estimate = raysim.check(TINY, methods="er")
    assert estimate["memory"].startswith(f"about {in_units(estimate.memory_bytes)} of the 8.0 GiB here")
    assert estimate["memory"].endswith(f"up to {in_units(estimate.host_memory_bytes)}")
    assert f"about {estimate.seconds:.1f} s" in estimate["time"] or "min" in estimate["time"]
    assert estimate["bytes up"].startswith(f"{estimate.bytes_up:,} ")
    assert estimate.gpu_memory_bytes is None


def test_what_is_not_known_is_none() -> None:
    """A run with GPUs, on a machine without."""
    estimate = raysim.check(TINY, {"resources.gpus_per_actor": 0.5})
    assert (estimate.actors, estimate.memory_bytes, estimate.seconds, estimate.seconds_local) == (
        None,
        None,
        None,
        None,
    )
    assert estimate.host_memory_bytes is not None
    assert estimate.gpu_memory_bytes is not None


def test_it_is_the_table_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.yaml").write_text(json.dumps(SMALL))
    assert main(["check", str(tmp_path / "small.yaml")]) == 0
    estimate = raysim.check(tmp_path / "small.yaml")
    assert f"{estimate}\n" == capsys.readouterr().out
    cells = re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", estimate._repr_html_())
    assert dict(cells) == dict(estimate)
    assert main(["check", str(tmp_path / "small.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == dict(estimate)


def test_it_is_short_in_a_shell_and_safe_in_a_notebook() -> None:
    config: dict[str, Any] = {**TINY, "name": "n" * 150}
    shown = repr(raysim.check(config))
    assert re.fullmatch(r"<estimate of n{37}\.\.\.: 3 clients, 36 steps, 2\.8 KiB up, .* of memory, .* s>", shown)
    text = raysim.Estimate(**{**vars(raysim.check(TINY)), "lines": {"model": "<b>"}})._repr_html_()
    assert text == "<table><tr><th>model</th><td>&lt;b&gt;</td></tr></table>"
