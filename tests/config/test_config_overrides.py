"""KEY=VALUE: what they replace, and that messages know where a value came from."""

from pathlib import Path

import numpy as np
import pytest

from raysim.config import ConfigError, apply_overrides, load, split_key
from raysim.config.document import Document, Given, Line, to_plain
from raysim.config.experiment import Optimizer

pytestmark = pytest.mark.usefixtures("tables")


def overridden(values: dict[str, object], *overrides: str) -> Document:
    document = Document("a.yaml", values, {("a",): Line("a.yaml", 1), ("a", "b"): Line("a.yaml", 2)})
    apply_overrides(document, overrides)
    return document


def test_a_key_inside_a_block_leaves_its_neighbours() -> None:
    document = overridden({"a": {"b": 1, "c": 2}}, "a.c=3")
    assert document.values == {"a": {"b": 1, "c": 3}}
    assert document.origin(("a", "b")) == Line("a.yaml", 2)
    assert document.origin(("a", "c")) == Given(("a", "c"), "a.c=3", 0)


def test_a_value_replaces_a_whole_block_and_its_lines() -> None:
    document = overridden({"a": {"b": 1, "c": 2}}, "a={b: {x: 1}}")
    assert document.values == {"a": {"b": {"x": 1}}}
    assert document.origin(("a", "b", "x")) == Given(("a",), "a={b: {x: 1}}", 0)


def test_missing_and_empty_parents_are_made() -> None:
    document = overridden({"a": None}, "a.b.c=1", "d.e=[x]", "a.b.f=a=b")
    assert document.values == {"a": {"b": {"c": 1, "f": "a=b"}}, "d": {"e": ["x"]}}


def test_the_last_one_wins() -> None:
    assert overridden({}, "a=1", "a=2").values == {"a": 2}


def test_a_name_of_ones_own_keeps_its_dots() -> None:
    assert split_key("methods.my.own:Thing.mu", "") == ("methods", "my.own:Thing", "mu")
    assert split_key("methods.own:Thing", "") == ("methods", "own:Thing")
    assert split_key("a.b.c", "") == ("a", "b", "c")


def test_from_python_values_are_taken_as_they_are(run_yaml: Path) -> None:
    config = load(
        run_yaml,
        {
            "name": "no",
            "seed": np.int64(3),
            "training.optimizer": Optimizer.model_validate({"name": "adam", "lr": 0.5}),
            "model.hidden": (4, 5),
            "model.file": Path("x"),
        },
    )
    assert config.name == "no"
    assert type(config.seed) is int
    assert (config.training.optimizer.name, config.training.optimizer.lr) == ("adam", 0.5)
    assert config.model.keys()["hidden"] == (4, 5)
    assert config.model.keys()["file"] == Path("x")


def test_what_was_given_is_not_changed() -> None:
    values = {"a": {"b": 1}}
    document = Document(None, to_plain(values))
    apply_overrides(document, ["a.b=2"])
    assert values == {"a": {"b": 1}}


def test_a_missing_key_belongs_to_the_file(run_yaml: Path) -> None:
    run_yaml.write_text("name: a\nscenario: {tasks: 1}\n")
    for overrides in (["training.batch_size=3"], []):
        with pytest.raises(ConfigError, match=r"^run\.yaml: dataset: this key is required"):
            load(run_yaml, overrides)
    rest = ["dataset.name=digits", "clients.count=1", "model.name=net", "scenario.kind=class_incremental"]
    with pytest.raises(ConfigError, match=r"^run\.yaml: training\.rounds_per_task: this key is required and missing"):
        load(run_yaml, [*rest, "training.batch_size=3"])
    with pytest.raises(ConfigError, match=r"^training=\{\}: training\.rounds_per_task: this key is required"):
        load(run_yaml, [*rest, "training={}"])


def test_the_first_mistake_of_the_file_comes_before_those_of_the_command_line(run_yaml: Path) -> None:
    run_yaml.write_text(run_yaml.read_text().replace("lr: 0.1", "lr: 0").replace("count: 4", "count: 0"))
    with pytest.raises(ConfigError, match=r"^run\.yaml:6: clients\.count: .* \(and 2 more\)$"):
        load(run_yaml, ["seed=x", "name="])
    with pytest.raises(ConfigError, match=r"^seed=x: found 'x', .* \(and 1 more\)$"):
        load(run_yaml, ["seed=x", "name=", "training.optimizer.lr=1", "clients.count=1"])


def test_a_block_may_leave_its_kind_to_the_default(run_yaml: Path) -> None:
    assert load(run_yaml, ["partition={per: task}"]).partition.kind == "iid"
    run_yaml.write_text(run_yaml.read_text().replace("  optimizer: {name: sgd, lr: 0.1}\n", ""))
    optimizer = load(run_yaml, ["training.optimizer.lr=1"]).training.optimizer
    assert (optimizer.name, optimizer.lr) == ("sgd", 1.0)
