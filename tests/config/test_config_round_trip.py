"""Properties: what is written reads back the same, and no input whatever is more than a ConfigError."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raysim.config import Config, ConfigError, dump, load
from raysim.config.document import walk
from raysim.config.yaml_text import parse_value

pytestmark = pytest.mark.usefixtures("tables")

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)

positive = st.floats(min_value=0, max_value=3e38, exclude_min=True, allow_nan=False)
fractions = st.floats(min_value=0, max_value=1, exclude_max=True)
counts = st.integers(min_value=1, max_value=10**30)
few = st.integers(min_value=1, max_value=1000)
partitions = st.one_of(
    st.fixed_dictionaries({"kind": st.just("iid")}, optional={"per": st.sampled_from(["run", "task", None])}),
    st.fixed_dictionaries({"kind": st.just("shards")}, optional={"shards_per_client": counts}),
    st.fixed_dictionaries({"kind": st.just("dirichlet")}, optional={"alpha": positive, "balanced": st.booleans()}),
)
optimizers = st.one_of(
    st.fixed_dictionaries({"name": st.just("sgd"), "lr": positive, "momentum": fractions}),
    st.fixed_dictionaries(
        {"name": st.just("adam")}, optional={"lr": positive, "betas": st.tuples(fractions, fractions)}
    ),
)
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-3e38, 3e38, allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
scalars_like = st.sampled_from(
    ["no", "1e3", "0o7", ".inf", "~", "", "<<", "=", "- a", "a: b", "#", "\x85", "\ud800", "é\n"]
)
configs = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["demo", "no", "1e3", "0x1F", "2024", "null", "Ünï 1", "a=b"]),
        "seed": st.integers(0, 2**63 - 1),
        "dataset": st.fixed_dictionaries(
            {"name": st.just("archive"), "path": st.text() | scalars_like},
            optional={
                "root": st.none() | st.text(),
                "normalize": st.sampled_from(["none", "standard", {"mean": [0.1, 1e-7], "std": [1e22, 5e-324]}]),
                "augment": st.lists(st.sampled_from(["crop", "flip"])),
            },
        ),
        "scenario": st.fixed_dictionaries(
            {"kind": st.sampled_from(["domain_incremental", "class_incremental"]), "tasks": few}
        ),
        "partition": partitions,
        "clients": st.just({"count": 10**6}),
        "model": st.fixed_dictionaries(
            {"name": st.just("net")},
            optional={"anything": plain_values | scalars_like, "colour": st.just("blue"), "hidden": st.lists(counts)},
        ),
        "training": st.fixed_dictionaries(
            {"rounds_per_task": few, "optimizer": optimizers}, optional={"clip_norm": st.none() | positive}
        ),
        "methods": st.dictionaries(st.sampled_from(["der", "fedprox"]), st.none() | st.just({})),
        "participation": st.one_of(
            st.fixed_dictionaries({"count": few}),
            st.sampled_from([{"fraction": 0.5}, {"fraction": None, "count": 3}]),
        ),
        "resources": st.fixed_dictionaries(
            {}, optional={"cpus_per_actor": st.just("auto") | positive, "clients_per_actor": st.just("auto") | counts}
        ),
    }
)  # fmt: skip


def written(config: Config, folder: Path) -> Path:
    path = folder / "config.yaml"
    path.write_text(dump(config), encoding="utf-8")
    return path


@quick
@given(configs)
def test_what_is_written_reads_back_the_same(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    config = load(values)
    again = load(written(config, tmp_path_factory.getbasetemp()))
    assert again == config
    assert dump(again) == dump(config)


@pytest.mark.parametrize("rounds", [None, 3])
@pytest.mark.parametrize("every", ["task", None])
def test_a_key_that_older_configs_have_is_read_and_not_written(every: str | None, rounds: int | None) -> None:
    config = load({**VALID, "evaluation": {"every": every, "every_rounds": rounds}})
    assert config == load({**VALID, "evaluation": {"every_rounds": rounds}})
    assert "every:" not in dump(config)


@quick
@given(st.floats(-3e38, 3e38, allow_nan=False))
@example(1e-05)
@example(1e22)
@example(-0.0)
@example(5e-324)
def test_floats_keep_every_bit(number: float) -> None:
    base = load(VALID, {"model.anything": number})
    text = next(line for line in dump(base).splitlines() if "anything" in line).partition(": ")[2]
    assert "!" not in text  # no tag is needed
    for found in (parse_value(text), yaml.safe_load(text)):
        assert type(found) is float
        assert found == number
        assert math.copysign(1, found) == math.copysign(1, number)


@quick
@given(st.text() | scalars_like)
@example("0o7")
@example("1e3")
@example("no")
@example("\x85")
def test_strings_stay_strings_for_every_reader(text: str) -> None:
    whole = dump(load(VALID, {"model.anything": {text: text}}))
    for found in (parse_value(whole), yaml.safe_load(whole)):
        assert found["model"]["anything"] == {text: text}


VALID: dict[str, Any] = {
    "name": "demo",
    "seed": 1,
    "dataset": {"name": "archive", "path": "x", "normalize": {"mean": [0.5], "std": [1]}, "augment": ["crop"]},
    "scenario": {"kind": "class_incremental", "tasks": 2, "classes": [["no", "1"], [2, 0, "a: b"]]},
    "partition": {"kind": "dirichlet", "alpha": 0.5, "per": "task"},
    "clients": {"count": 4},
    "model": {"name": "net", "hidden": [3]},
    "training": {"rounds_per_task": 2, "optimizer": {"name": "adam", "betas": [0.5, 0.5]}, "lr_decay": {"per_task": 2}},
    "methods": {"der": {"alpha": 0.5}, "picky": {"pairs": 2}, "plain": None},
    "participation": {"fraction": 0.5},
    "aggregation": {"weights": "samples"},
    "schedule": {"kind": "synchronous"},
    "resources": {"gpus_per_actor": 0.5, "clients_per_actor": "auto"},
    "evaluation": {"every_rounds": 3},
    "logging": {"tensorboard": False},
}  # fmt: skip

PLACES = [keys for keys, _ in walk(VALID) if keys]
wild = plain_values | st.floats() | scalars_like | st.sampled_from([10**400, [[]], {"a": {}}, -1, 1.5, {"kind": 3}])


def mutated(values: dict[str, Any], keys: tuple[Any, ...], change: str, value: Any) -> None:
    around: Any = values
    for key in keys[:-1]:
        around = around[key] if isinstance(around, dict | list) and _has(around, key) else {}
    if not isinstance(around, dict | list) or not _has(around, keys[-1]):
        return
    if change == "replace":
        around[keys[-1]] = value
    elif change == "remove":
        del around[keys[-1]]
    elif isinstance(around, dict):
        around[str(value)[:10]] = around.pop(keys[-1])


def _has(around: Any, key: Any) -> bool:
    return key in around if isinstance(around, dict) else isinstance(key, int) and key < len(around)


changes = st.lists(
    st.tuples(st.sampled_from(PLACES), st.sampled_from(["replace", "remove", "rename"]), wild), min_size=1, max_size=3
)


def loaded(values: dict[str, Any], *overrides: str) -> Config | None:
    """Load a config, or see that its error is one line of sane length."""
    try:
        return load(values, overrides)
    except ConfigError as error:
        message = str(error)
    assert message.isprintable()
    assert len(message) < 1500
    return None


@settings(quick, max_examples=400)
@given(changes)
def test_a_changed_config_is_a_config_or_a_config_error(some: list[tuple[Any, str, Any]]) -> None:
    values = copy.deepcopy(VALID)
    for keys, change, value in some:
        mutated(values, keys, change, value)
    config = loaded(values)
    assert config is None or load(config) == config


@settings(quick, max_examples=300)
@given(st.binary(max_size=40) | st.text(alphabet="ab01: -[]{}&*!|>'\"%#,?\n\t.<~e", max_size=40).map(str.encode))
def test_no_file_is_more_than_a_config_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "wild.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value).isprintable()


@settings(quick, max_examples=300)
@given(st.text(alphabet="name.sedtri=:{}[]10-,' \n", max_size=20) | st.text(max_size=20))
def test_no_override_is_more_than_a_config_error(text: str) -> None:
    loaded(VALID, text)
