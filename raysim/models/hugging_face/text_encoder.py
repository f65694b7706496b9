"""A pretrained text encoder as a function from short texts to vectors, such as MiniLM's of class names."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from raysim.models.hugging_face.folder import (
    CONFIG,
    WEIGHTS,
    is_decoder,
    load_body,
    most_tokens,
    read_config,
    weight_files,
)
from raysim.models.hugging_face.network import Pool, pool_tokens
from raysim.models.peft_layout import HEAD
from raysim.system import seeding
from raysim.system.errors import ConfigError
from raysim.system.tokenizer_files import load_tokenizer, one_thread

TOKENIZER = "tokenizer.json"


def encoder_files(key: str, encoder: str) -> dict[str, Path]:
    """Return the files of an encoder's folder that decide its vectors, by name.

    Args:
        key: the config's key that names the encoder, for messages.
        encoder: a folder, hf://OWNER/NAME[@REVISION], or minilm-l6.

    Raises:
        ConfigError: there is no such folder, or it has no config.json, weights or tokenizer.json.
    """
    files = {name: path for name, path in weight_files(encoder, key).items() if name != HEAD}
    folder = files[CONFIG].parent
    files[TOKENIZER] = folder / TOKENIZER
    for name in (TOKENIZER, *([WEIGHTS] if len(files) == 2 else ())):
        if not (folder / name).is_file():
            raise ConfigError(f"{key}: found {encoder!r} without {name}, allowed: an encoder's folder, or minilm-l6")
    return files


def encode_texts(key: str, encoder: str, texts: Sequence[str]) -> Tensor:
    """Return the vectors [n, W] of texts, float32: the mean of the hidden states of a text's tokens.

    Of a causal language model it is the last token's. Each text passes alone, so its vector depends on no other.
    No generator is drawn from.

    Raises:
        ConfigError: the package transformers is not installed, or the folder has no encoder that it can read.
    """
    folder = encoder_files(key, encoder)[CONFIG].parent
    tokenizer, config = load_tokenizer(key, encoder), read_config(folder, 0.0, key)
    with seeding.generators_restored():
        body = load_body(folder, config, False, True, "eager", torch.float32, key)[0].eval()
    pool: Pool = "last" if is_decoder(config) else "mean"
    most = most_tokens(body)
    vectors = list[Tensor]()
    with torch.no_grad(), one_thread():
        for text in texts:
            inputs = tokenizer(text, truncation=most is not None, max_length=most, return_tensors="pt")
            mask = inputs["attention_mask"]
            hidden = body(input_ids=inputs["input_ids"], attention_mask=mask).last_hidden_state
            vectors.append(pool_tokens(hidden, mask, pool)[0])
    return torch.stack(vectors)
