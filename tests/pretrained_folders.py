"""Folders of tiny random models of transformers, as save_pretrained writes them."""

import json
from pathlib import Path
from typing import Any

import torch

from raysim.config import load
from raysim.models.arrays import Arrays, NamedArray
from raysim.models.building import build_model

IDS, LENGTH, WIDTH = 29, 6, 8
SIZES = {"vocab_size": IDS, "hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": 2, "pad_token_id": 0}
WIDE = {**SIZES, "intermediate_size": 16, "max_position_embeddings": 16}
ROTARY = {**WIDE, "num_key_value_heads": 1, "bos_token_id": 1, "eos_token_id": 2}
NAMES = ["bert", "distilbert", "roberta", "gpt2", "llama", "qwen2"]
DECODERS = ["gpt2", "llama", "qwen2"]
TEXTS = torch.tensor([[4, 9, 3, 28, 0, 0], [2, 1, 5, 7, 0, 0], [3, 0, 0, 0, 0, 0]])
MASK = (TEXTS != 0).long()


def config_of(kind: str, **keys: Any) -> Any:
    """Return a tiny config of an architecture."""
    import transformers

    made = {
        "bert": lambda: transformers.BertConfig(**{**WIDE, **keys}),
        "roberta": lambda: transformers.RobertaConfig(**{**WIDE, **keys}),
        "camembert": lambda: transformers.CamembertConfig(**{**WIDE, **keys}),
        "distilbert": lambda: transformers.DistilBertConfig(
            **{
                "vocab_size": IDS,
                "dim": WIDTH,
                "hidden_dim": 16,
                "n_layers": 3,
                "n_heads": 2,
                "max_position_embeddings": 16,
                "pad_token_id": 0,
                **keys,
            }
        ),
        "gpt2": lambda: transformers.GPT2Config(
            **{
                "vocab_size": IDS,
                "n_embd": WIDTH,
                "n_layer": 3,
                "n_head": 2,
                "n_positions": 16,
                "bos_token_id": 1,
                "eos_token_id": 2,
                **keys,
            }
        ),
        "llama": lambda: transformers.LlamaConfig(**{**ROTARY, **keys}),
        "qwen2": lambda: transformers.Qwen2Config(**{**ROTARY, "tie_word_embeddings": True, **keys}),
    }
    return made[kind]()


def write_folder(folder: Path, kind: str, *, causal: bool = False, shards: bool = False, **keys: Any) -> Path:
    """Write a folder with random weights of seed 0, and return it."""
    import transformers

    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = auto.from_config(config_of(kind, **keys))
        with torch.no_grad():
            for parameter in model.parameters():  # initial biases and norms are 0 and 1, which hide errors
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    model.save_pretrained(folder, max_shard_size="2KB" if shards else "1GB")
    return folder


def write_texts(folder: Path) -> Path:
    """Write 48 texts of 1 to 6 words in 4 classes, a third of them for tests. Words depend on the class."""
    lines = []
    for number in range(48):
        label, length = number % 4, 1 + number * 5 % 6
        words = [f"w{(3 * label + number * place) % 20}" for place in range(length)]
        split = "test" if number % 3 == 0 else "train"
        lines.append(json.dumps({"text": " ".join(words), "label": label, "split": split}))
    path = folder / "texts.jsonl"
    path.write_text("\n".join(lines))
    return path


def run_of_texts(folder: Path, texts: Path, **model: Any) -> dict[str, Any]:
    """Return a config of texts without a tokenizer: their words are ids from 2, and 0 is padding."""
    return {
        "name": "pretrained",
        "dataset": {"name": "text_jsonl", "path": str(texts), "length": LENGTH},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": 3},
        "model": {"name": "hugging_face", "path": str(folder), **model},
        "training": {"rounds_per_task": 2, "batch_size": 4, "optimizer": {"lr": 0.1}},
        "checkpoint": {"every_rounds": 1},
        "logging": {"tensorboard": False},
    }


ARRAYS = Arrays((NamedArray("input_ids", (LENGTH,), IDS), NamedArray("attention_mask", (LENGTH,), 2)))
BY_COLUMN = {"kind": "by_column", "column": "topic", "tasks": 1}
ROWS = torch.cat([TEXTS, MASK], 1)


def config_for(folder: Path, objective: str = "classification", training: Any = None, **keys: Any) -> Any:
    return load(
        {
            "name": "pretrained",
            "dataset": {"name": "digits"},
            "scenario": {"kind": "class_incremental", "tasks": 1} if objective == "classification" else BY_COLUMN,
            "clients": {"count": 1},
            "objective": objective,
            "model": {"name": "hugging_face", "path": str(folder), **keys},
            "training": {"rounds_per_task": 1, **(training or {})},
        }
    )


def built(folder: Path, classes: int = 3, vocabulary: Any = ARRAYS, **keys: Any) -> Any:
    return build_model(config_for(folder, **keys), (2 * LENGTH,), classes, vocabulary)
