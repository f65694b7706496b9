"""Every kind of component of one's own, and each way to get it wrong: the one line that a user is told.

It says whose code it was, with file and line, where in the run, what was found and what is allowed.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import wrong_parts
import yaml

from raysim.cli import main

CONFIG: dict[str, Any] = {
    "name": "wrong",
    "dataset": {"name": "digits", "train_samples": 200},
    "scenario": {"kind": "domain_incremental", "shift": "permutation", "tasks": 2},
    "clients": {"count": 2},
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"rounds_per_task": 2},
    "memory": {"capacity": 60},
    "evaluation": {"every_rounds": 1},
    "checkpoint": {"every_rounds": 1},
    "logging": {"tensorboard": False},
}

Case = tuple[str, str, str]  # what the component does wrong, what is said of it, where in the run

PARTITION: list[Case] = [
    ("raises", "KeyError: 'raises' (parts, ", "partition wrong_parts:parts"),
    ("type", "returned float64 [200] for client 0, allowed: whole numbers [n], rows of the samples dealt", ""),
    ("count", "returned 1 parts, allowed: a list of 2 arrays of rows, one for each client", ""),
    ("twice", "returned row 7 2 times, allowed: each row once, to one client", ""),
    ("outside", "returned rows from 200 to 200, allowed: 0 to 199", ""),
    ("below", "returned rows from -1 to -1, allowed: 0 to 199", ""),
    ("ragged", "returned a part that is no array (setting an array element", ""),
    ("none", "returned NoneType, allowed: a list of 2 arrays of rows", ""),
    ("empty", "returned no row for any client, allowed: at least one of the 200 rows", ""),
    ("draws", "partition wrong_parts:parts used NumPy's global generator, which the whole process shares", ""),
]
SCENARIO: list[Case] = [
    ("raises", "KeyError: 'raises' (tasks, ", "scenario wrong_parts:tasks"),
    ("none", "returned NoneType, allowed: a list of 2 tasks, raysim.data.scenario.Task", ""),
    ("count", "returned 1 of them, allowed: a list of 2 tasks", ""),
    ("type", "returned 2 of them, allowed: a list of 2 tasks", ""),
    ("classes", "returned in task 1 the classes None, allowed: whole numbers, ascending", ""),
    ("foreign", "returned in task 1 train a sample of class", ""),
    ("outside", "returned in task 1 train rows from 1000000 to 1000008, allowed: 0 to 199", ""),
    ("twice", "returned in task 1 train a row twice, allowed: each once in a task", ""),
    ("floats", "returned in task 1 test float64 [9], allowed: whole numbers [n], rows of the split, n >= 1", ""),
    ("pixels", "returned in task 1 pixels int64 [2], allowed: null or whole numbers [64] from -1 to 63", ""),
]
OPTIMIZER: list[Case] = [
    ("raises", "ZeroDivisionError: mine (Optimizer.step, ", "training.optimizer, tried on three parameters"),
    ("stepless", "made Optimizer, allowed: an object with step(parameters, gradient, lr)", ""),
    ("vectors", "has vectors 3, allowed: two whole numbers >= 0", ""),
    ("infinite", "changed the test parameters [1, 1, 1] to [inf, inf, inf], allowed: three finite", ""),
    ("returns", "has a step that returned Tensor, allowed: parameters changed in place", ""),
    ("gradient", "changed the gradient, allowed: the parameters alone, in place", ""),
    ("rebinds", "changed none of the test parameters, allowed: parameters changed in place", ""),
    ("later", "diverged in round 1 (er), in the update of its parameters, made with Optimizer (", "client 0"),
]
RATE: list[Case] = [
    ("raises", "KeyError: 'raises' (rate, ", "server, round 2"),
    ("none", "returned None, allowed: a number from 0 to 3.4e+38, the round's learning rate", "round 2"),
    ("nan", "returned nan, allowed: a number from 0", "round 2"),
    ("negative", "returned -0.01, allowed: a number from 0", "round 2"),
    ("infinite", "returned inf, allowed: a number from 0", "round 2"),
    ("text", "returned 'small', allowed: a number from 0", "round 2"),
]
MEMORY: list[Case] = [
    ("raises", "KeyError: 'raises' (Memory.choose, ", "memory.policy, tried on three samples"),
    ("none", "gave object [] for 3 samples, allowed: a slot for each, from 0 to 59, or -1", "tried on three"),
    (
        "state",
        "has an attribute table with a ndarray, which a checkpoint cannot keep, allowed: a tensor",
        "tried on three",
    ),
    ("gap", "while 0 is empty, allowed: slots filled from 0 on, without gaps", "client 0, round 1"),
    ("outside", "gave the slot 999999, allowed: a slot for each, from 0 to 59, or -1", "client 0, round 1"),
    ("floats", "gave float64 [32] for 32 samples, allowed: a slot for each", "client 0, round 1"),
    ("fewer", "gave int64 [31] for 32 samples, allowed: a slot for each", "client 0, round 1"),
]
AUGMENTATION: list[Case] = [
    ("raises", "KeyError: 'raises' (augmented, ", "client 0, round 1"),
    ("shape", "returned uint8 [31, 1, 8, 8], allowed: uint8 [32, 1, 8, 8], as it was given", "client 0, round 1"),
    ("dtype", "returned float64 [32, 1, 8, 8], allowed: uint8 [32, 1, 8, 8]", "client 0, round 1"),
    ("nan", "returned float32 [32, 1, 8, 8], allowed: uint8 [32, 1, 8, 8]", "client 0, round 1"),
    ("none", "returned NoneType, allowed: uint8 [32, 1, 8, 8]", "client 0, round 1"),
]
SAMPLER: list[Case] = [
    ("raises", "KeyError: 'raises' (sampled, ", "server, round 1"),
    ("unknown", "returned [0, 99], allowed: ids of different clients with data now", "server, round 1"),
    ("twice", "returned [1, 1], allowed: ids of different clients", "server, round 1"),
    ("none", "returned None, allowed: ids of different clients", "server, round 1"),
    ("nobody", "returned [], allowed: ids of different clients", "server, round 1"),
    ("names", "returned ['first', 'second'], allowed: ids of different clients", "server, round 1"),
]
MODEL: list[Case] = [
    ("type", "returned int, allowed: a torch.nn.Module", ""),
    ("classes", "returns (2, 11) for 2 samples, allowed: a tensor of (2, 10)", ""),
    ("detached", "returns a tensor without a gradient, allowed: one that autograd can follow", ""),
    ("infinite", "returns NaN or infinite values before training, allowed: finite values", ""),
    ("detached later", "returned outputs without a gradient, allowed: one that autograd", "client 0, round 1"),
    ("raises", "KeyError: 'raises' (Network.forward, ", "client 0, round 1"),
    ("none", "returned NoneType, allowed: a tensor with a row for each of the 32 samples", "client 0, round 1"),
    ("rows", "returned float32 [31, 10], allowed: a tensor with a row for each of the 32", "client 0, round 1"),
    ("nan", "diverged in round 1 (er), in the update of its parameters, made with network (", "client 0"),
]
MODELS_REFUSED = ("type", "classes", "detached", "infinite")  # before anything starts
DATA: list[Case] = [
    ("raises", "KeyError: 'raises' (data, ", "dataset data"),
    ("labels", "train split: labels run from 1 to 10; allowed are 0..9", ""),
    ("shapes", "training samples are uint8 (1, 8, 8), test samples are uint8 (1, 8, 7); they must be alike", ""),
    ("dtype", "train split: x is float64; use uint8 (0..255), float32, or int64 for ids", ""),
    ("nan", "train split: x holds NaN or infinite values; every value must be finite", ""),
    ("uneven", "train split: 40 samples but 39 labels; there must be one label per sample", ""),
    ("tensors", "train split: found Tensor, ndarray; use Split(x, y) of numpy arrays", ""),
    ("classes", "classes is 10.0; it must be an int, at least 1", ""),
    ("none", "got NoneType; return a raysim.data.dataset.Dataset", ""),
    (
        "draws",
        "dataset data used NumPy's global generator, which the whole process shares; allowed: a generator of",
        "",
    ),
]
STREAM: list[Case] = [
    ("raises", "KeyError: 'raises' (stream, ", "client 0, round 2"),
    ("pair", "yielded, as sample 7 of client 0, int, allowed: a pair (x, y)", "client 0, round 2"),
    ("shape", "yielded, as sample 7 of client 0, float32 (63,), allowed: float32 (64,), as the tests'", "round 2"),
    ("label", "yielded, as sample 7 of client 0, the label 10, allowed: 0 to 9", "client 0, round 2"),
    ("text", "yielded, as sample 7 of client 0, the label 'one', allowed: 0 to 9", "client 0, round 2"),
    ("nan", "yielded, as sample 7 of client 0, NaN or infinite values, allowed: finite", "client 0, round 2"),
]
CLIENT: list[Case] = [
    ("finish none", "returned NoneType, allowed: a Delta and the terms, a dict", "client 1, round 3"),
    ("finish delta", "returned float32 [610], allowed: Delta(float32 [610], float32 [0])", "client 1, round 3"),
    ("finish shape", "returned Delta(float32 [609], float32 [0]), allowed: Delta(float32 [610]", "client 1, round 3"),
    ("finish list", "returned list, allowed: a dict from names", "client 1, round 3"),
    ("finish key", "returned a term 'not', allowed: the names in the method's `replies`: note", "round 3"),
    ("finish value", "returned note: float, allowed: a dict from names", "client 1, round 3"),
    ("finish weight", "returned note with the weight -1.0, allowed: a weight from 0 to 1", "client 1, round 3"),
    ("finish nan", "client 1 diverged in round 3 (ClientSide), in the update of its parameters returned by ", ""),
    ("finish term", "client 1 diverged in round 3 (ClientSide), in the terms from ClientSide.Client.finish (", ""),
    ("penalty none", "returned NoneType, allowed: a tensor float32 []", "client 1, round 3"),
    ("penalty shape", "returned float32 [32], allowed: a tensor float32 []", "client 1, round 3"),
    ("penalty detached", "returned a value without a gradient, which changes nothing, allowed: 0, or", "round 3"),
    ("penalty nan", "diverged in round 3 (ClientSide), in the update of its parameters, made with ClientSide.", ""),
    ("gradient none", "returned NoneType, allowed: a tensor float32 [610]", "client 1, round 3"),
    ("gradient shape", "returned float32 [609], allowed: a tensor float32 [610]", "client 1, round 3"),
    ("batch rows", "left x float32 [64, 1, 8, 8] and y int64 [32], allowed: as many rows", "client 1, round 3"),
    ("batch pair", "returned (float32 [32, 1, 8, 8], int64 [32]), allowed: None; change what", "client 1, round 3"),
    ("samples type", "returned float32 [100], allowed: positions in the client's stream: int64", "round 3"),
    ("samples outside", "returned positions from 1000100 to 1000199, allowed: positions in the client's", "round 3"),
    ("task_loss shape", "returned float32 [4], allowed: a tensor float32 []", "round 3"),
    ("task_loss detached", "returned a loss without a gradient, allowed: one that autograd", "client 1, round 3"),
    ("batches type", "returned int, allowed: batches of x [n, ...] and y [n], or None", "client 1, round 3"),
    ("batches rows", "yielded (float32 [4, 64], float32 [3]), allowed: batches of x [n, ...]", "client 1, round 3"),
    ("tell key", "returned a term 'not', allowed: the names in the method's `replies`: note", "round 3"),
    ("tell records", "found str, allowed: a number, or a tensor with one", "client 1, round 3"),
    ("tell nan", "client 1 diverged in round 3 (ClientSide.tell), in the terms from ClientSide.Client.tell (", ""),
]
SERVER: list[Case] = [
    ("select unknown", "returned [0, 7], allowed: ids of different clients with data now", "server, round 3"),
    ("select twice", "returned [0, 0], allowed: ids of different clients", "server, round 3"),
    ("select none", "returned None, allowed: ids of different clients", "server, round 3"),
    ("announce none", "returned NoneType, allowed: a message and a list of Broadcasts", "server, round 3"),
    (
        "announce broadcasts",
        "returned broadcasts of float32 [2], allowed: a message and a list of Broadcasts",
        "server, round 3",
    ),
    (
        "announce again",
        "sent another value for version 0 of the broadcast ServerSide, allowed: a new version",
        "server, round 3",
    ),
    ("update none", "returned NoneType, allowed: Delta(float32 [610], float32 [0])", "server, round 3"),
    ("update shape", "returned Delta(float32 [609], float32 [0]), allowed: Delta(float32 [610]", "server, round 3"),
    ("update double", "returned Delta(float64 [610], float32 [0]), allowed: Delta(float32 [610]", "server, round 3"),
    ("update nan", "found nan in the parameters of its new model, first in the delta from ServerSide.Server.", ""),
    ("evaluated type", "returned float32 [610], allowed: Weights(float32 [610], float32 [0]", "round 3"),
    (
        "evaluated shape",
        "returned Weights(float32 [609], float32 [0], int64 [0]), allowed: Weights(float32 [610], float32 [0]",
        "round 3",
    ),
    ("conclude type", "returned a plan of str, allowed: a plan that yields Requests", "server, round 3"),
    (
        "conclude op",
        "returned a plan that requests 'tell', allowed: the ops of the method's client half: name",
        "server, round 3",
    ),
    ("conclude to", "returned [7], allowed: ids of different clients with data now", "server, round 3"),
]

STREAMED = {"asynchronous": {"window": 5, "windows": 3, "rounds_per_window": 1}}
KINDS: dict[str, tuple[list[Case], str]] = {
    "partition": (PARTITION, "partition: {kind: 'wrong_parts:parts', wrong: WRONG}"),
    "scenario": (SCENARIO, "scenario: {kind: 'wrong_parts:tasks', tasks: 2, wrong: WRONG}"),
    "optimizer": (OPTIMIZER, "training.optimizer: {name: 'wrong_parts:Optimizer', wrong: WRONG}\nmethods: er"),
    "rate": (RATE, "training.lr_decay: {name: 'wrong_parts:rate', wrong: WRONG}"),
    "memory": (MEMORY, "memory.policy: {name: 'wrong_parts:Memory', wrong: WRONG}\nmethods: er"),
    "augmentation": (AUGMENTATION, "dataset.augment: [{name: 'wrong_parts:augmented', wrong: WRONG}]"),
    "sampler": (SAMPLER, "participation: {count: 1, sampler: {name: 'wrong_parts:sampled', wrong: WRONG}}"),
    "model": (MODEL, "model: {name: 'wrong_parts:network', wrong: WRONG}\nmethods: er"),
    "data": (DATA, "dataset: {name: 'wrong_parts:data', wrong: WRONG}"),
    "stream": (STREAM, "STREAM"),
    "client half": (CLIENT, "methods: {'wrong_parts:ClientSide': {wrong: WRONG}}"),
    "server half": (SERVER, "methods: {'wrong_parts:ServerSide': {wrong: WRONG}}"),
}
TABLE = [(kind, *case) for kind, (cases, _) in KINDS.items() for case in cases]


def overrides(kind: str, wrong: str) -> list[str]:
    if kind == "stream":
        own = {"name": "wrong_parts:stream", "wrong": wrong}
        keys: dict[str, Any] = {
            "dataset": {"name": "synthetic", "shape": [64], "train": 20, "test": 20},
            "scenario": {"kind": "class_incremental", "tasks": 2},
            "scenario.boundaries": {"asynchronous": {**STREAMED["asynchronous"], "stream": own}},
            "training.rounds_per_task": None,
        }
    else:
        keys = yaml.safe_load(KINDS[kind][1].replace("WRONG", json.dumps(wrong)))
    return [f"{key}={json.dumps(value)}" for key, value in keys.items()]


@pytest.mark.parametrize(("kind", "wrong", "said", "where"), TABLE, ids=[f"{row[0]}: {row[1]}" for row in TABLE])
def test_it_is_named(
    kind: str, wrong: str, said: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "run.yaml", tmp_path / "out"
    path.write_text(yaml.safe_dump(CONFIG))
    status = main(["run", str(path), *overrides(kind, wrong), "--out", str(out), "--local", "--quiet"])
    *above, last = capsys.readouterr().err.splitlines()
    before = (kind == "data" and wrong != "raises") or (kind == "model" and wrong in MODELS_REFUSED)
    assert status == (2 if before else 1)
    assert said in last
    assert where in last
    if wrong not in ("draws", "tell records"):
        assert re.search(rf"{re.escape(wrong_parts.__file__)}:\d+\)", last)
    if "round 3" in last:
        assert f"resume from round 2: raysim run --resume --out {out} --local --trust" in (last + "".join(above))


def test_a_reduction_that_there_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    assert main(["check", str(path), "methods=wrong_parts:Averages"]) == 2
    said = "its replies have 'average' for note, allowed: mean, sum, total, by_client"
    assert said in capsys.readouterr().err.splitlines()[-1]
