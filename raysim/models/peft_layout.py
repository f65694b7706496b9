"""Adapters in the layout of the package peft: a folder with adapter_model.safetensors and adapter_config.json.

| raysim | peft |
|---|---|
| `model.adapters.rank`, `scale` | `r`, `lora_alpha` = scale * rank |
| the layers that have adapters | `target_modules` |
| `LAYER.lora_a.weight`, `LAYER.lora_b.weight` | `base_model.model.LAYER.lora_A.weight`, `...lora_B.weight` |
| trained weights of the pretrained model | `modules_to_save` |

If a network holds a model of transformers, peft's layer names begin there. What is trained outside of it, such as the
head of a classifier, is in the file head.safetensors, which peft does not read.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from math import isclose, sqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from raysim.config.component_blocks import Adapters
from raysim.config.error_text import shorten, show
from raysim.models.adapters import find_adapters, is_transposed
from raysim.models.safetensors_file import read_safetensors, write_safetensors
from raysim.system.errors import ConfigError, describe_error
from raysim.system.files import write_whole
from raysim.system.hub_files import ADAPTERS, ADAPTERS_CONFIG

FILE, CONFIG, HEAD = ADAPTERS, ADAPTERS_CONFIG, "head.safetensors"
START = "base_model.model."
KEY = "model.weights"
OTHER_BASE = ("pissa", "olora", "loftq", "corda", "lora_ga")
"""Initial values of A and B in peft that also change the frozen weights, which are in no file of its layout."""


def find_pretrained(module: nn.Module) -> str | None:
    """Return the start of the names in the part that is a model of transformers: "", or its name with a dot at the end.

    None if the module has no such part.
    """
    for name, part in module.named_modules():
        kinds = ((kind.__module__, kind.__name__) for kind in type(part).__mro__)
        if ("transformers.modeling_utils", "PreTrainedModel") in kinds:
            return f"{name}." if name else ""
    return None


def load_adapters(module: nn.Module, path: Path, adapters: Adapters | None) -> list[str]:
    """Load the adapters of a folder in peft's layout, and the head next to them, into a model that has adapters.

    Args:
        module: the model, with adapters of the same layers.
        path: the file of adapters.
        adapters: the model's block `adapters`.

    Returns:
        what was done, a phrase each.

    Raises:
        ConfigError: the files cannot be read, or the adapters are not those of the model.
    """
    folder = path.parent
    content = _read_config(folder)
    _check_config(content, adapters, folder)
    start, tensors = find_pretrained(module) or "", dict[str, Tensor]()
    for name, tensor in _read(path).items():
        if not name.startswith(START):
            raise ConfigError(f"{KEY}: {folder} has the tensor {name}, allowed: names that begin with {START}")
        own = name.removeprefix(START).replace(".lora_A.", ".lora_a.").replace(".lora_B.", ".lora_b.")
        tensors[start + own] = tensor
    head = _read(folder / HEAD) if (folder / HEAD).is_file() else {}
    every = dict(module.named_parameters())
    wanted = [f"{name}.lora_{part}.weight" for name, _ in find_adapters(module) for part in "ab"]
    found = tensors | head
    shapes = [name for name, tensor in found.items() if name in every and every[name].shape != tensor.shape]
    for problem, names in (
        ("of layers without adapters in the model", [name for name in tensors if name not in every]),
        ("not in the file", [name for name in wanted if name not in tensors]),
        ("not in the model", [name for name in head if name not in every]),
        ("of another shape", shapes),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ConfigError(f"{KEY}: {folder} does not fit the model: {problem}: {names[0]}{more}")
    with torch.no_grad():
        for name, tensor in found.items():
            every[name].copy_(tensor)
    base = content.get("base_model_name_or_path")
    made_for = f", trained on {shorten(str(base))}" if base else ""  # equal shapes fit any base: the user compares
    notes = [f"weights: adapters of {len(wanted) // 2} layers in peft's layout{made_for}"]
    notes += [f"weights: the head of {HEAD}"] if head else []
    types = {(str(tensor.dtype), str(every[name].dtype)) for name, tensor in found.items()}
    return notes + [
        f"weights: {file} in the file, {own} in the model".replace("torch.", "")
        for file, own in sorted(types)
        if file != own
    ]


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return read_safetensors(path)
    except FileNotFoundError:
        raise ConfigError(f"{KEY}: there is no file {shorten(str(path))}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{KEY}: {path} cannot be read: {describe_error(error)}") from error


def _read_config(folder: Path) -> Mapping[str, Any]:
    try:
        content = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{KEY}: {folder / CONFIG} cannot be read: {describe_error(error)}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{KEY}: {folder / CONFIG} holds no JSON object, allowed: a file that peft wrote")
    return content


def _check_config(content: Mapping[str, Any], adapters: Adapters | None, folder: Path) -> None:
    """Refuse adapters of another kind, rank or scale. The names of the tensors say whether the layers are the same."""
    rank, alpha = content.get("r"), content.get("lora_alpha")
    initial = str(content.get("init_lora_weights"))
    numbers = isinstance(rank, int) and isinstance(alpha, int | float) and rank > 0
    for wrong, problem in (
        (content.get("peft_type") != "LORA", f"peft_type {show(content.get('peft_type'))}, allowed: LORA"),
        (not numbers, f"r {show(rank)} and lora_alpha {show(alpha)}, allowed: numbers"),
        (content.get("use_dora"), "use_dora, allowed: LoRA without magnitudes"),
        (content.get("alpha_pattern"), "an alpha_pattern, allowed: one lora_alpha for all layers"),
        (content.get("layer_replication"), "layer_replication, allowed: the layers of the model"),
        (initial.startswith(OTHER_BASE), f"init_lora_weights {initial}, which changes the frozen weights, too"),
    ):
        if wrong:
            raise ConfigError(f"{KEY}: {folder / CONFIG} has {problem}")
    assert isinstance(rank, int)
    scale = float(alpha or 0) / (sqrt(rank) if content.get("use_rslora") else rank)
    if adapters is None:
        block = f"{{rank: {rank}, scale: {scale:g}, where: [...]}}"
        raise ConfigError(f"{KEY}: {folder} has adapters, allowed with model.adapters={block}, of the same layers")
    if adapters.rank != rank:
        raise ConfigError(f"model.adapters.rank: found {adapters.rank}, allowed with {folder}: its r, {rank}")
    if not isclose(adapters.scale, scale, rel_tol=1e-6):
        words = f"found {adapters.scale:g}, allowed with {folder}: its lora_alpha over r, {scale:g}"
        raise ConfigError(f"model.adapters.scale: {words}")


def save_adapters_of(module: nn.Module, folder: Path, base: str | None = None) -> None:
    """Write a model's adapters, and what else is trained, as files of a folder in peft's layout.

    Args:
        module: the model.
        folder: the folder, which exists.
        base: the name or path of the pretrained model, which peft may load by itself.

    Raises:
        OSError: a file could not be written.
        ValueError: the model has no adapters, or a trained weight that peft's layout cannot hold.
    """
    adapters, start = dict(find_adapters(module)), find_pretrained(module) or ""
    if not adapters:
        raise ValueError("the model has no adapters")
    of_adapters = {id(p) for adapter in adapters.values() for p in adapter.parameters()}
    others = {n: p for n, p in module.named_parameters() if p.requires_grad and id(p) not in of_adapters}
    inside = {name: p for name, p in others.items() if name.startswith(start)}
    tensors = {}
    for name, adapter in adapters.items():
        for part, layer in (("lora_A", adapter.lora_a), ("lora_B", adapter.lora_b)):
            tensors[f"{START}{name.removeprefix(start)}.{part}.weight"] = layer.weight
    tensors |= {START + name.removeprefix(start): p for name, p in inside.items()}
    _check_ties(module, inside)
    config = _describe(module, start, adapters, {name.rpartition(".")[0] for name in inside}, base)
    write_safetensors(folder / FILE, tensors)
    write_head(folder, {name: p for name, p in others.items() if name not in inside})
    write_whole(folder / CONFIG, json.dumps(config, indent=2) + "\n")  # last: without it, it is no folder of adapters


def write_head(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write what is outside of the pretrained model. Without tensors, an earlier file would be read as this model's."""
    if tensors:
        write_safetensors(folder / HEAD, tensors)
    else:
        (folder / HEAD).unlink(missing_ok=True)


def _check_ties(module: nn.Module, inside: Mapping[str, nn.Parameter]) -> None:
    """Refuse trained weights under several names, of which peft would save and train one."""
    for name, parameter in inside.items():
        names = [other for other, p in module.named_parameters(remove_duplicate=False) if p is parameter]
        if len(names) > 1:
            raise ValueError(f"{names[-1]} is trained and shares its weight with {name}; use model.adapters.head=false")


def _describe(
    module: nn.Module, start: str, adapters: Mapping[str, Any], saved: Collection[str], base: str | None
) -> dict[str, Any]:
    """Return the content of adapter_config.json."""
    first = next(iter(adapters.values()))
    rank = min(first.lora_a.weight.shape[0], first.lora_b.weight.shape[1])
    alpha = first.scale * rank
    pretrained = module.get_submodule(start.removesuffix("."))
    chosen = {name.removeprefix(start) for name in adapters}
    names = [name for name, _ in pretrained.named_modules() if not any(f"{one}." in name for one in chosen)]
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if type(pretrained).__name__.endswith("ForCausalLM") else None,
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "lora_dropout": 0.0 if first.dropout is None else first.dropout.p,
        "target_modules": find_targets(chosen, names),
        "modules_to_save": sorted(name.removeprefix(start) for name in saved) or None,
        "fan_in_fan_out": any(is_transposed(adapter.base) for adapter in adapters.values()),
        "bias": "none",
        "inference_mode": True,
    }


def find_targets(chosen: Collection[str], names: Collection[str]) -> list[str] | str:
    """Return the shortest description of these layers, of those with these names, by peft's rules.

    A list has names, or ends of names after a dot. If lists would fit other layers, too, it is a regular expression.

    >>> find_targets({"0.query", "1.query"}, ["0.query", "1.query", "0.key"])
    ['query']
    """
    for targets in (sorted({name.rpartition(".")[2] for name in chosen}), sorted(chosen)):
        if {*_fitting(targets, names)} == {*chosen}:
            return targets
    return "|".join(map(re.escape, sorted(chosen)))


def _fitting(targets: Collection[str], names: Collection[str]) -> Iterator[str]:
    for name in names:
        if any(name == target or name.endswith(f".{target}") for target in targets):
            yield name
