"""The model `hugging_face`: an encoder or a causal language model of transformers by its folder."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Lt, doc
from torch import nn

from raysim.config.error_text import either
from raysim.models.hugging_face.folder import CONFIG, KEY, is_decoder, load_body, read_config, weight_files
from raysim.models.hugging_face.network import Pool, PretrainedNetwork
from raysim.system.errors import ConfigError

ARRAYS = ("input_ids", "attention_mask", "token_type_ids")


def hugging_face(
    shape: tuple[int, ...] | Mapping[str, tuple[int, ...]],
    classes: int,
    *,
    path: Annotated[
        str, doc("a folder with config.json and model.safetensors, hf://OWNER/NAME[@REVISION], or minilm-l6")
    ],
    head: Annotated[
        Literal["classifier", "causal_lm", "none"],
        doc("a linear layer on a text's vector; the logits of each next token; or the text's vector itself"),
    ] = "classifier",
    pool: Annotated[
        Literal["mean", "first", "last"] | None,
        doc("a text's vector: the mean of its tokens, the first or the last; null is mean for encoders, else last"),
    ] = None,
    pretrained: Annotated[bool, doc("whether the weights are the folder's; false draws them from the seed")] = True,
    dtype: Annotated[
        Literal["float32", "float64", "bfloat16", "float16"],
        doc("the type of the body's weights; what is trained must be float32 or float64"),
    ] = "float32",
    attention: Annotated[
        Literal["sdpa", "eager"], doc("torch's fused attention, or plain operations with other last bits")
    ] = "sdpa",
    dropout: Annotated[
        Annotated[float, Ge(0), Lt(1)] | None, doc("all dropout probabilities; null is those of config.json")
    ] = None,
    vocabulary: Annotated[
        Annotated[int, Ge(1)] | None, doc("the number of ids in the samples; null is as many as the data have")
    ] = None,
) -> nn.Module:
    """An encoder or causal language model of transformers from a folder or the hub; keys path, head, pool.

    Raises:
        ConfigError: the folder has no config or weights that fit, or the samples are not token ids.
    """
    length = _expect_texts(shape)
    files = weight_files(path)
    folder = files[CONFIG].parent
    if pretrained and len(files) == 1:
        raise ConfigError(
            f"{KEY}: {folder} has no weights, allowed: model.safetensors or its shards with an index; or "
            "model.pretrained=false, which draws initial weights"
        )
    config = read_config(folder, dropout)
    _check_vocabulary(config, vocabulary)
    masked = isinstance(shape, Mapping) and "attention_mask" in shape
    padding = config.pad_token_id
    if not masked and padding is None:
        problem = f"samples of ids without a mask need pad_token_id in {folder / CONFIG}, which has none"
        raise ConfigError(f"{KEY}: {problem}; add it, or give samples an attention_mask")
    body, left_out = load_body(folder, config, head == "causal_lm", pretrained, attention, getattr(torch, dtype))
    body.train()
    if head == "causal_lm":
        return PretrainedNetwork(body, None, None, padding)
    how: Pool = pool or ("last" if is_decoder(config) else "mean")
    wide = torch.float64 if dtype == "float64" else torch.float32
    linear = nn.Linear(config.hidden_size, classes, dtype=wide) if head == "classifier" else None
    return PretrainedNetwork(body, how, linear, padding)


def _expect_texts(shape: tuple[int, ...] | Mapping[str, tuple[int, ...]]) -> int:
    """Return the length of the texts. Raises ConfigError: the samples are not ids."""
    shapes = dict(shape) if isinstance(shape, Mapping) else {"input_ids": shape}
    if (
        {*shapes} - {*ARRAYS}
        or "input_ids" not in shapes
        or len({*shapes.values()}) != 1
        or len(shapes["input_ids"]) != 1
    ):
        allowed = f"token ids [length], or the arrays {either(ARRAYS)} of one length"
        raise ConfigError(f"model.name: found samples {shapes}, allowed for hugging_face: {allowed}")
    return shapes["input_ids"][0]


def _check_vocabulary(config: Any, vocabulary: int | None) -> None:
    """Refuse samples that are no ids, or that have ids beyond the model's. Raises ConfigError."""
    if vocabulary is None:
        raise ConfigError("model.name: found samples of numbers, allowed for hugging_face: token ids (int64)")
    if vocabulary > config.vocab_size:
        allowed = f"at most {config.vocab_size:,}, the model's vocabulary; use the tokenizer of the model's folder"
        raise ConfigError(f"{KEY}: found {vocabulary:,} ids in the data, allowed: {allowed}")
