"""Runs on texts of a tokenizer: the same bits for any packing, for labels and for answers; a stream of instructions."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_tokenizers import for_answers

import raysim
from raysim.config import Config

TOPICS = ("sea", "sky", "sun")


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a causal language model of 15 ids, and one with its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    words = ["?", "copy", "next", "kind", *TOPICS, "one", "two", "three", "<user>", "<assistant>", "all"]
    folder = tmp_path_factory.mktemp("pretrained")
    for_answers(folder / "words", words)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"vocab_size": 2 + len(words), "bos_token_id": 0, "eos_token_id": 1, "max_position_embeddings": 16}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(LlamaConfig(**sizes, **ids)).save_pretrained(folder / "model")
    return folder


@pytest.fixture(scope="module")
def asked(tiny: Callable[..., Config], language_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function: a config of three tasks of instructions, a file each: copy a word, say the next one, or its kind."""
    folder = tmp_path_factory.mktemp("instructions")
    numbers = ("one", "two", "three")
    pairs = [*zip(TOPICS, numbers, strict=True), *zip(numbers, TOPICS, strict=True)]
    tasks = {
        "copy": {word: word for word, _ in pairs},
        "next": dict(pairs),
        "kind": {word: "all three ?" if word in TOPICS else "two" for word, _ in pairs},
    }
    for name, answers in tasks.items():
        samples = [
            {"prompt": f"{name} {word}", "answer": answer, "split": part}
            for part in ("train", "train", "test")
            for word, answer in answers.items()
        ]
        (folder / f"{name}.json").write_text(json.dumps(samples))
    dataset = {"name": "instructions", "root": str(folder), "path": [f"{name}.json" for name in tasks], "length": 7}
    usual = {
        "dataset": {**dataset, "tokenizer": str(language_model / "words")},
        "objective": "next_token",
        "scenario": {"kind": "by_column", "column": "file", "tasks": 3},
        "model": {"name": "hugging_face", "path": str(language_model / "model"), "head": "causal_lm"},
    }

    def make(**keys: Any) -> Config:
        return tiny(**{**usual, **keys})

    return make


def test_packing_does_not_change_a_bit(asked: Any, simulate: Any) -> None:
    config = asked(methods={"er": {}}, memory={"capacity": 6}, partition="iid")
    assert simulate(config).sha256 == simulate(config, None, [(2,), (1, 0)]).sha256


def test_a_stream_of_instructions_is_learned_and_forgotten(asked: Any, tmp_path: Path) -> None:
    """Every prompt has one answer, so perplexity 1 can be reached; a guess has 15. Each task is forgotten in the next.

    A row of the matrix is after a task, a column is the task that is tested.
    """
    training = {"rounds_per_task": 3, "local_epochs": 10, "batch_size": 8, "optimizer": {"name": "adam", "lr": 0.03}}
    config = asked(training=training, clients={"count": 2}, partition="iid")
    with pytest.warns(UserWarning, match="18 test samples are training samples, too"):
        matrix = raysim.run(config, out=tmp_path / "run", local=True).matrix
    assert (np.diag(matrix) < 1.6).all()
    assert (matrix[2, :2] > 5).all()
