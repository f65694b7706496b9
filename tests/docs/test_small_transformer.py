"""Each way to train a small pretrained transformer runs, learns, and sends what it trains.

Evidence on adapters and prompts is in docs/results/adapters.md, on real weights. A transformer of this size says
nothing about accuracies, but all rows of such a table run on it in seconds.
"""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pages import ROOT

import raysim

WIDTH, DEPTH, CLASSES, CLIENTS, ROUNDS, RANK = 16, 2, 6, 3, 4, 2
LORA = {"rank": RANK, "where": ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"]}
HEAD = (WIDTH + 1) * CLASSES
INPUTS = WIDTH + WIDTH + WIDTH + 4 * WIDTH  # of the four layers
OUTPUTS = 3 * WIDTH + WIDTH + 4 * WIDTH + WIDTH
DUAL = {"kind": "dual", "general_blocks": [0], "blocks": [1], "general_length": 2, "length": 2, "pool": 2}
CODA = {"kind": "coda", "blocks": [0, 1], "pool": 6, "per_task": 3, "length": 2}
# by row: methods, keys of the model, the cross-entropy's classes, and the numbers that a client sends in a round
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any], str, int | None]] = {
    "linear head": ({}, {"adapters": {"rank": 0, "where": ["*"]}}, "task", HEAD),
    "Fed-LoRA": ({"lora": {}}, {"adapters": LORA}, "task", DEPTH * RANK * (INPUTS + OUTPUTS) + HEAD),
    "FFA-LoRA": ({"ffa_lora": {}}, {"adapters": LORA}, "task", DEPTH * RANK * OUTPUTS + HEAD),
    "LoRM": ({"lorm": {}}, {"adapters": LORA}, "task", None),
    "PILoRA": ({"pilora": {}}, {"adapters": LORA}, "all", None),
    "Fed-L2P": ({"fed_l2p": {}}, {"prompts": {"kind": "l2p", "length": 2, "top": 2}}, "task", None),
    "Fed-DualPrompt": ({"fed_dualprompt": {}}, {"prompts": DUAL}, "task", None),
    "Fed-CODA-P": ({"fed_coda_prompt": {}}, {"prompts": CODA}, "task", None),
    "all weights": ({}, {}, "task", None),
}


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The weights of a transformer that knows the digits 6 to 9, and the other digits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        script: ModuleType = importlib.import_module("examples.pretrain_small_vit")
    root = str(tmp_path_factory.mktemp("pretrained"))
    weights, others = script.pretrain("digits", "6-9", width=WIDTH, depth=DEPTH, steps=400, batch=32, root=root)
    return weights, others


@pytest.mark.soak
@pytest.mark.parametrize("row", ROWS)
def test_it_learns_and_sends_what_it_trains(row: str, pretrained: tuple[Path, Path], tmp_path: Path) -> None:
    """In task-IL, chance is one in two. The two tasks have 216 test images or more, so chance stays below 0.6.

    By chance the number of right answers of 216 has a standard deviation of sqrt(216 / 4) = 7.3, or 0.034 as a part.
    """
    methods, model, logits, numbers = ROWS[row]
    weights, others = pretrained
    size = {"name": "vit", "width": WIDTH, "depth": DEPTH, "patch": 2, "input_size": None, "weights": str(weights)}
    rates = {"lr_scales": {"head.*": 10}, "optimizer": {"name": "adam", "lr": 0.005}} if row == "PILoRA" else {}
    config = {
        "name": "small-transformer",
        "dataset": {"name": "npz", "path": str(others)},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "partition": {"kind": "iid"},
        "clients": {"count": CLIENTS},
        "model": size | model,
        "training": {
            "rounds_per_task": ROUNDS // 2,
            "local_epochs": 6,
            "batch_size": 16,
            "logits": logits,
            "optimizer": {"name": "adam", "lr": 0.02},
        }
        | rates,
        "methods": methods,
        "logging": {"tensorboard": False},
    }
    result = raysim.run(config, out=tmp_path / "run", local=True)
    assert result.evaluation["task_il"]["average_accuracy"] > 0.6
    if numbers is not None:
        assert result.bytes_up == 4 * numbers * CLIENTS * ROUNDS
