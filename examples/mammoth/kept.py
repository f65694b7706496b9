"""What a checkpoint keeps of a model of Mammoth: numbers, tensors, and how to make the networks that it made late.

A checkpoint holds no code. So a later network than those of the constructor is kept as a recipe and its weights.
Recipes are a copy of a part of the backbone, a layer of torch.nn, and a container of these.
"""

import ast
import copy
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from raysim.api import RunError

MADE_AGAIN = {*vars(nn.Module()), "device", "dataset"}  # attributes that are not kept, or that are kept otherwise
# Keys of a module's state that are not attributes. No attribute can have such a name.
NETWORKS, TENSORS, BACKBONE = OTHERWISE = ("(networks)", "(tensors)", "(backbone)")
CONTAINERS = {"Sequential": nn.Sequential, "ModuleList": nn.ModuleList, "ModuleDict": nn.ModuleDict}
NETWORK = "(network)"  # the key of a network that is in a list or a dict


def state_of(owner: Any, net: nn.Module, early: Collection[str] | None = None) -> dict[str, Any]:
    """Return the state of an object: a model, a buffer, or another part of them.

    Args:
        owner: the object.
        net: the backbone. Its copies need no other recipe.
        early: the names of the networks that the constructor has made; None is all that the object has.

    Raises:
        RunError: it has a later network that cannot be made again.
    """
    if isinstance(owner, torch.optim.Optimizer):
        return {"state_dict": owner.state_dict()}
    state = {name: _save(name, part, net) for name, part in vars(owner).items() if name not in MADE_AGAIN}
    if isinstance(owner, nn.Module):
        children = {name: child for name, child in owner.named_children() if child is not net}
        state[NETWORKS] = {
            name: _save_network(name, child, net, early is None or name in early) for name, child in children.items()
        }
        state[TENSORS] = {
            "parameters": {name: value.detach().clone() for name, value in owner.named_parameters(recurse=False)},
            "buffers": {name: value.clone() for name, value in owner.named_buffers(recurse=False)},
        }
        if getattr(owner, "net", None) is net:
            state[BACKBONE] = {name: value.clone() for name, value in net.state_dict().items()}
    return state


def restore(owner: Any, state: Mapping[str, Any], net: nn.Module) -> None:
    """Restore an object that was constructed in the same way."""
    if isinstance(owner, torch.optim.Optimizer):
        owner.load_state_dict(state["state_dict"])
        return
    if isinstance(owner, nn.Module):
        for name, kept in state[NETWORKS].items():
            setattr(owner, name, _load_network(kept, net, getattr(owner, name, None)))
        for name, value in state[TENSORS]["parameters"].items():
            setattr(owner, name, nn.Parameter(value.clone()))
        for name, value in state[TENSORS]["buffers"].items():
            owner.register_buffer(name, value.clone())
        if BACKBONE in state:
            net.load_state_dict(state[BACKBONE])
    attributes = [name for name in state if not (isinstance(owner, nn.Module) and name in OTHERWISE)]
    of_optimizers = [name for name in attributes if isinstance(getattr(owner, name, None), torch.optim.Optimizer)]
    for name in attributes:
        if name not in of_optimizers:
            _restore_attribute(owner, name, state[name], net)
    if isinstance(owner, nn.Module) and BACKBONE in state:
        owner.opt = owner.get_optimizer()  # of the networks as they are now
    for name in of_optimizers:
        _restore_attribute(owner, name, state[name], net)


def _restore_attribute(owner: Any, name: str, part: Any, net: nn.Module) -> None:
    present = getattr(owner, name, None)
    if _has_parts(present) and isinstance(part, Mapping):
        restore(present, part, net)
    else:
        setattr(owner, name, _load(part, net))


def _has_parts(value: Any) -> bool:
    """Return whether a value is an object that is restored in place, and not made again."""
    return hasattr(value, "__dict__") and not isinstance(value, Tensor | nn.Module | type)


def _save(name: str, value: Any, net: nn.Module) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, nn.Module):
        return {NETWORK: _save_network(name, value, net, False)}
    if type(value) in (list, tuple):
        return type(value)(_save(name, part, net) for part in value)
    if type(value) is dict:
        return {key: _save(name, part, net) for key, part in value.items()}
    return state_of(value, net) if _has_parts(value) else value


def _load(state: Any, net: nn.Module) -> Any:
    if isinstance(state, dict):
        if NETWORK in state:
            return _load_network(state[NETWORK], net, None)
        return {key: _load(part, net) for key, part in state.items()}
    return type(state)(_load(part, net) for part in state) if isinstance(state, list | tuple) else state


def _save_network(name: str, network: nn.Module, net: nn.Module, early: bool) -> dict[str, Any]:
    """Return a network's recipe, weights, mode, and which of its parameters learn. Without a recipe: its parts."""
    recipe = describe(network, net)
    if recipe is None:
        if early:
            return {"parts": state_of(network, net)}
        found = f"this model of Mammoth has made {name}, a {type(network).__name__}, after its construction"
        allowed = "allowed: a copy of the backbone or of a part of it, layers of torch.nn, and containers of these"
        raise RunError(f"{found}, {allowed}; a checkpoint cannot keep it")
    return {
        "recipe": recipe,
        "state_dict": {key: value.clone() for key, value in network.state_dict().items()},
        "training": [module.training for module in network.modules()],
        "learns": [parameter.requires_grad for parameter in network.parameters()],
    }


def _load_network(kept: Mapping[str, Any], net: nn.Module, present: nn.Module | None) -> nn.Module:
    """Return a network as it was kept: the present one, if it has the same structure, or a new one."""
    if "parts" in kept:
        assert present is not None  # the constructor has made it
        restore(present, kept["parts"], net)
        return present
    if "same" in kept["recipe"]:
        return net.get_submodule(kept["recipe"]["same"])
    network = build(kept["recipe"], net)
    network = present if present is not None and _is_alike(present, network) else network
    network.load_state_dict(kept["state_dict"])
    for module, training in zip(network.modules(), kept["training"], strict=True):
        module.training = training
    for parameter, learns in zip(network.parameters(), kept["learns"], strict=True):
        parameter.requires_grad_(learns)
    return network


def describe(network: nn.Module, net: nn.Module) -> dict[str, Any] | None:
    """Return how to make a network of this structure, or None if that is unknown."""
    for name, part in net.named_modules():
        if part is network:
            return {"same": name}
    name = next((name for name, part in net.named_modules() if _is_alike(part, network)), None)
    if name is not None:
        return {"like": name}
    kind = type(network).__name__
    if CONTAINERS.get(kind) is type(network):
        parts = {key: describe(part, net) for key, part in network.named_children()}
        if any(part is None or "same" in part for part in parts.values()):
            return None
        return {"container": kind, "parts": parts}
    if getattr(nn, kind, None) is not type(network):
        return None
    try:
        made = _call(repr(network))
    except (ValueError, SyntaxError, TypeError):  # torch shows this layer in another way
        return None
    return {"layer": repr(network)} if _is_alike(made, network) else None


def build(recipe: Mapping[str, Any], net: nn.Module) -> nn.Module:
    """Return a new network by its recipe. Its weights have no meaning yet."""
    if "like" in recipe:
        return copy.deepcopy(net.get_submodule(recipe["like"]))
    if "layer" in recipe:
        return _call(recipe["layer"])
    parts = {key: build(part, net) for key, part in recipe["parts"].items()}
    if recipe["container"] == "ModuleDict":
        return nn.ModuleDict(parts)
    return nn.ModuleList(parts.values()) if recipe["container"] == "ModuleList" else nn.Sequential(*parts.values())


def _call(text: str) -> nn.Module:
    """Return the layer that torch shows as this text, such as Linear(in_features=3, out_features=2, bias=True).

    Only classes of torch.nn are called, with literals, as the text may come from a file of somebody else.
    """
    call = ast.parse(text, mode="eval").body
    layer = getattr(nn, call.func.id, None) if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else None
    if not (isinstance(call, ast.Call) and isinstance(layer, type) and issubclass(layer, nn.Module)):
        raise ValueError(f"found {text!r}, allowed: a layer of torch.nn")
    keys = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg is not None}
    with torch.random.fork_rng(devices=[]):  # the initial weights are drawn, and replaced
        made: nn.Module = layer(*map(ast.literal_eval, call.args), **keys)
    return made


def _is_alike(one: nn.Module, other: nn.Module) -> bool:
    """Return whether two networks have the same structure: types, settings as torch shows them, names and shapes."""
    shapes = [{name: (value.shape, value.dtype) for name, value in part.state_dict().items()} for part in (one, other)]
    return type(one) is type(other) and repr(one) == repr(other) and shapes[0] == shapes[1]
