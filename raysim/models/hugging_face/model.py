"""The model `hugging_face`: an encoder or a causal language model of transformers by its folder."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Lt, doc
from pydantic import Field
from torch import nn

from raysim.config.block import Allowed
from raysim.config.error_text import either, shorten
from raysim.models.hugging_face.folder import (
    CONFIG,
    KEY,
    WEIGHTS,
    is_decoder,
    load_body,
    most_tokens,
    name_version,
    read_config,
    weight_files,
)
from raysim.models.hugging_face.network import Pool, PretrainedNetwork
from raysim.models.hugging_face.prompted import PromptedNetwork
from raysim.models.hugging_face.saved_head import load_head
from raysim.models.hugging_face.trial import try_pass
from raysim.models.peft_layout import HEAD
from raysim.models.prompt_keys import CodaKeys, DualKeys, PrefixKeys, TextL2PKeys, TextPromptKeys
from raysim.system.errors import ConfigError

SHOWN = 4  # names in a note
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
        Annotated[float, Ge(0), Lt(1)] | None,
        doc("all dropout probabilities; null is those of config.json, and 0 with prompts"),
    ] = None,
    prompts: Annotated[
        Annotated[TextL2PKeys | DualKeys | CodaKeys | PrefixKeys, Field(discriminator="kind")] | None,
        Allowed("null or a block with kind: l2p, dual, coda or prefix, and the keys that this has"),
        doc("trained prompts of an encoder with a classifier; all other weights except the head's are then frozen"),
    ] = None,
    vocabulary: Annotated[
        Annotated[int, Ge(1)] | None, doc("the number of ids in the samples; null is as many as the data have")
    ] = None,
) -> nn.Module:
    """An encoder or causal language model of transformers from a folder or the hub; keys path, head, pool.

    Raises:
        ConfigError: the folder has no config or weights that fit, or the samples are not token ids.
    """
    arrays, length = _expect_texts(shape)
    files = weight_files(path)
    folder = files[CONFIG].parent
    if pretrained and len(files) == 1:
        allowed = f"allowed: {WEIGHTS} or its shards with an index; or model.pretrained=false, which draws them"
        raise ConfigError(f"{KEY}: {shorten(str(folder))} has no weights, {allowed}")
    config = read_config(folder, 0.0 if prompts is not None and dropout is None else dropout)
    _check_vocabulary(config, vocabulary)
    if "attention_mask" not in arrays and config.pad_token_id is None:
        problem = f"{shorten(str(folder / CONFIG))} has no pad_token_id, which samples of ids without a mask need"
        raise ConfigError(f"{KEY}: {problem}; add it, or use a dataset with an attention_mask")
    causal = head == "causal_lm"
    body, left_out, absent = load_body(folder, config, causal, pretrained, attention, getattr(torch, dtype))
    most = most_tokens(body)
    if most is not None and length > most:
        raise ConfigError(f"{KEY}: found texts of {length:,} tokens, allowed: at most {most:,} (dataset.length)")
    body.train()
    how: Pool | None = None if causal else pool or ("last" if is_decoder(config) else "mean")
    wide = torch.float64 if dtype == "float64" else torch.float32
    linear = nn.Linear(config.hidden_size, classes, dtype=wide) if head == "classifier" else None
    if prompts is None:
        network = PretrainedNetwork(body, how, linear, arrays, length)
    else:
        _check_prompts(config, prompts, head, how, attention, dropout, length, most)
        assert how is not None
        assert linear is not None
        network = PromptedNetwork(body, how, linear, arrays, length, prompts)
    if pretrained:
        saved = files.pop(HEAD, None)
        network.files = tuple(file for file in files.values() if file.suffix == ".safetensors")
        of_head = () if saved is None else load_head(network, saved)
        network.notes = (*_describe_unused(left_out), *_describe_absent(absent), *of_head)
    network.made_by = f"{name_version()} {config.to_json_string()}"
    try_pass(network, causal)
    return network


def _describe_unused(names: Sequence[str]) -> tuple[str, ...]:
    """Return a note on the tensors of the files that the network does not use, such as another head's."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (f"weights: not used of the file: {', '.join(names[:SHOWN])}{more}",) if names else ()


def _describe_absent(names: Sequence[str]) -> tuple[str, ...]:
    """Return a note on the output layer, if its weights are drawn because the files are of a model without one."""
    return (f"weights: initial values where the files have none: {', '.join(names)}",) if names else ()


def _expect_texts(shape: tuple[int, ...] | Mapping[str, tuple[int, ...]]) -> tuple[tuple[str, ...], int]:
    """Return the names of a sample's arrays, and its tokens. Raises ConfigError: the samples are not ids."""
    shapes = dict(shape) if isinstance(shape, Mapping) else {"input_ids": shape}
    sizes = {*shapes.values()}
    if {*shapes} - {*ARRAYS} or "input_ids" not in shapes or len(sizes) != 1 or len(shapes["input_ids"]) != 1:
        allowed = f"token ids [length], or the arrays {either(ARRAYS)} of one length"
        raise ConfigError(f"model.name: found samples {shapes}, allowed for hugging_face: {allowed}")
    return tuple(shapes), shapes["input_ids"][0]


def _check_prompts(
    config: Any,
    prompts: TextPromptKeys,
    head: str,
    pool: Pool | None,
    attention: str,
    dropout: float | None,
    length: int,
    most: int | None,
) -> None:
    """Refuse prompts of a model that has no place for them. Raises ConfigError."""
    tokens = prompts.top * prompts.length if isinstance(prompts, TextL2PKeys) else 0
    most = length + tokens if most is None else most
    for wrong, key, found, allowed in (
        (head != "classifier", "head", head, "classifier with model.prompts"),
        (is_decoder(config), "prompts", f"{config.model_type}, in which tokens see only those before them", "encoders"),
        (pool == "last", "pool", pool, "mean or first with model.prompts"),
        (attention != "sdpa" and not tokens, "attention", attention, "sdpa with prefixes of attention"),
        (bool(dropout), "dropout", dropout, "0 or null with model.prompts, as the encoder is frozen"),
        (length + tokens > most, "prompts.top", f"{tokens} tokens of prompts and {length} of texts", f"{most} in all"),
    ):
        if wrong:
            raise ConfigError(f"model.{key}: found {found}, allowed: {allowed}")


def _check_vocabulary(config: Any, vocabulary: int | None) -> None:
    """Refuse samples that are no ids, or that have ids beyond the model's. Raises ConfigError."""
    if vocabulary is None:
        raise ConfigError("model.name: found samples of numbers, allowed for hugging_face: token ids (int64)")
    if vocabulary > config.vocab_size:
        allowed = f"at most {config.vocab_size:,}, the model's vocabulary; use the tokenizer of the model's folder"
        raise ConfigError(f"{KEY}: found {vocabulary:,} ids in the data, allowed: {allowed}")
