"""The schema: keys, defaults, what is derived, and what a config can be used for."""

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

import raysim.config
from raysim.config import Config, ConfigError, build_json_schema, dump, load

pytestmark = pytest.mark.usefixtures("tables")

REQUIRED: dict[str, object] = {
    "name": "demo",
    "dataset": {"name": "digits"},
    "scenario": {"kind": "domain_incremental", "tasks": 3},
    "clients": {"count": 4},
    "model": {"name": "net"},
    "training": {"rounds_per_task": 2},
}

# Section 3 of the design, typed from it; what exists in later versions only (checkpoint) is not there.
EVALUATED = {"split": "test", "validation_fraction": None, "model": "global", "per_client": False, "top_k": 1}
DEFAULTS: dict[str, object] = {
    "name": "demo",
    "seed": 0,
    "dataset": {
        "name": "digits",
        "root": None,
        "download": True,
        "train_samples": None,
        "normalize": "none",
        "input_scale": 1.0,
        "augment": [],
        "unlabelled": None,
        "label_rate": None,
    },
    "scenario": {
        "kind": "domain_incremental",
        "tasks": 3,
        "shift": "rotation",
        "order": "same",
        "online": False,
        "blur": 0.0,
        "boundaries": "synchronous",
    },
    "partition": {"kind": "iid", "per": None, "by": None},
    "clients": {"count": 4, "arrive": None, "leave": [], "forget": [], "dropout": 0.0},
    "model": {
        "name": "net",
        "weights": None,
        "prefix": "",
        "freeze": [],
        "adapters": None,
        "local": [],
        "random_features": None,
        "cache": False,
        "precision": "float32",
        "checkpointing": False,
        "hidden": [200, 100],
        "kernel": [3, 0.5],
        "colour": "red",
        "file": None,
        "copy": False,
        "model_kind": "wide",
        "anything": None,
    },
    "objective": "classification",
    "training": {
        "rounds_per_task": 2,
        "local_epochs": 1,
        "local_steps": None,
        "batch_size": 32,
        "accumulate": 1,
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0},
        "lr_decay": {"per_round": 1.0, "per_task": 1.0, "restart": True},
        "lr_scales": {},
        "keep_optimizer": False,
        "precision": "full",
        "clip_norm": None,
        "vectorise": None,
        "logits": "all",
    },
    "memory": {"capacity": 200, "per": "client", "policy": None, "fill": None},
    "methods": {},
    "participation": {"fraction": 1.0, "count": None, "sampler": "uniform"},
    "aggregation": {"weights": "uniform"},
    "schedule": {
        "kind": "synchronous",
        "speeds": {"kind": "constant", "seconds_per_sample": 0.001},
        "bandwidth": None,
    },
    "resources": {
        "cpus_per_actor": "auto",
        "gpus_per_actor": 0.0,
        "server_gpus": 0.0,
        "server_cpus": 0,
        "clients_per_actor": 1,
        "custom": {},
        "placement": "spread",
        "workers": "auto",
        "rebalance": True,
        "memory": "refuse",
        "address": None,
        "patience": 600.0,
        "dashboard": False,
        "deterministic": True,
        "cuda_graphs": False,
    },
    "evaluation": {
        "every_rounds": None,
        **EVALUATED,
    },
    "checkpoint": {"every_rounds": 20, "keep": 2, "tries": 3},
    "logging": {"tensorboard": True, "dispatches": False, "memory": False, "profile": False},
    "callbacks": {},
}


def test_the_defaults_are_those_of_the_design() -> None:
    assert yaml.safe_load(dump(load(REQUIRED))) == DEFAULTS
    assert list(yaml.safe_load(dump(load(REQUIRED)))) == list(DEFAULTS)


@pytest.mark.parametrize(
    ("overrides", "block"),
    [
        (["partition.kind=shards"], {"kind": "shards", "shards_per_client": 2, "per": None, "by": None}),
        (
            ["partition.kind=dirichlet"],
            {"kind": "dirichlet", "alpha": 0.3, "min_samples": 10, "balanced": True, "per": None, "by": None},
        ),
        (["scenario={kind: class_incremental, tasks: 5}"], {"kind": "class_incremental", "tasks": 5,
         "order": "same", "online": False, "blur": 0.0, "first_task_classes": None, "class_order": "natural",
         "classes": None, "repetition": None, "boundaries": "synchronous"}),
        (["participation={count: 4}"], {"fraction": None, "count": 4, "sampler": "uniform"}),
        (["evaluation={every_rounds: 5}"], {"every_rounds": 5} | EVALUATED),
        (["methods={der: {alpha: 0.1}, fedprox: }"], {"der": {"alpha": 0.1, "sizes": [1, 2], "share": 1.0},
         "fedprox": {"mu": 1e-05}}),
    ],
)  # fmt: skip
def test_the_defaults_of_the_other_kinds(overrides: list[str], block: dict[str, object]) -> None:
    key = overrides[0].partition(".")[0].partition("=")[0]
    assert yaml.safe_load(dump(load(REQUIRED, overrides)))[key] == block


@pytest.mark.parametrize("key", ["name", "dataset.name", "scenario.kind", "scenario.tasks", "clients.count",
                                 "model.name", "training.rounds_per_task"])  # fmt: skip
def test_the_required_keys(key: str) -> None:
    values = json.loads(json.dumps(REQUIRED))
    *around, last = key.split(".")
    del (values[around[0]] if around else values)[last]
    with pytest.raises(ConfigError, match=f"^{key}: this key is required and missing"):
        load(values)


@pytest.mark.parametrize(
    ("scenario", "per", "resolved"),
    [
        ("domain_incremental", None, "run"),
        ("class_incremental", None, "task"),
        ("domain_incremental", "task", "task"),
        ("class_incremental", "run", "run"),
    ],
)
def test_per_null_is_resolved_by_the_scenario(scenario: str, per: str | None, resolved: str) -> None:
    config = load(REQUIRED, {"scenario": {"kind": scenario, "tasks": 2}, "partition.per": per})
    assert config.partition.per == per
    assert config.partition_per == resolved


def test_whole_numbers_are_taken_where_a_number_is_due() -> None:
    config = load(REQUIRED, ["training.optimizer={name: adam, lr: 1, betas: [0, 0.5]}", "resources.gpus_per_actor=2"])
    assert config.training.optimizer.keys() == {"lr": 1.0, "betas": (0.0, 0.5), "eps": 1e-8, "weight_decay": 0.0}
    assert type(config.training.optimizer.lr) is float
    assert type(config.resources.gpus_per_actor) is float


def test_a_config_is_frozen_picklable_and_comparable() -> None:
    config = load(REQUIRED, ["methods={der: {}, fedprox: {}}", "dataset.normalize={mean: [0.5], std: [1]}"])
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 1
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert hash(again) == hash(config)
    assert again.model.keys() == config.model.keys()
    assert load(config) == config
    assert load(config, ["seed=1"]) != config
    assert load(config, ["model.copy=true"]) != config


def test_a_config_without_overrides_is_not_validated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(REQUIRED)
    monkeypatch.setattr(Config, "model_validate", None)
    assert load(config) is config


def test_a_config_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    validate, calls = Config.model_validate, []
    monkeypatch.setattr(Config, "model_validate", lambda *given: calls.append(given) or validate(*given))
    draft = raysim.config.read_draft(REQUIRED, ["seed=1"])
    assert draft.config.resources.workers == "auto"
    assert draft.complete() == load(REQUIRED, ["seed=1"])
    assert len(calls) == 2  # of the draft, which is completed without it, and of load


def test_the_order_of_methods_counts() -> None:
    one, other = (load(REQUIRED, [f"methods={{{names}}}"]) for names in ("der: , fedprox: ", "fedprox: , der: "))
    assert list(one.methods) == ["der", "fedprox"]
    assert one != other


@pytest.mark.parametrize("name", ["fedavg", "FedAvg"])
def test_fedavg_is_what_runs_without_methods(name: str) -> None:
    assert load(REQUIRED, {"methods": {name: {}}}) == load(REQUIRED, {f"methods.{name}": None}) == load(REQUIRED)
    both = load(REQUIRED, {"methods": {name: None, "fedprox": {"mu": 0.1}}})
    assert dump(both) == dump(load(REQUIRED, {"methods": {"fedprox": {"mu": 0.1}}}))


def test_a_name_alone_stands_for_its_block() -> None:
    short = {"model": "net", "dataset": "digits", "partition": "shards", "methods": "der"}
    long = {"model": {"name": "net"}, "dataset": {"name": "digits"}, "partition": {"kind": "shards"}}
    assert load({**REQUIRED, **short}) == load({**REQUIRED, **long, "methods": {"der": {}}})
    assert load(REQUIRED, ["training.optimizer=adam"]) == load(REQUIRED, ["training.optimizer.name=adam"])
    assert load(REQUIRED, ["methods=fedavg"]) == load(REQUIRED)
    assert load({**REQUIRED, "model": "net"}, ["model.hidden=[3]"]).model.keys()["hidden"] == (3,)
    assert load(REQUIRED, ["partition=shards", "partition.per=task"]).partition.kind == "shards"


def test_a_component_without_keys_is_written_as_its_name() -> None:
    given = {"memory.policy": {"name": "random"}, "participation": {"count": 2, "sampler": {"name": "by_size"}}}
    written = yaml.safe_load(dump(load(REQUIRED, given)))
    assert (written["memory"]["policy"], written["participation"]["sampler"]) == ("random", "by_size")


def test_the_named_components_are_at_hand() -> None:
    config = load(REQUIRED, ["methods={fedprox: {mu: 1}, picky: {pairs: 2}}", "dataset={name: archive, path: x}"])
    assert config.methods == {"fedprox": {"mu": 1.0}, "picky": {"pairs": 2, "fixed": 2}}
    assert config.dataset.function().__name__ == "archive"
    assert config.dataset.keys() == {"path": "x", "scale": 1.0}
    assert config.dataset.normalize == "none"


def test_importing_the_config_is_light() -> None:
    code = "import sys, raysim.config; print(sorted({'torch', 'ray', 'numpy', 'raysim.data'} & set(sys.modules)))"
    root = Path(raysim.config.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True)
    assert done.stdout == "[]\n"


def _blocks(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [found, *found["$defs"].values()]


def test_every_key_has_a_description() -> None:
    found = Config.model_json_schema()
    for block in _blocks(found):
        for key, value in block.get("properties", {}).items():
            # pydantic leaves out a description that is the block's own docstring
            block_of_key = found["$defs"].get(value.get("$ref", "").rpartition("/")[2], {})
            assert value.get("description") or block_of_key.get("description"), f"{block['title']}.{key}"


def test_the_json_schema_knows_the_named_components() -> None:
    with pytest.MonkeyPatch.context() as patch:
        tables = {"digits": "named_components:digits", "archive": "named_components:archive"}
        patch.setattr("named_components.DATASETS", tables)
        patch.setattr("named_components.MODELS", {"net": "named_components:net"})
        found = build_json_schema()
    json.dumps(found)
    assert found["required"] == ["name", "dataset", "scenario", "clients", "model", "training"]
    assert found["properties"]["seed"]["maximum"] == 2**63 - 1
    dataset = found["$defs"]["DatasetConfig"]
    assert dataset["properties"]["name"]["anyOf"][0] == {"enum": ["digits", "archive"]}
    archive = dataset["allOf"][1]
    assert archive["if"] == {"properties": {"name": {"const": "archive"}}}
    assert archive["then"]["required"] == ["path"]
    assert archive["then"]["properties"]["scale"] == {
        "default": 1, "exclusiveMinimum": 0, "maximum": 4, "title": "Scale", "type": "number"
    }  # fmt: skip
    assert archive["then"]["properties"]["root"] is True
    methods = found["properties"]["methods"]
    assert list(methods["properties"]) == ["fedprox", "der", "picky", "plain", "fedavg"]
    assert methods["additionalProperties"] is False
    der = methods["properties"]["der"]["anyOf"][0]
    assert (der["description"], der["additionalProperties"]) == ("DER.", False)
    assert der["properties"]["alpha"]["default"] == 0.5


SUITS = [
    {},
    {"training": {"rounds_per_task": 1, "optimizer": {"lr": 1}}},
    {"training": {"rounds_per_task": 1, "optimizer": {"name": "adam", "betas": [0, 0.5]}}},
    {"partition": {"per": "task"}},
    {"dataset": {"name": "archive", "path": "x", "scale": 2}},
    {"methods": {"fedavg": {}}},
    {"methods": {"fedprox": None, "raysim.algorithms.der:Der": {"alpha": 0.1}}},
    {"model": {"name": "named_components:net", "hidden": [3]}},
    {"model": "net", "dataset": "digits", "partition": "shards", "methods": "der"},
    {"partition": {"kind": "dirichlet", "alpha": 0.1}},
    {"training": {"rounds_per_task": 1, "lr_decay": {"per_task": 0.5}}},
    {"training": {"rounds_per_task": 1, "lr_decay": {"name": "cosine", "warmup": 2}}},
    {"dataset": {"name": "digits", "augment": ["crop", {"name": "flip"}]}, "memory": {"policy": "random"}},
    DEFAULTS,
]
SUITS_NOT = [
    {"nmae": "x"},
    {"seed": "x"},
    {"training": {"rounds_per_task": 1, "optimizer": {"betas": [0, 0.5]}}},
    {"scenario": {"tasks": 3}},
    {"partition": {"alpha": 0.1}},
    {"partition": "nosuch"},
    {"training": {"rounds_per_task": 1, "lr_decay": {"warmup": 2}}},
    {"dataset": "archive"},
    {"dataset": {"name": "archive"}},
    {"dataset": {"name": "archive", "path": "x", "scael": 2}},
    {"dataset": {"name": "nosuch"}},
    {"methods": {"fedprx": None}},
    {"methods": {"fedavg": {"mu": 1}}},
    {"methods": {"fedprox": {"mu": -1}}},
]


@pytest.mark.parametrize(("change", "suits"), [*((c, True) for c in SUITS), *((c, False) for c in SUITS_NOT)])
def test_the_json_schema_and_the_loader_agree(change: dict[str, Any], suits: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    with pytest.MonkeyPatch.context() as patch:
        sets = {"digits": "named_components:digits", "archive": "named_components:archive"}
        patch.setattr("named_components.DATASETS", sets)
        patch.setattr("named_components.MODELS", {"net": "named_components:net"})
        validator = jsonschema.Draft202012Validator(build_json_schema())
    validator.check_schema(validator.schema)
    assert validator.is_valid({**REQUIRED, **change}) == suits
    if suits:
        load({**REQUIRED, **change})
    else:
        with pytest.raises(ConfigError):
            load({**REQUIRED, **change})


def test_a_key_that_is_wrong_is_said_before_torch_is_imported(tmp_path: Path) -> None:
    """Importing torch takes seconds, and what a component needs imports it."""
    (tmp_path / "run.yaml").write_text(dump(load(REQUIRED)), encoding="utf-8")
    code = f"""
import sys
from raysim.cli import main
assert main(["run", {str(tmp_path / "run.yaml")!r}, "training.local_epochs=no"]) == 2
assert main(["--help"]) == 0
print(sorted({{"torch", "ray", "numpy"}} & set(sys.modules)))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"
    assert ended.stderr == "training.local_epochs=no: found 'no', allowed: a whole number >= 1 or null\n"
