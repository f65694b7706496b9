"""The folder of a pretrained model: its config and files of weights, and the module that transformers makes of them."""

import inspect
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from raysim.config.error_text import shorten, show
from raysim.models.peft_layout import HEAD
from raysim.system.errors import ConfigError, describe_error
from raysim.system.hub_files import ADAPTERS_CONFIG, find_folder
from raysim.system.importing import import_extra

KEY, EXTRA = "model.path", "transformers"
CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
DROPOUT = re.compile(r"(^|_)(dropout|dropout_prob|pdrop)$")
"""Names of dropout probabilities in configs, such as hidden_dropout_prob, attention_dropout and resid_pdrop."""


def weight_files(path: str, key: str = KEY) -> dict[str, Path]:
    """Return the files that decide a pretrained model, by name: config.json, and those of weights, if there are any.

    With weights, also the file of a classifier's head that `raysim.save_pretrained` wrote, if there is one.

    Raises:
        ConfigError: there is no such folder, it has no config.json, or a file that its index names is absent. Or it is
            a folder of adapters.
    """
    folder = find_folder(key, path, needed=(CONFIG, "*.safetensors"))
    if not (folder / CONFIG).is_file():
        allowed = f"a folder that save_pretrained of transformers wrote, with {CONFIG} and {WEIGHTS}"
        raise ConfigError(f"{key}: {shorten(str(folder))} has no {CONFIG}, allowed: {allowed}")
    if (folder / ADAPTERS_CONFIG).is_file():  # transformers would load the base that this file names instead
        allowed = "a folder without it; adapters are read by model.weights"
        raise ConfigError(f"{key}: {shorten(str(folder))} has {ADAPTERS_CONFIG} of adapters, allowed: {allowed}")
    names = [CONFIG]
    if (folder / WEIGHTS).is_file():  # of both, transformers loads this one
        names.append(WEIGHTS)
    elif (folder / INDEX).is_file():
        names += [INDEX, *_read_shards(folder / INDEX, key)]
    if absent := [name for name in names if not (folder / name).is_file()]:
        raise ConfigError(f"{key}: {shorten(str(folder))} has no {absent[0]}, which {INDEX} names; copy it again")
    if len(names) > 1 and (folder / HEAD).is_file():
        names.append(HEAD)
    return {name: folder / name for name in names}


def _read_shards(index: Path, key: str) -> list[str]:
    """Return the names of the files of weights that an index names. Raises ConfigError: it names none."""
    shards = _read_json(index, key).get("weight_map")
    if not isinstance(shards, dict) or not shards or not all(isinstance(name, str) for name in shards.values()):
        allowed = "the index that save_pretrained of transformers wrote"
        raise ConfigError(f"{key}: {shorten(str(index))} has no weight_map of files' names, allowed: {allowed}")
    return sorted({*shards.values()})


def _read_json(path: Path, key: str) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{key}: {shorten(str(path))} cannot be read: {describe_error(error)}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{key}: {shorten(str(path))} holds a {type(content).__name__}, allowed: a JSON object")
    return content


def read_config(folder: Path, dropout: float | None, key: str = KEY) -> Any:
    """Return the config of a folder, with all dropout probabilities set to `dropout` if it is given.

    Raises:
        ConfigError: transformers does not know the architecture, or only code of the folder does.
    """
    transformers = import_extra("transformers", EXTRA)
    content = _read_json(folder / CONFIG, key)
    kind = content.get("model_type")
    if kind not in transformers.CONFIG_MAPPING:
        version = name_version()
        if "auto_map" in content:
            problem = f"{shorten(str(folder))} brings its own code (auto_map), which raysim never runs"
            raise ConfigError(f"{key}: {problem}, allowed: an architecture of {version}")
        problem = f"found model_type {show(kind)} in {CONFIG}, allowed: an architecture that {version} knows"
        raise ConfigError(f"{key}: {problem}, such as bert, distilbert, roberta, gpt2, llama or qwen2")
    with quiet():
        try:
            config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except Exception as error:
            problem = f"{shorten(str(folder / CONFIG))} cannot be read: {describe_error(error)}"
            raise ConfigError(f"{key}: {problem}") from error
    if getattr(config, "is_encoder_decoder", False):
        problem = f"found {kind}, an encoder with a decoder, allowed: encoders, or causal language models"
        raise ConfigError(f"{key}: {problem}")
    if dropout is not None:
        for name, value in config.to_dict().items():
            if DROPOUT.search(name) and isinstance(value, int | float):
                setattr(config, name, dropout)
    return config


def name_version() -> str:
    """Return the name of transformers with its version."""
    return f"transformers {import_extra('transformers', EXTRA).__version__}"


def is_decoder(config: Any) -> bool:
    """Return whether an architecture is a causal language model, in which a token sees only those before it."""
    transformers = import_extra("transformers", EXTRA)
    causal, masked = transformers.MODEL_FOR_CAUSAL_LM_MAPPING, transformers.MODEL_FOR_MASKED_LM_MAPPING
    return type(config) in causal and type(config) not in masked


def load_body(
    folder: Path, config: Any, causal: bool, pretrained: bool, attention: str, dtype: torch.dtype, key: str = KEY
) -> tuple[nn.Module, list[str], list[str]]:
    """Return the module of transformers with the weights of a folder, and names of tensors.

    The names are of tensors of the folder that the module leaves out, and of its output layer's that the folder lacks.

    Args:
        folder: the folder.
        config: its config, see `read_config`.
        causal: whether the module has the output layer of a causal language model.
        pretrained: whether the weights are the folder's. The global generator draws others, as the config says. On
            torch's default device "meta" there are no values.
        attention: sdpa or eager.
        dtype: of the parameters.
        key: the config's key of the folder, for messages.

    Raises:
        ConfigError: the weights do not fit the architecture, or transformers cannot build it.
    """
    transformers = import_extra("transformers", EXTRA)
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    mapping = transformers.MODEL_FOR_CAUSAL_LM_MAPPING if causal else transformers.MODEL_MAPPING
    if type(config) not in mapping:
        use = "causal_lm" if causal else "classifier or none"
        raise ConfigError(f"model.head: found {use}, which transformers does not offer for {config.model_type}")
    kind = mapping[type(config)]
    kind = kind[-1] if isinstance(kind, tuple) else kind
    keys: dict[str, Any] = {"attn_implementation": attention, "dtype": dtype}
    if "add_pooling_layer" in inspect.signature(kind.__init__).parameters:
        keys["add_pooling_layer"] = False  # no gradient reaches it, and it would be sent
    with quiet():
        try:
            if not pretrained or torch.get_default_device().type == "meta":
                return auto.from_config(config, **keys), [], []
            body, found = auto.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                **keys,
            )
        except Exception as error:
            problem = f"transformers cannot build {config.model_type} from {shorten(str(folder))}"
            raise ConfigError(f"{key}: {problem}: {describe_error(error)}") from error
    output = body.get_output_embeddings() if causal else None
    own = {id(p) for p in output.parameters()} if output is not None else set[int]()
    head = {name for name, parameter in body.named_parameters() if id(parameter) in own}
    if missing := sorted({*found["missing_keys"]} - head):
        problem = f"{shorten(str(folder))} does not fit {config.model_type}: not in the file: {missing[0]}"
        raise ConfigError(f"{key}: {problem}" + f" and {len(missing) - 1} more" * (len(missing) > 1))
    return body, sorted(found["unexpected_keys"]), sorted(found["missing_keys"])


def most_tokens(body: nn.Module) -> int | None:
    """Return the most tokens of a text for a module of transformers, or None if it has no limit.

    RoBERTa and what follows it number positions from the padding's id + 1 on. The rows before are in
    max_position_embeddings, but no token's: https://github.com/facebookresearch/fairseq, `make_positions`.
    """
    config: Any = body.config
    most: int | None = getattr(config, "max_position_embeddings", None) or None
    for name, part in body.named_modules():
        padding = getattr(part, "padding_idx", None)
        of_positions = name.rpartition(".")[2] == "position_embeddings"
        if most is not None and of_positions and isinstance(padding, int):
            return most - padding - 1
    return most


@contextmanager
def quiet() -> Iterator[None]:
    """Have transformers print neither bars nor warnings, as only raysim's command line prints. Errors are raised."""
    logging = import_extra("transformers.utils.logging", EXTRA)
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
