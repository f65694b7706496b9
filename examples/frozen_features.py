"""Texts as a frozen transformer's features, in an npz that raysim reads.

python examples/frozen_features.py MODEL TEXTS OUT.npz [KEY=VALUE ...]

MODEL is a Hugging Face model by its name or folder, such as distilbert-base-uncased. The package transformers loads it.
TEXTS are JSON lines as the dataset text_jsonl takes them. The model stays as it is, and clients train a model on its
features. Fed-A-GEM's authors train a linear layer on DistilBERT, on YahooQA (Dai et al., TMLR 2024, section 5.2).
configs/papers/fed_a_gem_yahooqa.yaml runs that. KEY=VALUE are the parameters of `encode`.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from raysim.data.json_lines import LineKeys, read_texts


def encode(
    model: str,
    texts: str | Path,
    out: str | Path,
    *,
    test: str | None = None,
    keys: Sequence[str] = ("text", "label", "split"),
    pooling: str = "first",
    length: int = 256,
    batch: int = 32,
    seed: int = 0,
) -> None:
    """Write x_train, y_train, x_test and y_test: the features float32 [N, D] of texts and the numbers of their labels.

    Args:
        model: the name or the folder of a Hugging Face model.
        texts: the file of all texts, or of those to train on.
        out: the npz file.
        test: the file of the texts to test on; without it, texts are split as by the dataset text_jsonl.
        keys: those of the text, the label and the split in a line.
        pooling: first is the first token's output, which DistilBERT's own classifier takes; mean is the mean of all.
        length: the largest number of tokens of a text.
        batch: the number of texts in a pass.
        seed: the seed of the test texts, if no line says which they are.
    """
    from transformers import AutoModel, AutoTokenizer  # not one of raysim's own requirements

    tokenizer, network = AutoTokenizer.from_pretrained(model), AutoModel.from_pretrained(model).eval()
    text, label, split = keys
    given = LineKeys(text, label, split)
    found = read_texts(Path(texts), None if test is None else Path(test), given, 0.2, seed)
    arrays: dict[str, Any] = {}
    for name, part in zip(("train", "test"), (found.train, found.test), strict=True):
        rows = [
            _features(network, tokenizer, part.texts[start : start + batch], pooling, length)
            for start in range(0, len(part.texts), batch)
        ]
        arrays |= {f"x_{name}": np.concatenate(rows), f"y_{name}": part.y}
    np.savez(out, labels=np.array([str(label) for label in found.labels]), **arrays)


@torch.no_grad()
def _features(network: Any, tokenizer: Any, texts: Sequence[str], pooling: str, length: int) -> Any:
    """Return the features [n, D] of some texts."""
    given = tokenizer([*texts], padding=True, truncation=True, max_length=length, return_tensors="pt")
    outputs = network(**given).last_hidden_state  # [n, L, D]
    if pooling == "first":
        return outputs[:, 0].numpy()
    known = given["attention_mask"].unsqueeze(-1)
    return ((outputs * known).sum(1) / known.sum(1)).numpy()


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    pairs = (given.partition("=") for given in sys.argv[4:])
    encode(*sys.argv[1:4], **{key: yaml.safe_load(value) for key, _, value in pairs})
