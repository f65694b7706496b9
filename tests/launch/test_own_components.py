"""Components of one's own, of every kind: examples/own_package runs, and what breaks its kind's rules is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import raysim
from examples.own_package.parts import EveryNth, Lion, darker, staircase
from raysim.cli import main
from raysim.config import dump, load
from raysim.data.partition import PARTITIONS
from raysim.data.scenario import Task
from raysim.federation.availability import Progress
from raysim.federation.federation import build_federation
from raysim.launch.check import estimate_run
from raysim.memory import Memory, MemoryKind, Policy

ROOT = Path(__file__).parents[2]
OWN = "examples/own_package/run.yaml"
PARTS = "examples.own_package.parts"
PERMUTED = {"kind": "domain_incremental", "shift": "permutation", "tasks": 2}


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_package_runs_and_its_parts_are_what_runs(tmp_path: Path) -> None:
    """The three largest of four clients, whose sizes are in proportion to (k + 1)^-0.5: of 1433 samples 1433 / 2.78446

    times 1, 1.70711, 2.28446 and 2.78446 are the ends, rounded 515, 879, 1176 and 1433.
    """
    config = load(OWN)
    streams = build_federation(config).streams
    assert [len(stream) // 2 for stream in streams] == [515, 364, 297, 257]
    result = raysim.run(config, {"logging.tensorboard": False}, out=tmp_path / "run", local=True)
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert {tuple(line["cohort"]) for line in lines} == {(0, 1, 2)}
    assert list(result.evaluation) == ["domain_il"]
    _, both = (line["evaluation"]["domain_il"] for line in lines if "evaluation" in line)
    recorded = [json.loads(line) for line in (tmp_path / "run" / "callbacks.jsonl").read_text().splitlines()]
    assert [(note["round"], note["value"]) for note in recorded] == [(4, 0.0), (8, abs(both[0] - both[1]))]
    plain = raysim.run(config, {"training.optimizer": "sgd"}, out=tmp_path / "sgd", local=True)
    assert plain.model_sha256 != result.model_sha256
    again = raysim.run(tmp_path / "run" / "config.yaml", out=tmp_path / "again", local=True)
    assert again.model_sha256 == result.model_sha256


def test_check_reckons_with_them() -> None:
    lines = dict(estimate_run(load(OWN)))
    assert lines["tasks"] == "2: rolled by 0; rolled by 1"
    assert lines["clients"] == "4, each with 257 to 515 samples at a time"
    steps = 4 * sum(-(-samples // 32) for samples in (515, 364, 297)) * 2  # four rounds of two tasks, batches of 32
    assert lines["steps"] == f"{steps} gradient steps"


def test_their_arithmetic_by_hand() -> None:
    """Lion from momentum 0: the step is the sign of 0.1 g, then of 0.9 m + 0.1 g with m = 0.01 g of the first step.

    With g = 1 and then -0.05 it is +, then 0.9 * 0.01 - 0.1 * 0.05 = 0.004, + again.
    """
    optimizer, w = Lion(), torch.zeros(1)
    for gradient in (1.0, -0.05):
        optimizer.step(w, torch.tensor([gradient]), 0.5)
    assert w.item() == -1.0
    rates = [staircase(0.8, Progress(round, 6, round // 4, 3 * (round // 4), 3)) for round in range(1, 7)]
    assert rates == [0.8, 0.8, 0.4, 0.8, 0.8, 0.4]
    images = torch.full((2, 1, 1, 1), 200, dtype=torch.uint8)
    assert darker(images, torch.tensor([0, 2**52]), most=0.5).flatten().tolist() == [200, 150]
    memory = Memory(MemoryKind(f"{PARTS}:EveryNth", capacity=2, keys={"n": 3}))
    for start in (0, 5):
        positions = torch.arange(start, start + 5)
        memory.offer(positions, np.zeros(5, np.int64), np.zeros(5, np.int64), np.random.default_rng(0))
    assert memory.entries().positions.tolist() == [6, 9]  # of 0, 3, 6 and 9 the latest two
    assert isinstance(EveryNth(2), Policy)


def test_an_own_augmentation_is_drawn_after_raysims_and_replayed() -> None:
    federation = build_federation(load(OWN))
    source = federation.source("train", torch.device("cpu"))
    drawn, flips = source.draw(np.random.default_rng(3), 5), np.random.default_rng(3)
    assert np.array_equal(drawn[:, 2], flips.integers(0, 2, size=5))
    assert np.array_equal(drawn[:, 3], flips.integers(0, 2**53, size=(5, 1))[:, 0])
    rows = torch.arange(5)
    bare, shown = source.fetch(rows, 0), source.fetch(rows, 0, torch.from_numpy(drawn))
    for row in range(5):
        image = bare[row].flip(-1) if drawn[row, 2] else bare[row]
        kept = 1 - 0.3 * drawn[row, 3] / 2**53
        lost = 255 * (image * kept - shown[row])  # what is cut off of whole grey values
        assert -0.001 < lost.min() < 0.4 < lost.max() < 1.001


def wrong_parts(labels: Any, clients: int, generator: Any) -> Any:
    return [labels.astype(float)] * clients


def lost_part(labels: Any, clients: int, generator: Any) -> Any:
    return [np.arange(3)]


def shared_row(labels: Any, clients: int, generator: Any) -> Any:
    return [np.array([7])] * clients


def beyond(labels: Any, clients: int, generator: Any) -> Any:
    return [np.array([len(labels)])] * clients


def no_tasks(dataset: Any, tasks: int, generator: Any) -> Any:
    return None


def foreign_class(dataset: Any, tasks: int, generator: Any) -> Any:
    return [Task("x", (0,), None, np.arange(9), np.arange(9))] * tasks


def halved(images: Tensor, numbers: Tensor) -> Tensor:
    return images[: len(images) // 2]


def other_dtype(images: Tensor, numbers: Tensor) -> Tensor:
    return images.double() if len(images) > 2 else images


def stepless(*, lr: float = 0.1) -> object:
    return 3


class Infinite:
    def __init__(self, *, lr: float = 0.1) -> None:
        pass

    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        parameters.fill_(torch.inf)


class Later(Infinite):
    def step(self, parameters: Tensor, gradient: Tensor, lr: float) -> None:
        parameters.fill_(torch.inf if len(parameters) > 3 else 0.0)


def nothing(lr: float, progress: Progress) -> Any:
    return None if progress.round == 2 else lr


class Gap(Policy):
    def choose(self, labels: Any, tasks: Any, draws: Any) -> Any:
        return np.arange(len(labels)) + (len(labels) > 3)


class Foreign(Policy):
    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.table = np.zeros(3)

    def choose(self, labels: Any, tasks: Any, draws: Any) -> Any:
        return np.full(len(labels), -1)


def names(server: Any, count: int, draws: Any) -> Any:
    return ["first"]


def drawing(labels: Any, clients: int, generator: Any) -> Any:
    return np.array_split(np.random.permutation(len(labels)), clients)


def raising(labels: Any, clients: int, generator: Any) -> Any:
    raise ZeroDivisionError("mine")


WRONG: dict[str, tuple[dict[str, object], str]] = {
    "rows of no integers": (
        {"partition": "wrong_parts"},
        "returned float64 [1433] for client 0, allowed: whole numbers",
    ),
    "parts for other clients": ({"partition": "lost_part"}, "returned 1 parts, allowed: a list of 4 arrays of rows"),
    "a row twice": ({"partition": "shared_row"}, "returned row 7 4 times, allowed: each row once, to one client"),
    "rows that are not there": ({"partition": "beyond"}, "returned rows from 1433 to 1433, allowed: 0 to 1432"),
    "no tasks": (
        {"scenario": {"kind": "no_tasks", "tasks": 2}},
        "returned NoneType, allowed: a list of 2 tasks, raysim.data.scenario.",
    ),
    "a class of no task": (
        {"scenario": {"kind": "foreign_class", "tasks": 2}},
        "returned in task 1 train a sample of class 1, allowed: ",
    ),
    "another shape": (
        {"dataset.augment": ["halved"]},
        "returned uint8 [1, 1, 8, 8], allowed: uint8 [2, 1, 8, 8], as it",
    ),
    "another dtype": ({"dataset.augment": ["other_dtype"]}, "as it was given; client 0, round 1"),
    "no optimizer": ({"training.optimizer": "stepless"}, "made int, allowed: an object with step(parameters, gradient"),
    "infinite steps": ({"training.optimizer": "Infinite"}, "made [inf, inf, inf] of parameters of 1, allowed: finite"),
    "infinite later": (
        {"training.optimizer": "Later"},
        "client 0 diverged in round 1 (er), the update of its parameters: found inf",
    ),
    "no rate": (
        {"training.lr_decay": {"name": "nothing"}},
        "returned None, allowed: a number >= 0, the round's learning",
    ),
    "a gap": (
        {"memory.policy": "Gap"},
        "gave the slot 32 while 0 is empty, allowed: slots filled from 0 on, without gaps;",
    ),
    "a state of no kind": ({"memory.policy": "Foreign"}, "holds a ndarray in table, which a checkpoint cannot keep"),
    "no ids": ({"participation.sampler": "names"}, "returned ['first'], allowed: clients' ids, whole numbers out of"),
    "a draw from elsewhere": ({"partition": "drawing"}, "shares; allowed: the generator that it is given"),
    "an exception": ({"partition": "raising"}, "the run failed: ZeroDivisionError: mine (raising, "),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_result_is_named(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the last line: whose it is, with file and line, what was found, what is allowed, and where in the run."""
    keys, words = WRONG[what]
    usual = load(OWN, {"dataset.augment": [], "scenario": PERMUTED})
    path = tmp_path / "run.yaml"
    path.write_text(dump(usual))
    ((key, value),) = keys.items()
    said = json.dumps(value)
    for function in [name for name in globals() if f'"{name}"' in said]:
        said = said.replace(f'"{function}"', f'"{__name__}:{function}"')
    overrides = [f"{key}={said}", "training.rounds_per_task=2", "logging.tensorboard=false"]
    assert main(["run", str(path), *overrides, "--out", str(tmp_path / "out"), "--local", "--quiet"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("the run failed: ")
    assert words in last
    if what not in ("infinite later", "a draw from elsewhere"):
        assert Path(__file__).name in last


def test_the_last_checkpoint_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    own = [f"training.lr_decay={{name: '{__name__}:nothing'}}", "checkpoint.every_rounds=1"]
    assert main(["run", OWN, *own, "--out", str(out), "--local", "--quiet"]) == 1
    *_, above, last = capsys.readouterr().err.splitlines()
    assert "training.lr_decay: in round 2 nothing (" in last
    assert above == f"go on from round 1: raysim run --resume --out {out} --trust"


def test_list_says_what_there_is_and_the_keys_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "partitions"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*PARTITIONS]
    assert main(["list", "methods", "er"]) == 0
    said = "sample_size null a whole number >= 1 or null; replayed samples of a step; null is as many as the batch has"
    assert " ".join(capsys.readouterr().out.split()) == said
    assert main(["list", "memory_policies", f"{PARTS}:EveryNth"]) == 0
    assert " ".join(capsys.readouterr().out.split()) == "n 3 a whole number >= 1; of so many samples one is kept"
    assert main(["list", "clients"]) == 2
    assert "unknown kind 'clients'; allowed: methods, datasets, models, scenarios, " in capsys.readouterr().err


def test_somebody_elses_directory_names_them_only_with_trust(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each new kind by the same door: what a run's directory names is not imported."""
    out = tmp_path / "run"
    assert main(["run", OWN, "--out", str(out), "--local", "--quiet", "logging.tensorboard=false"]) == 0
    for key in ("dataset.augment", "scenario.kind", "partition.kind", "training.optimizer.name", "memory.policy"):
        assert key.partition(".")[0] in (out / "config.yaml").read_text()
    assert main(["evaluate", str(out)]) == 2
    assert "is code of somebody's own, which is not imported from a run's directory; add --trust" in (
        capsys.readouterr().err
    )
    assert main(["evaluate", str(out), "--trust"]) == 0
