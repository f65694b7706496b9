"""Callbacks: what they are told and when, what they record, how they end a run, and what becomes of one that fails."""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from small_configs import SMALL
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import raysim
from raysim.api import Delta, Method, ServerHalf
from raysim.callbacks import Callback, RunView
from raysim.callbacks.callback_list import make_callbacks
from raysim.cli import main
from raysim.config import Config, load
from raysim.config.lookup import names_for_actors
from raysim.engine.events import RoundDone
from raysim.engine.simulation import Simulation
from raysim.launch.display import RunDisplay
from raysim.records.run_directory import cut_back
from raysim.sweeps.directory import plan_sweep
from raysim.sweeps.sweep import carry_out
from raysim.sweeps.sweep_display import SweepDisplay
from raysim.system.custom_code import find_custom_code, refuse_main
from raysim.system.errors import ConfigError, Lost, RunError

CONFIG = SMALL | {
    "model": {"name": "mlp", "hidden": [5], "dropout": 0.3},
    "training": {"rounds_per_task": 4, "batch_size": 8, "optimizer": {"lr": 0.1}},
    "evaluation": {"every_rounds": 2},
    "checkpoint": {"every_rounds": 3},
}
ONE_TASK = {
    "scenario": {"kind": "domain_incremental", "tasks": 1, "shift": "permutation"},
    "evaluation": {"every_rounds": 1},
}


class Watch(Callback):
    """Writes down what it is told, records the round's number, and ends the run after a round."""

    log: ClassVar[list[tuple[object, ...]]] = []

    def __init__(self, *, last: int = 0) -> None:
        self.last = last

    def on_start(self, run: RunView) -> None:
        self.log.append(("start", run.round, run.rounds, [line["round"] for line in run.earlier_rounds()]))

    def on_task_begin(self, run: RunView, task: int) -> None:
        self.log.append(("task", task))

    def on_round(self, run: RunView, done: RoundDone) -> None:
        self.log.append(("round", done.round))
        run.record("number", done.round / 2)
        if done.round == self.last:
            run.stop("enough")

    def on_evaluation(self, run: RunView, done: RoundDone) -> None:
        self.log.append(("evaluation", run.round, sorted(done.evaluation or {})))
        (done.evaluation or {}).clear()  # its own copy

    def on_task_end(self, run: RunView, done: RoundDone) -> None:
        self.log.append(("task end", run.round))

    def on_loss(self, run: RunView, why: str, back_to: int) -> None:
        self.log.append(("loss", why, back_to))

    def on_end(self, run: RunView, result: raysim.Result) -> None:
        self.log.append(("end", result.status, result.stopped_by, (run.directory / "summary.json").exists()))


@pytest.fixture(autouse=True)
def told() -> list[tuple[object, ...]]:
    Watch.log.clear()
    return Watch.log


BY_NAME = {"callbacks": {f"{__name__}:Watch": {}}}
PROTOCOLS = ["class_il", "class_il_seen", "task_il"]
WHOLE = [
    ("start", 0, 8, []),
    ("task", 1),
    ("round", 1),
    ("round", 2),
    ("evaluation", 2, PROTOCOLS),
    ("round", 3),
    ("round", 4),
    ("evaluation", 4, PROTOCOLS),
    ("task end", 4),
    ("task", 2),
    ("round", 5),
    ("round", 6),
    ("evaluation", 6, PROTOCOLS),
    ("round", 7),
    ("round", 8),
    ("evaluation", 8, PROTOCOLS),
    ("task end", 8),
    ("end", "done", None, True),
]


@pytest.mark.parametrize("how", ["config", "name", "object"])
def test_it_is_told_of_everything_in_order(how: str, told: list[object], tmp_path: Path) -> None:
    given = {"config": (), "name": [f"{__name__}:Watch"], "object": [Watch()]}[how]
    result = raysim.run(CONFIG, BY_NAME if how == "config" else {}, tmp_path / "run", True, callbacks=given)
    assert told == WHOLE
    assert "stopped_by" not in json.loads((tmp_path / "run" / "summary.json").read_text())
    plain = raysim.run(CONFIG, out=tmp_path / "plain", local=True)
    assert plain.model_sha256 == result.model_sha256


class Draws(Callback):
    """Records a figure and moves every generator that the process shares, also where it raises."""

    def on_round(self, run: RunView, done: RoundDone) -> None:
        torch.rand(3), np.random.rand(), random.random()
        figure = Figure(figsize=(2, 1), dpi=50)
        figure.add_subplot().plot([1, done.round])
        run.record_figure("line", figure)
        run.record("loss", float("nan"))


def test_numbers_and_figures_are_recorded_and_nothing_else_is_touched(tmp_path: Path) -> None:
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    overrides = {"training.rounds_per_task": 1, "logging.tensorboard": True, "evaluation": {"every_rounds": 1}}
    result = raysim.run(CONFIG, overrides, tmp_path / "run", True, callbacks=[Draws()])
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == states[1:]
    plain = raysim.run(CONFIG, overrides, tmp_path / "plain", True)
    assert (plain.model_sha256, plain.evaluation) == (result.model_sha256, result.evaluation)
    lines = [json.loads(line) for line in (tmp_path / "run" / "callbacks.jsonl").read_text().splitlines()]
    assert lines == [{"round": n, "callback": "Draws", "name": "loss", "value": None} for n in (1, 2)]
    board = EventAccumulator(str(tmp_path / "run"), size_guidance={"images": 0}).Reload()
    assert [event.step for event in board.Scalars("callbacks/loss")] == [1, 2]
    assert [event.step for event in board.Images("callbacks/line")] == [1, 2]
    pictures = sorted((tmp_path / "run" / "figures").iterdir())
    assert [picture.name for picture in pictures] == ["line-000001.png", "line-000002.png"]
    with Image.open(pictures[0]) as image:
        assert image.size == (100, 50)
    (tmp_path / "run" / "figures" / "1-ranks.png").write_text("")  # of something else
    cut_back(tmp_path / "run", {"rounds.jsonl": (tmp_path / "run" / "rounds.jsonl").read_text().index("\n") + 1})
    left = sorted(path.name for path in (tmp_path / "run" / "figures").iterdir())
    assert left == ["1-ranks.png", "line-000001.png"]  # of one round


def test_a_figure_that_waits_for_its_checkpoint_takes_the_memory_of_its_file(tiny: Any, tmp_path: Path) -> None:
    """A white figure of 800 x 600 pixels: 1,440,000 bytes as an array, and a few thousand as a file."""
    run = RunView("mine", tiny(), tmp_path)
    run.record_figure("white", Figure(figsize=(8, 6), dpi=100))
    (note,) = run.notes
    note.write(tmp_path / note.file)
    assert len(note.value) == (tmp_path / note.file).stat().st_size < 20_000
    with Image.open(tmp_path / "figures" / "white-000000.png") as image:
        assert np.array_equal(np.asarray(image), np.full((600, 800, 3), 255))


class Same(Callback):
    """Records a number, or a figure, whose name another callback may use."""

    def __init__(self, *, figure: bool) -> None:
        self.figure = figure

    def on_round(self, run: RunView, done: RoundDone) -> None:
        if self.figure:
            run.record_figure("weights", Figure(figsize=(1, 1), dpi=10))
        else:
            run.record("weights", 1.0)


class AlsoSame(Same):
    """The other one."""


@pytest.mark.parametrize(("figure", "kind"), [(False, "number"), (True, "figure")])
def test_two_that_record_under_one_name_are_both_named(figure: bool, kind: str, tmp_path: Path) -> None:
    """The second figure would replace the first one's file. A figure and a number may have the same name."""
    shorter = {"training.rounds_per_task": 1, "evaluation": {"every_rounds": 1}}
    both = [Same(figure=figure), AlsoSame(figure=not figure)]
    assert raysim.run(CONFIG, shorter, tmp_path / "allowed", True, callbacks=both).status == "done"
    with pytest.raises(RunError) as refused:
        raysim.run(CONFIG, shorter, tmp_path / "run", True, callbacks=[both[0], AlsoSame(figure=figure)])
    assert str(refused.value) == (
        f"callback AlsoSame: found the {kind} 'weights', which the callback Same records too, allowed: a name that no "
        "other callback uses; on_round, round 1"
    )
    assert not hasattr(refused.value, "__notes__")  # it is said once


def test_a_run_that_is_stopped_has_the_bits_of_a_shorter_one(tmp_path: Path) -> None:
    """Of one task with a constant rate: three of eight rounds are the three of a task of three."""
    stopped = raysim.run(
        CONFIG, {**ONE_TASK, "training.rounds_per_task": 8}, tmp_path / "stopped", True, callbacks=[Watch(last=3)]
    )
    shorter = raysim.run(CONFIG, {**ONE_TASK, "training.rounds_per_task": 3}, tmp_path / "shorter", True)
    assert (stopped.status, stopped.stopped_by, stopped.rounds) == ("done", "Watch", 3)
    assert stopped.model_sha256 == shorter.model_sha256
    assert stopped.evaluation == shorter.evaluation  # the task's row is that of its last evaluation
    assert raysim.load(tmp_path / "stopped").stopped_by == "Watch"
    assert raysim.run(None, out=tmp_path / "stopped", local=True, resume=True) == raysim.load(tmp_path / "stopped")


def test_one_that_stops_with_the_last_round_or_before_the_first(tmp_path: Path) -> None:
    last = raysim.run(CONFIG, out=tmp_path / "last", local=True, callbacks=[Watch(last=8)])
    assert (last.status, last.stopped_by, last.rounds) == ("done", None, 8)

    class AtOnce(Callback):
        def on_start(self, run: RunView) -> None:
            run.stop("no use")

    first = raysim.run(CONFIG, out=tmp_path / "first", local=True, callbacks=[AtOnce()])
    assert (first.status, first.stopped_by, first.rounds) == ("done", "AtOnce", 0)


class Loses(Method):
    """Loses a process in a round, once."""

    left: ClassVar[list[int]] = []

    class Server(ServerHalf):
        def update(self, server: Any, delta: Delta, reply: Any) -> Delta:
            if server.round in Loses.left:
                Loses.left.remove(server.round)
                raise Lost("a host", "somebody killed it")
            return delta


def test_a_round_that_is_computed_again_is_told_once(
    told: list[tuple[object, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lost in rounds 5 and 8 with checkpoints after 3 and 6: rounds 4, and 7, come twice."""
    monkeypatch.setattr(Loses, "left", [5, 8])
    methods = {"methods": {f"{__name__}:Loses": {}}, "logging.tensorboard": True}
    result = raysim.run(CONFIG, methods, tmp_path / "run", True, callbacks=[Watch()])
    assert (result.recoveries, result.rounds_recomputed) == (2, 2)
    assert [one for one in told if one[0] == "loss"] == [
        ("loss", "a host died: somebody killed it", 3),
        ("loss", "a host died: somebody killed it", 6),
    ]
    assert [one for one in told if one[0] != "loss"] == WHOLE
    lines = [json.loads(line) for line in (tmp_path / "run" / "callbacks.jsonl").read_text().splitlines()]
    assert [(line["round"], line["value"]) for line in lines] == [(n, n / 2) for n in range(1, 9)]
    board = EventAccumulator(str(tmp_path / "run")).Reload()
    assert [event.step for event in board.Scalars("callbacks/number")] == [*range(1, 9)]


def test_a_run_that_is_to_end_ends_there_after_a_loss_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped after round 4, and lost while the checkpoint of that round is made: it goes back to 3, and on to 4."""
    whole, lost = Simulation._checkpoint, [4]

    def checkpoint(self: Simulation) -> Any:
        if self.server.round in lost:
            lost.clear()
            raise Lost("a host", "somebody killed it")
        return whole(self)

    undisturbed = raysim.run(CONFIG, out=tmp_path / "plain", local=True, callbacks=[Watch(last=4)])
    monkeypatch.setattr(Simulation, "_checkpoint", checkpoint)
    result = raysim.run(CONFIG, out=tmp_path / "run", local=True, callbacks=[Watch(last=4)])
    assert (result.recoveries, result.rounds, result.status, result.stopped_by) == (1, 4, "done", "Watch")
    assert result.model_sha256 == undisturbed.model_sha256


class Outage(RunDisplay):
    def __init__(self, after: int) -> None:
        self.after = after

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == self.after:
            raise KeyboardInterrupt


def test_a_resumed_run_may_have_others_and_tells_them_from_there_on(told: list[object], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        raysim.run(CONFIG, BY_NAME, tmp_path / "run", True, display=Outage(5))
    assert told[-1] == ("end", "interrupted", None, True)
    told.clear()
    other = {"callbacks": {f"{__name__}:Watch": {"last": 7}}}
    result = raysim.run(None, other, tmp_path / "run", True, resume=True, trust=True)
    assert told[:3] == [("start", 3, 8, [1, 2, 3]), ("task", 1), ("round", 4)]
    assert (result.rounds, result.stopped_by) == (7, f"{__name__}:Watch")
    lines = [json.loads(line) for line in (tmp_path / "run" / "callbacks.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(ConfigError, match=r"allowed: other resources, logging, checkpoint, callbacks$"):
        raysim.run(None, {"clients.count": 3}, tmp_path / "run", True, resume=True, trust=True)


@dataclass(kw_only=True)
class Fails(Callback):
    hook: str
    after: int = 0

    def _fail(self, run: RunView, hook: str) -> None:
        if hook == self.hook and run.round >= self.after:
            raise ZeroDivisionError("mine")

    def check(self, config: Config, protocols: Sequence[str]) -> None:
        if self.hook == "check":
            raise ConfigError("found what is not allowed")

    def on_round(self, run: RunView, done: RoundDone) -> None:
        self._fail(run, "on_round")

    def on_end(self, run: RunView, result: raysim.Result) -> None:
        self._fail(run, "on_end")


def test_one_that_raises_is_named_and_the_last_checkpoint_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], told: list[object]
) -> None:
    path, out = tmp_path / "small.yaml", tmp_path / "out"
    path.write_text(json.dumps(CONFIG))
    fails = f"'{__name__}:Fails': {{hook: on_round, after: 4}}"
    asked = [f"callbacks={{'{__name__}:Watch': {{}}, {fails}}}", "--out", str(out), "--local", "--quiet"]
    assert main(["run", str(path), *asked]) == 1
    above, last = capsys.readouterr().err.splitlines()
    assert above == f"resume from round 3: raysim run --resume --out {out} --local --trust"
    line = Fails._fail.__code__.co_firstlineno + 2
    place = f"(Fails.on_round, {__file__}:{line})"
    assert last == f"the run failed: callback {__name__}:Fails: ZeroDivisionError: mine {place}; on_round, round 4"
    assert told[-1] == ("end", "failed", None, True)
    assert raysim.load(out).rounds == 4
    resumed = ["run", "--resume", "--out", str(out), "--trust", "callbacks={}", "--local", "--quiet"]
    assert main(resumed) == 0
    assert raysim.load(out).rounds == 8


def test_one_that_raises_at_the_end_leaves_a_run_that_is_done(tmp_path: Path, told: list[object]) -> None:
    with pytest.raises(RunError, match=r"^callback Fails: ZeroDivisionError: mine .*; on_end, round 8$"):
        raysim.run(CONFIG, out=tmp_path / "run", local=True, callbacks=[Fails(hook="on_end"), Watch()])
    assert told[-1] == ("end", "done", None, True)  # those after it are told, too
    assert raysim.load(tmp_path / "run").status == "done"


class Hears(SweepDisplay):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


def test_the_runs_of_a_sweep_have_their_own(tmp_path: Path) -> None:
    axes = {
        "callbacks": {
            "none": {},
            "stops": {f"{__name__}:Watch": {"last": 3}},
            "fails": {f"{__name__}:Fails": {"hook": "on_round", "after": 2}},
            "unfit": {f"{__name__}:Fails": {"hook": "check"}},
            "late": {f"{__name__}:Fails": {"hook": "on_end"}},
        }
    }
    shown = Hears()
    source = {"name": "try", "base": CONFIG, "grid": axes}
    outcomes = carry_out(plan_sweep(source, (), tmp_path), True, None, shown)
    none, stops, fails, unfit, late = outcomes
    assert [outcome.status for outcome in outcomes] == ["done", "done", "failed", "failed", "failed"]
    assert none.result is not None
    assert stops.result is not None
    assert (none.result.rounds, none.result.stopped_by) == (8, None)
    assert (stops.result.rounds, stops.result.stopped_by) == (3, f"{__name__}:Watch")
    assert shown.said == [f"stops: {__name__}:Watch ends the run after round 3: enough"]
    assert "; on_round, round 2" in fails.problem
    assert unfit.problem == f"callbacks.{__name__}:Fails: found what is not allowed"
    assert "; on_end, round 8" in late.problem
    assert raysim.load(tmp_path / "late").status == "done"
    alone = raysim.run(CONFIG, out=tmp_path / "alone", local=True, callbacks=[Watch(last=3)])
    assert alone.model_sha256 == stops.result.model_sha256


WRONG: Mapping[str, tuple[object, str]] = {
    "a name": ({"early_stoping": {}}, "unknown callback 'early_stoping'; did you mean 'early_stopping'?"),
    "a key": (
        {"early_stopping": {"patients": 3}},
        "unknown key 'patients' of 'early_stopping'; did you mean 'patience'",
    ),
    "a value": ({"early_stopping": {"patience": 0}}, "found 0, allowed: a whole number >= 1"),
    "no block": ({"early_stopping": 3}, "found 3, allowed: a block of the callback's keys"),
    "no callback": ({f"{__name__}:Loses": {}}, "allowed: a subclass of raysim.callbacks.Callback"),
    "a list": (["early_stopping"], "allowed: a block of callbacks' names, each with its keys, such as {early_stopping"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_before_anything_starts(case: str, tmp_path: Path) -> None:
    value, words = WRONG[case]
    with pytest.raises(ConfigError) as found:
        raysim.run(CONFIG, {"callbacks": value}, tmp_path / "run", True)
    assert words in str(found.value)
    assert not (tmp_path / "run").exists()


def test_a_mapping_is_the_configs_block(tmp_path: Path) -> None:
    """It replaces the config's callbacks. A list adds to them."""
    config = {**CONFIG, "callbacks": {f"{__name__}:Watch": {}}}
    added = raysim.run(config, out=tmp_path / "added", local=True, callbacks=["early_stopping"])
    instead = raysim.run(config, out=tmp_path / "instead", local=True, callbacks={"early_stopping": {"patience": 7}})
    blocks = [[*load(one.directory / "config.yaml").callbacks] for one in (added, instead)]
    assert blocks == [["early_stopping", f"{__name__}:Watch"], ["early_stopping"]]


@pytest.mark.parametrize("given", ["early_stopping", Watch()])
def test_what_is_no_list_is_refused(given: Any, tmp_path: Path) -> None:
    """A text is a sequence of letters."""
    words = re.escape(f"callbacks: found {given!r:.60}, allowed: a list, such as ['early_stopping']")
    with pytest.raises(ConfigError, match=f"^{words}$"):
        raysim.run(CONFIG, out=tmp_path / "run", local=True, callbacks=given)
    assert not (tmp_path / "run").exists()


def test_what_is_no_callback_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"callbacks: found 3, allowed: names and objects of raysim.callbacks.Callb"):
        raysim.run(CONFIG, out=tmp_path / "run", local=True, callbacks=cast(list[Any], [3]))
    assert not (tmp_path / "run").exists()


class Misspelled(Callback):
    """Would never be called."""

    def on_rounds(self, run: Any, done: Any) -> None:
        raise AssertionError


def test_a_misspelled_hook_is_refused(tiny: Any) -> None:
    words = r"callbacks.Misspelled: found Misspelled.on_rounds \(.*\), which is never called, allowed: on_start, "
    with pytest.raises(ConfigError, match=words):
        make_callbacks(tiny(), [], [Misspelled()])


def test_a_hook_with_other_parameters_is_refused(tiny: Any) -> None:
    short = type("Short", (Callback,), {"on_round": lambda self, run: None})
    words = r"^callbacks.Short: .*<lambda> \(.*:\d+\) cannot be called, allowed: on_round\(self, run, done\)$"
    with pytest.raises(ConfigError, match=words):
        make_callbacks(tiny(), [], [short()])


def test_they_stay_with_the_driver(tiny: Any) -> None:
    """A class of the script itself may be one under Ray, and its module is not sent to other machines."""
    config = tiny(callbacks={f"{__name__}:Watch": {}})
    assert find_custom_code(names_for_actors(config)) == []
    refuse_main(names_for_actors(config.model_copy(update={"callbacks": {"__main__:Watch": {}}})))


def test_list_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "callbacks"]) == 0
    assert capsys.readouterr().out.startswith("early_stopping   Ends the run when a metric has not improved")
    assert main(["list", "callbacks", "early_stopping"]) == 0
    assert "evaluations (accuracy) or rounds (others) in a row without improvement" in capsys.readouterr().out
