"""Good configs made wrong in many ways: keys lost, doubled and misspelt, values that nobody meant, broken text."""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from raysim.config.document import walk
from raysim.config.yaml_text import to_yaml

Values = dict[str, Any]
Draw = Callable[[st.SearchStrategy[Any]], Any]

CLASSES: Values = {
    "name": "tiny",
    "seed": 3,
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 40, "test": 20, "normalize": "none"},
    "scenario": {"kind": "class_incremental", "tasks": 2, "boundaries": "synchronous", "class_order": "natural"},
    "partition": {"kind": "dirichlet", "alpha": 10.0, "min_samples": 1},
    "clients": {"count": 2, "arrive": {"at": [{"round": 2, "clients": [1]}]}, "dropout": 0.0},
    "model": {"name": "mlp", "hidden": [5]},
    "training": {
        "rounds_per_task": 2,
        "local_epochs": 1,
        "batch_size": 4,
        "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0},
        "lr_decay": {"per_round": 0.9},
        "clip_norm": None,
        "logits": "all",
    },
    "memory": {"capacity": 5, "policy": "reservoir"},
    "methods": {"er": {"sample_size": 2}, "fedprox": {"mu": 0.1}},
    "participation": {"fraction": 1.0, "sampler": "uniform"},
    "aggregation": {"weights": "samples"},
    "schedule": {"kind": "synchronous", "speeds": {"kind": "log_normal", "sigma": 1.0}},
    "resources": {"clients_per_actor": 1, "gpus_per_actor": 0, "deterministic": True},
    "evaluation": {"every_rounds": 1},
    "logging": {"tensorboard": False},
}
DOMAINS: Values = {
    **CLASSES,
    "dataset": {**CLASSES["dataset"], "shape": [1, 4, 4], "noise": 1.0, "train_samples": 30, "augment": ["crop"]},
    "scenario": {"kind": "domain_incremental", "tasks": 2, "shift": "permutation", "online": True},
    "partition": {"kind": "shards", "shards_per_client": 2},
    "methods": {"der": {}, "fed_a_gem": {}},
    "participation": {"count": 1},
}
APART: Values = {
    **CLASSES,
    "scenario": {
        "kind": "class_incremental",
        "tasks": 2,
        "boundaries": {"asynchronous": {"window": 7, "rounds_per_window": 1}},
    },
    "training": {
        "batch_size": 4,
        "optimizer": {"name": "adam", "lr": 0.01, "eps": 1e-8, "betas": [0.9, 0.99], "weight_decay": 0.0},
        "lr_decay": {"per_round": 0.9, "restart": False},
    },
    "methods": {"fedprox": {"mu": 0.1}},
    "participation": {},
    "schedule": {
        "kind": "asynchronous",
        "concurrency": 2,
        "buffer_size": 1,
        "bandwidth": 1e6,
        "staleness": {"kind": "hinge", "slope": 1.0, "after": 1},
        "speeds": {"kind": "pareto", "shape": 2.0},
    },
}

ODD = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, -(10**30), 0.5, -0.5, -0.0, 1.0, 1e-300, 5e-324, math.nan, math.inf),
    *("", " ", "1", "null", "nan", "no", "é", "名前", "ſgd", "\u202e", "\ud800", "\0", "\x1b[31m", "a\nb", "\x85"),
    *("../up", "/", "~", "{}", "*", "x" * 5000, "os:system", "os.path:join", "builtins:print", -math.inf, "auto"),
    *([], {}, [[]], [None], {"": 1}, {"kind": {}}, {"name": []}, [0], [-1], [1] * 5, {"a": {"b": {}}}, 1e300, 1e30),
]
HUGE = [10**8 + 1, 2**31, 10**12, 2**63 - 1, 2**63, 10**30, 10**400, 1e10, 1e308, [10**9], [10**12] * 3]
LINES = [
    *("<<: {seed: 1}", "<<: *a", "seed: *a", "a: &a {b: *a}", "seed: !!int x", "seed: !own 1", "? [a]", "- a", "---"),
    *("seed: !!python/object:os.system {}", "seed: !!python/object/apply:os.system [ls]", "...", "%YAML 2.0"),
    *("seed: 4\nseed: 5", "seed: [", "seed: '", "seed: |", "a: b: c", "seed: " + "[" * 200, "seed: " + "{a: " * 60),
    *("\tseed: 1", "\u2028: 1", "\x07", "\0", "\x85", "@", "`", "&a", "*b", "!!", "null: 1", "3: 1", "~: 1", "é: 1"),
]


@st.composite
def mutated(draw: Draw, most: int, huge: bool) -> bytes:
    """A config file after that many mutations of its tree, or fewer, and at most one of its text.

    huge: whether some values become numbers that no run could end with.
    """
    values = copy.deepcopy(draw(st.sampled_from([CLASSES, DOMAINS, APART])))
    odd = st.sampled_from(ODD + HUGE if huge else ODD) | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=9)
    mutations = st.sampled_from([_lost, _misspelt, _replaced, _replaced, _replaced, _replaced, _moved, _wrapped])
    for _ in range(draw(st.integers(0, most))):
        draw(mutations)(draw, values, odd)
    text = to_yaml(values).encode("utf-8", errors="surrogatepass")
    return draw(st.sampled_from([_kept, _kept, _kept, _kept, _kept, _line_put_in, _cut, _doubled, _byte]))(draw, text)


def _somewhere(draw: Draw, values: Values) -> tuple[Any, Any]:
    """Draw a block or a list, and a key or an index in it."""
    keys = draw(st.sampled_from([keys for keys, _ in walk(values) if keys] or [("name",)]))
    block: Any = values
    for key in keys[:-1]:
        block = block[key]
    if isinstance(block, dict):
        block.setdefault(keys[-1], None)
    return block, keys[-1]


def _lost(draw: Draw, values: Values, odd: st.SearchStrategy[Any]) -> None:
    block, key = _somewhere(draw, values)
    del block[key]


def _misspelt(draw: Draw, values: Values, odd: st.SearchStrategy[Any]) -> None:
    block, key = _somewhere(draw, values)
    if isinstance(block, Mapping):
        at = draw(st.integers(0, len(key)))
        names = [key[:at] + key[at + 1 :], key.upper(), key[:at] + "ı" + key[at:], "", "x" * 300]
        block[draw(st.sampled_from(names))] = block.pop(key)


def _replaced(draw: Draw, values: Values, odd: st.SearchStrategy[Any]) -> None:
    block, key = _somewhere(draw, values)
    block[key] = copy.deepcopy(draw(odd))


def _moved(draw: Draw, values: Values, odd: st.SearchStrategy[Any]) -> None:
    (block, key), (other, place) = _somewhere(draw, values), _somewhere(draw, values)
    other[place] = copy.deepcopy(block[key])


def _wrapped(draw: Draw, values: Values, odd: st.SearchStrategy[Any]) -> None:
    block, key = _somewhere(draw, values)
    for _ in range(draw(st.sampled_from([1, 2, 60]))):
        block[key] = draw(st.sampled_from([[block[key]], {"a": block[key]}]))


def _kept(draw: Draw, text: bytes) -> bytes:
    return text


def _line_put_in(draw: Draw, text: bytes) -> bytes:
    lines = text.split(b"\n")
    at = draw(st.integers(0, len(lines)))
    indent = b" " * draw(st.sampled_from([0, 2, 4]))
    return b"\n".join([*lines[:at], indent + draw(st.sampled_from(LINES)).encode(), *lines[at:]])


def _cut(draw: Draw, text: bytes) -> bytes:
    return text[: draw(st.integers(0, len(text)))]


def _doubled(draw: Draw, text: bytes) -> bytes:
    lines = text.split(b"\n")
    at = draw(st.integers(0, len(lines) - 1))
    return b"\n".join([*lines[: at + 1], *lines[at:]])


def _byte(draw: Draw, text: bytes) -> bytes:
    at = draw(st.integers(0, len(text) - 1))
    return text[:at] + bytes([draw(st.integers(0, 255))]) + text[at + 1 :]
