"""What of two runs is compared, what is said of a difference, and what is kept of a commit."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from bits.__main__ import main, told
from bits.child import CutOff, Display, read
from bits.comparing import difference
from bits.kept import Kept
from bits.run import BASE, Run

FOUND: dict[str, Any] = {
    "rounds": [{"round": 1, "loss": 0.5, "cohort": [0, 2]}, {"round": 2, "loss": None, "cohort": [1, 2]}],
    "steps": 12,
    "evaluation": {"domain_il": {"accuracy": [[0.25, 0.5]]}},
    "model_sha256": "ab" * 32,
}


def changed(**parts: Any) -> dict[str, Any]:
    return {**copy.deepcopy(FOUND), **parts}


def test_the_same_is_no_difference() -> None:
    assert difference(FOUND, copy.deepcopy(FOUND)) is None


@pytest.mark.parametrize(
    ("here", "said"),
    [
        (changed(steps=13), "steps; first: steps 12 at BASE, 13 here"),
        (changed(steps=12.0), "steps; first: steps 12 at BASE, 12.0 here"),
        (changed(steps=True), "steps; first: steps 12 at BASE, true here"),
        (
            changed(evaluation={"domain_il": {"accuracy": [[0.25, 0.5000000000000001]]}}, steps=1),
            "steps, evaluation; first: steps 12 at BASE, 1 here",
        ),
        (
            changed(evaluation={"domain_il": {"accuracy": [[0.25, 0.5000000000000001]]}}),
            "evaluation; first: evaluation.domain_il.accuracy[0][1] 0.5 at BASE, 0.5000000000000001 here",
        ),
        (changed(rounds=FOUND["rounds"][:1]), "rounds; first: rounds has 2 at BASE, 1 here"),
        (
            changed(rounds=[FOUND["rounds"][0], {"round": 2, "loss": 0.0, "cohort": [1, 2]}]),
            "rounds; first: rounds[1].loss null at BASE, 0.0 here",
        ),
        (
            changed(rounds=[FOUND["rounds"][0], {"round": 2, "loss": None, "cohort": [2, 1]}]),
            "rounds; first: rounds[1].cohort[0] 1 at BASE, 2 here",
        ),
        (changed(more=None), "more; first: more nothing at BASE, null here"),
        (
            changed(model_sha256="cd" * 32),
            f'model_sha256; first: model_sha256 "{"ab" * 9}a...b{"ab" * 5}" at BASE, "{"cd" * 9}c...d{"cd" * 5}" here',
        ),
        ({"error": "it broke"}, "failed here: it broke"),
    ],
)
def test_every_difference_is_noticed(here: dict[str, Any], said: str) -> None:
    assert difference(FOUND, here) == said
    assert difference(here, FOUND) is not None


def test_what_fails_on_both_sides_has_moved() -> None:
    """No run of the list may be one that is refused."""
    assert difference({"error": "no"}, {"error": "no"}) == "failed at BASE: no; failed here: no"


def test_minus_zero_is_another_number() -> None:
    assert difference({"loss": 0.0}, {"loss": -0.0}) == "loss; first: loss 0.0 at BASE, -0.0 here"


def test_a_line_for_each_run_that_moved_and_one_for_all() -> None:
    runs = {"one": Run(), "two": Run()}
    same, other = {"one": FOUND, "two": FOUND}, {"one": FOUND, "two": changed(steps=13)}
    assert told(runs, same, same) == ["2 runs: no bit moved"]
    assert told(runs, same, other) == ["two: steps; first: steps 12 at BASE, 13 here", "2 runs: 1 moved"]


def test_times_are_not_compared_and_all_else_is(tmp_path: Path) -> None:
    def written(name: str, seconds: float, **more: object) -> dict[str, Any]:
        (tmp_path / name).mkdir()
        times = dict.fromkeys(("seconds", "seconds_per_round", "seconds_starting"), seconds)
        about = {"status": "done", **times, "peak_memory_bytes": int(seconds), "versions": {"git": name}, "rounds": 2}
        (tmp_path / name / "summary.json").write_text(json.dumps(about | more))
        lines = [{"round": number, "loss": 0.5, "seconds": seconds} for number in (1, 2)]
        (tmp_path / name / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return read(tmp_path / name)

    first = written("first", 1.0)
    lines = [{"round": 1, "loss": 0.5}, {"round": 2, "loss": 0.5}]
    assert first == {"status": "done", "rounds": 2, "rounds.jsonl": lines, "clients.json": None}
    assert difference(first, written("second", 2.0)) is None
    assert difference(first, written("third", 1.0, virtual_time=2.0)) is not None
    (tmp_path / "first" / "clients.json").write_text('{"rows": [2, 4]}')
    assert read(tmp_path / "first")["clients.json"] == {"rows": [2, 4]}
    with pytest.raises(RuntimeError, match="the run's status is interrupted"):
        written("fourth", 1.0, status="interrupted")


def test_a_run_is_cut_off_after_its_round() -> None:
    class RoundDone:
        def __init__(self, number: int) -> None:
            self.round = number

    Display(2).take(RoundDone(1))
    with pytest.raises(CutOff):
        Display(2).take(RoundDone(2))


def test_results_are_kept_by_commit_and_by_what_was_run(tmp_path: Path) -> None:
    runs = {"one": Run(), "two": Run({"seed": 3}), "failed": Run({"seed": 4})}
    Kept("a" * 40, tmp_path).keep(runs, {"one": FOUND, "two": FOUND, "failed": {"error": "it broke"}})
    assert Kept("a" * 40, tmp_path).of(runs) == {"one": FOUND, "two": FOUND}
    assert Kept("a" * 40, tmp_path).of({"one": Run(), "two": Run({"seed": 5})}) == {"one": FOUND}
    assert Kept("b" * 40, tmp_path).of(runs) == {}
    Kept("a" * 40, tmp_path).keep({"three": Run()}, {"three": FOUND})  # beside those of before
    assert set(Kept("a" * 40, tmp_path).of({"one": Run(), "three": Run()})) == {"one", "three"}


def test_keys_replace_those_of_the_base() -> None:
    config = Run({"training.optimizer": {"lr": 0.5}, "scenario": {"kind": "x"}, "schedule.kind": "y"}).config()
    assert config["training"] == {**BASE["training"], "optimizer": {"lr": 0.5}}
    assert (config["scenario"], config["schedule"]) == ({"kind": "x"}, {"kind": "y"})
    assert BASE["training"]["optimizer"] == {"lr": 0.1}


@pytest.mark.parametrize(
    ("given", "words"), [(["HEAD", "--only", "no such run"], "no run's name"), (["no-such-commit"], "git rev-parse")]
)
def test_wrong_input_is_one_line(given: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_run_that_base_cannot_have_is_new_and_did_not_move() -> None:
    runs = dict.fromkeys(("old", "newer"), Run({}))
    refused = {"error": "unknown key 'nesterov'", "refused": True}
    lines = told(runs, {"old": FOUND, "newer": refused}, {"old": FOUND, "newer": FOUND})
    assert lines == ["1 runs: no bit moved; BASE refuses newer, of which it has nothing to compare"]
    (failed, counted) = told(runs, {"old": FOUND, "newer": FOUND}, {"old": FOUND, "newer": refused})
    assert failed.startswith("newer: failed here")
    assert counted == "2 runs: 1 moved"
