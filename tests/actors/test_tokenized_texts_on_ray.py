"""Texts of a tokenizer on Ray: the bits of the local run, for labels and for instructions."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizers import for_answers

import raysim

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

TOPICS = ("sea", "sky", "sun", "ice")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """80 texts in four classes, as ids of a tokenizer of eight."""
    folder = tmp_path_factory.mktemp("texts")
    lines = [
        {"text": f"the {topic} {'the ' * (number % 3)}", "label": topic, "split": part}
        for part, count in (("train", 15), ("test", 5))
        for number in range(count)
        for topic in TOPICS
    ]
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    tokenizer = for_answers(folder / "words", ["the", *TOPICS, "?"])
    return {"name": "text_jsonl", "root": str(folder), "path": "t.jsonl", "tokenizer": tokenizer, "length": 6}


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a causal language model of eight ids."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = tmp_path_factory.mktemp("model")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"vocab_size": 8, "bos_token_id": 0, "eos_token_id": 1, "max_position_embeddings": 16}
    with torch.random.fork_rng():
        Qwen2ForCausalLM(Qwen2Config(**sizes, **ids, num_key_value_heads=1)).save_pretrained(folder)
    return str(folder)


def test_ray_gives_the_bits_of_the_local_run(
    small: dict[str, Any],
    dataset: dict[str, Any],
    language_model: str,
    facts: Callable[[raysim.Result], Mapping[str, Any]],
    tmp_path: Path,
) -> None:
    """Of next tokens, with clients that differ by topic and with replay."""
    keys = {
        "dataset": {**dataset, "target": "next_token"},
        "model": {"name": "hugging_face", "path": language_model, "head": "causal_lm"},
        "objective": "next_token",
        "scenario": {"kind": "by_column", "column": "label", "tasks": 2},
        "partition": {"kind": "dirichlet", "by": "label", "min_samples": 1},
        "methods": {"er": {}},
        "memory.capacity": 4,
    }
    here = facts(raysim.run(small, keys, out=tmp_path / "here", local=True))
    on_ray = {**keys, "resources.clients_per_actor": 2}
    assert facts(raysim.run(small, on_ray, out=tmp_path / "ray")) == here
