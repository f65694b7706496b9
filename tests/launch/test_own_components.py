"""Components of one's own, of every kind: examples/own_package runs, and what breaks its kind's rules is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import raysim
from examples.own_package.parts import Brier, EveryNth, Lion, darker, staircase
from raysim.cli import main
from raysim.config import load
from raysim.data.partition import PARTITIONS
from raysim.evaluation.metric_sums import add_exactly, evaluate_metric
from raysim.federation.availability import Progress
from raysim.federation.federation import build_federation
from raysim.launch.check import estimate_run
from raysim.memory import Memory, MemoryKind, Policy

ROOT = Path(__file__).parents[2]
OWN = "examples/own_package/run.yaml"
PARTS = "examples.own_package.parts"


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


def test_a_stream_of_ones_own_runs(tmp_path: Path) -> None:
    """Three clients with four windows of two rounds each; only their tests are of the dataset."""
    result = raysim.run("examples/own_package/stream.yaml", out=tmp_path / "run", local=True)
    assert (result.rounds, result.updates) == (8, 24)


def test_the_writers_of_the_package_may_be_its_clients() -> None:
    streams = build_federation(load(OWN, {"partition": "natural", "clients.count": 20})).streams
    assert [len(stream) // 2 for stream in streams[:3]] == [72, 72, 71]  # of 1433 rows, ends at 71.65, 143.3, 214.95


def test_check_reckons_with_them() -> None:
    lines = dict(estimate_run(load(OWN)))
    assert lines["tasks"] == "2: rolled by 0; rolled by 1"
    assert lines["clients"] == "4, each with 257 to 515 samples at a time"
    steps = 4 * sum(-(-samples // 32) for samples in (515, 364, 297)) * 2  # four rounds of two tasks, batches of 32
    # A custom method decides itself how many steps it takes, so its figure is what a rehearsal suggests.
    assert lines["steps"].startswith(f"about {steps} gradient steps")


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


def test_an_own_metric_by_hand_in_the_summary(tmp_path: Path) -> None:
    """Probabilities 3/4 and 1/4, then 1/2 and 1/2, label 0: (1/16 + 1/16 + 1/4 + 1/4) / 2 = 5/16. Ten equal: 0.9."""
    objective = Brier()
    logits = torch.tensor([[3.0, 1.0], [1.0, 1.0]], dtype=torch.float64).log()
    measured = objective.measure(objective.predict(logits), torch.zeros(2, dtype=torch.int64))
    assert evaluate_metric(objective, add_exactly(objective, [measured]), 2, "task 1") == pytest.approx(5 / 16)
    flat = {"training.optimizer": {"name": "sgd", "lr": 1e-30}, "training.rounds_per_task": 1}
    result = raysim.run(OWN, {**flat, "logging.tensorboard": False}, out=tmp_path / "run", local=True)
    found = result.evaluation["domain_il"]
    assert (found["metric"], found["unit"], found["higher_is_better"]) == ("Brier score", "", False)
    assert found["accuracy"][0] == found["accuracy"][1]  # nothing was learned
    assert 0.85 < found["average_accuracy"] < 1.1
    assert found["forgetting"] == found["backward_transfer"] == found["forward_transfer"] == 0


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


def nothing(lr: float, progress: Progress) -> Any:
    return None if progress.round == 2 else lr


def test_the_last_checkpoint_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    own = [f"training.lr_decay={{name: '{__name__}:nothing'}}", "checkpoint.every_rounds=1"]
    assert main(["run", OWN, *own, "--out", str(out), "--local", "--quiet"]) == 1
    *_, above, last = capsys.readouterr().err.splitlines()
    assert "training.lr_decay: in round 2 nothing (" in last
    assert above == f"resume from round 1: raysim run --resume --out {out} --local --trust"


def test_list_says_what_there_is_and_the_keys_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "partitions"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*PARTITIONS]
    assert main(["list", "methods", "er"]) == 0
    about, sample_size, *memory = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert about.startswith("er ER: one mean loss over the batch and a replayed one")
    said = "sample_size null a whole number >= 1 or null; replayed samples of a step; null is the batch size"
    assert sample_size == said
    assert (
        memory[0]
        == "memory.capacity 200 a whole number >= 1; The buffer size: the number of samples that a client holds."
    )
    assert [line.split()[0] for line in memory[1:]] == ["memory.per", "memory.policy", "memory.fill"]
    assert main(["list", "memory_policies", f"{PARTS}:EveryNth"]) == 0
    *_, key = capsys.readouterr().out.splitlines()
    assert " ".join(key.split()) == "n 3 a whole number >= 1; of so many samples one is kept"
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
