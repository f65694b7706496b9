"""From axes to runs: the product, what each run sets and is called, and what is refused before anything starts."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysim.config import load
from raysim.config.comparison import describe_difference
from raysim.sweeps import axes
from raysim.sweeps import cells as made
from raysim.sweeps.axes import name_value
from raysim.sweeps.cells import Cell
from raysim.sweeps.grid import expand_sweep
from raysim.system.errors import ConfigError

Cells = Callable[..., list[Cell]]
Write = Callable[..., Path]

SETTINGS = {"narrow": {"model.hidden": [3], "name": "thin"}, "wide": {"model.hidden": [9], "name": "thick"}}
METHODS = {"FL": {}, "FL + Fed-A-GEM": {"fed_a_gem": {}}}


def test_every_combination_is_a_run_and_the_first_axis_varies_slowest(cells_of: Cells) -> None:
    made = cells_of({"seed": [0, 1], "setting": SETTINGS, "methods": METHODS})
    assert [cell.folder for cell in made] == [
        f"{setting}/{method}/seed-{seed}" for seed in (0, 1) for setting in SETTINGS for method in METHODS
    ]
    assert [(c.config.seed, c.config.name, list(c.config.methods)) for c in made] == [
        (seed, name, methods) for seed in (0, 1) for name in ("thin", "thick") for methods in ([], ["fed_a_gem"])
    ]
    last = made[-1]
    assert last.labels == {"seed": "1", "setting": "wide", "methods": "FL + Fed-A-GEM"}
    assert last.settings == {"seed": 1, "model.hidden": [9], "name": "thick", "methods": {"fed_a_gem": {}}}
    assert last.config.model.keys()["hidden"] == (9,)


def test_a_run_is_the_config_that_run_would_load(cells_of: Cells, grid: Callable[..., dict[str, Any]]) -> None:
    """base < set < KEY=VALUE < axes, each replacing whole blocks as KEY=VALUE does."""
    axes = {"training.optimizer.lr": [0.5], "seed": [3]}
    source = grid(axes, **{"training.batch_size": 3, "clients.count": 4})
    _, (cell,) = expand_sweep(source, ["clients.count=5", "training.optimizer={momentum: 0.9, lr: 7}"])
    assert cell.config == load(
        source["base"],
        ["training.batch_size=3", "clients.count=5", "training.optimizer={momentum: 0.9, lr: 0.5}", "seed=3"],
    )


def test_a_later_axis_goes_into_what_an_earlier_one_set(cells_of: Cells) -> None:
    made = cells_of({"methods": {"A": {"fedprox": {}}, "B": {"fedprox": {}, "er": {}}}, "methods.fedprox.mu": [0, 2]})
    assert [cell.config.methods["fedprox"]["mu"] for cell in made] == [0, 2, 0, 2]
    assert [cell.folder for cell in made] == ["A/mu-0", "A/mu-2", "B/mu-0", "B/mu-2"]
    assert made[0].settings == {"methods": {"fedprox": {}}, "methods.fedprox.mu": 0}


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (0, "0"),
        (0.05, "0.05"),
        (None, "null"),
        (True, "true"),
        ("iid", "iid"),
        ([64, 32], "[64, 32]"),
        ({}, "none"),
        ({"fed_a_gem": {}}, "fed_a_gem"),
        ({"der": {"alpha": 1.0, "beta": 0.5}, "fed_a_gem": {}}, "der alpha=1.0, beta=0.5 + fed_a_gem"),
        ({"kind": "dirichlet", "alpha": 0.1}, "kind=dirichlet, alpha=0.1"),
        ({"participation": 0}, "participation=0"),
    ],
)
def test_a_value_without_a_name_gets_one(value: object, label: str) -> None:
    assert name_value(value) == label


def test_folders_are_named_for_reading_and_are_safe(cells_of: Cells) -> None:
    methods = {"a/../../b": {}, "..hidden": {"er": {}}, "FL: 50% {x}": {"a_gem": {}}, "Über 1": {"der": {}}}
    folders = [cell.folder for cell in cells_of({"methods": methods})]
    assert folders == ["a-..-..-b", "hidden", "FL- 50- -x", "Über 1"]
    assert [cell.folder for cell in cells_of({"model.hidden": [[3], [3, 4]], "seed": [0]})] == [
        "hidden-3/seed-0",
        "hidden-3, 4/seed-0",
    ]
    assert [cell.folder for cell in cells_of({"methods": [{}, {"er": {}}]})] == ["none", "er"]


@pytest.mark.parametrize(
    ("overrides", "folders"),
    [
        (["seed=1"], ["narrow/seed-1", "wide/seed-1"]),
        (["seed=[1]", "setting=wide"], ["wide/seed-1"]),
        (["setting=[wide, narrow]", "seed=0"], ["narrow/seed-0", "wide/seed-0"]),
    ],
)
def test_an_axis_can_be_narrowed_from_the_command_line(
    overrides: list[str], folders: list[str], cells_of: Cells
) -> None:
    made = cells_of({"seed": [0, 1], "setting": SETTINGS}, *overrides)
    assert [cell.folder for cell in made] == folders


def test_a_named_value_is_found_by_its_name_and_by_what_it_is(cells_of: Cells) -> None:
    for value in ("FL + Fed-A-GEM", "{fed_a_gem: {}}"):
        (cell,) = cells_of({"methods": METHODS}, f"methods={value}")
        assert cell.labels == {"methods": "FL + Fed-A-GEM"}


WRONG = {
    "seed=7": "seed=7: seed is an axis of the grid; found 7, allowed: 0 or 1",
    "seed=[0, 7]": "seed=[0, 7]: seed is an axis of the grid; found [0, 7], allowed: 0 or 1",
    "seed=[]": "found [], allowed: 0 or 1",
    "setting=tall": "setting is an axis of the grid; found 'tall', allowed: narrow or wide",
    "name=mine": "name=mine: the grid's axis setting sets name, allowed: keys that no axis sets, or setting itself",
    "seed.x=1": "seed.x=1: the grid's axis seed sets seed, allowed",
    "sede=1": "sede=1: unknown key 'sede'; did you mean 'seed'?",
    "training.batch_size=0": "found 0, allowed: a whole number >= 1 and <= 2147483647 (in the run 'narrow/seed-0')",
    "seed": "seed: found no '=', allowed: KEY=VALUE",
    "base=x": "found a key of the sweep's file, allowed: config keys, axes, grid, tune or search; edit the file",
}


@pytest.mark.parametrize("override", WRONG)
def test_an_override_that_does_not_fit_is_refused(override: str, cells_of: Cells) -> None:
    with pytest.raises(ConfigError, match=re.escape(WRONG[override])):
        cells_of({"seed": [0, 1], "setting": SETTINGS}, override)


def test_a_name_that_yaml_reads_as_a_number_is_told_in_quotes(cells_of: Cells) -> None:
    setting = {"1.50": {"training.rounds_per_task": 2}, "20": {"training.rounds_per_task": 3}}
    with pytest.raises(ConfigError, match=r"found 1.5, allowed: '1.50' or 20$"):
        cells_of({"setting": setting}, "setting=1.50")
    assert len(cells_of({"setting": setting}, "setting='1.50'")) == 1


REFUSED = {
    "grid: {seed: 3}": ":3: grid: found {seed: 3}, allowed: a block of axes",
    "grid: {}": ":3: grid: found {}, allowed: a block of axes",
    "grid: {seed: []}": ":3: grid.seed: found [], allowed: at least one value",
    "gird: {seed: [0]}": ":3: gird: unknown key 'gird'; did you mean 'grid'? allowed: name, base, set, grid",
    "grid: {buffer_size: [1, 2]}": ":3: grid.buffer_size: unknown key 'buffer_size'; did you mean 'memory.capacity'?",
    "set: {num_clients: 3}\ngrid: {seed: [0]}": ":3: set.num_clients: unknown key 'num_clients'; "
    "did you mean 'clients.count'?",
    "grid: {sede: [0, 1]}": ":3: grid.sede: unknown key 'sede'; did you mean 'seed'?",
    "grid: {own: [0, 1]}": "or your own choices such as {rotated: {scenario.shift: rotation}",
    "grid:\n  methos: {FL: {}, ER: {er: {}}}": ":4: grid.methos: unknown key 'methos'; did you mean 'methods'?",
    "grid:\n  own:\n    a: {sede: 1}": ":5: grid.own.a.sede: unknown key 'sede'; did you mean 'seed'?",
    "grid: {seed: [0, x]}": ":3: seed: found 'x', allowed: a whole number from 0 to 2^63 - 1 (in the run 'seed-x')",
    "grid:\n  methods:\n    A: {fedprx: {}}": ":5: methods.fedprx: unknown method 'fedprx'; did you mean 'fedprox'?",
    "grid:\n  methods:\n    A: {c_flag: {}, a_gem: {}}": "a_gem changes the local loop (gradient), which c_flag "
    "replaces; leave one out (in the run 'A')",
    "grid: {seed: [0, 0]}": ":3: grid.seed: found '0' twice; allowed: names that differ",
    "grid: {seed: {a: 0, b: 0}}": "sweep.yaml: the runs 'a' and 'b' are the same in all that changes results",
    "grid: {resources.clients_per_actor: [1, 2]}": "'clients_per_actor-1' and 'clients_per_actor-2' are the same",
    "grid: {methods: {FL: {}, fl: {er: {}}}}": ":3: grid.methods: 'FL' and 'fl' would have the same folder, fl",
    "grid: {methods: {'..': {}}}": "found the value '..', allowed: with a name of letters and digits",
    f"grid: {{methods: {{{'x' * 300}: {{}}}}}}": "at most 200 bytes long; give it one: {NAME: VALUE}",
    "grid: {own: {sweep.yaml: {}}}": "a run's folder would be sweep.yaml, allowed: another name than sweep.yaml",
    "grid: {own: {sweep.yaml: {}}, seed: [0, 1]}": "a run's folder would be sweep.yaml/seed-0, allowed: another name",
    "grid: {seed: [0]}\nset: {training.batch_size: 0}": ":4: training.batch_size: found 0, allowed: a whole number",
    "grid: {seed: [0]}\nset: {trainin.batch_size: 1}": ":4: set.trainin.batch_size: unknown key 'trainin'; did you",
    "grid: {training..lr: [0]}": "grid.training..lr: found the key 'training..lr', allowed: a dotted key",
    "grid: {seed.x: [0]}\nset: {seed: 1}": ":3: seed is 1, which has no keys; replace it whole: seed=VALUE",
    "grid: {training.optimizer.lr: [.inf]}": ":3: training.optimizer.lr: found .inf, allowed: a finite number",
    "grid: {seed: [0]\n": "sweep.yaml:5: broken YAML",
}


@pytest.mark.parametrize("lines", REFUSED)
def test_what_is_wrong_in_the_file_is_told_in_one_line(lines: str, sweep_file: Write) -> None:
    path = sweep_file(lines)
    with pytest.raises(ConfigError) as found:
        expand_sweep(path, ())
    said = str(found.value)
    assert REFUSED[lines] in said
    assert "\n" not in said
    if re.match(r":\d+: ", REFUSED[lines]):
        assert said.startswith(str(path))


BASES = {
    "nope.yaml": ":2: base: found 'nope.yaml', and there is no file {tmp}/sweeps/nope.yaml; allowed: a config's path",
    "3": ":2: base: found 3, allowed: a config's path, relative to this file, or a config",
    "{name: x, seed: -1}": ":2: seed: found -1, allowed: a whole number",
}


@pytest.mark.parametrize("base", BASES)
def test_a_base_that_is_none_is_refused(base: str, sweep_file: Write, tmp_path: Path) -> None:
    path = sweep_file("grid: {clients.count: [2]}", ["name: try", f"base: {base}"])
    with pytest.raises(ConfigError, match=re.escape(f"{path}{BASES[base].format(tmp=tmp_path)}")):
        expand_sweep(path, ())


def test_an_error_of_the_base_is_the_bases(sweep_file: Write, tmp_path: Path) -> None:
    path = sweep_file("grid: {seed: [0]}")
    with (tmp_path / "base.yaml").open("a") as file:
        file.write("memory: {capacity: 0}\n")
    with pytest.raises(ConfigError, match=r"/sweeps/\.\./base\.yaml:8: memory\.capacity: found 0, .* \(in the run 'se"):
        expand_sweep(path, ())


def test_a_python_object_is_refused_as_any_value(cells_of: Cells) -> None:
    with pytest.raises(ConfigError, match=r"grid\.seed\.0: seed: found a Python object, allowed: a whole number"):
        cells_of({"seed": [object()]})


@pytest.mark.parametrize(
    "axes",
    [
        {"seed": [0, 1], "choice": {"a": {"seed": 5}, "b": {"clients.count": 3}}},
        {"model.hidden": [[3], [4]], "model": {"a": {"name": "mlp"}}},
    ],
)
def test_an_axis_that_sets_another_ones_key_is_refused(axes: dict[str, Any], cells_of: Cells) -> None:
    """Its runs would be called by one value and have another."""
    first, second = axes
    with pytest.raises(
        ConfigError, match=rf"grid\.{second}: found the key .*, which sets {first} of the axis {first} ag"
    ):
        cells_of(axes)


def test_an_axis_that_sets_a_key_of_a_block_or_of_set_again_is_refused(grid: Any) -> None:
    """A block and one of its keys may differ in other keys; what `set` has is for all runs, so no axis may differ."""
    blocks = {"clients": [{"count": 2}, {"count": 3}]}
    for refused, words in (
        (({**blocks, "clients.count": [4, 5]}, {}), "clients.count, which sets clients.count of the axis clients"),
        (({"clients.count": [4, 5]}, {"clients.count": 3}), "clients.count, which sets clients.count of set"),
        ((blocks, {"clients.count": 3}), "clients, which sets clients.count of set"),
    ):
        axes, fixed = refused
        with pytest.raises(ConfigError) as found:
            expand_sweep(grid(axes, **fixed), ())
        assert str(found.value).endswith(f": found the key {words} again, allowed: keys of no other axis")
    assert len(expand_sweep(grid({**blocks, "clients.dropout": [0.0, 0.5]}), ())[1]) == 4
    assert len(expand_sweep(grid({"clients.count": [2, 3]}, clients={"dropout": 0.5}), ())[1]) == 2


def test_too_many_runs_are_refused_at_once(cells_of: Cells, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "MOST_RUNS", 5)
    with pytest.raises(ConfigError, match="grid: found 6 runs, allowed: at most 5"):
        cells_of({"seed": [0, 1], "clients.count": [2, 3, 4]})


def test_trials_count_among_the_runs_once_for_all_seeds(grid: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of FL, two of the tuned row, and three trials, which are those of both seeds: seven."""
    row = {"Row": {"training.optimizer.lr": [0.1, 0.2, 0.3]}}
    source = {**grid({"seed": [0, 1], "methods": {"FL": {}}}), "tune": {"methods": row}}
    monkeypatch.setattr(made, "MOST_RUNS", 7)
    assert len(expand_sweep(source, ())[1]) == 7
    monkeypatch.setattr(made, "MOST_RUNS", 6)
    with pytest.raises(ConfigError, match="try: found 4 runs and 3 trials, allowed: at most 6 together"):
        expand_sweep(source, ())


def test_too_many_combinations_are_refused_even_if_few_are_drawn(grid: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"Row": {"training.optimizer.lr": [0.1, 0.2, 0.3], "training.batch_size": [2, 3]}}
    source = {**grid({"seed": [0]}), "tune": {"methods": row}, "search": {"trials": 2}}
    monkeypatch.setattr(axes, "MOST_COMBINATIONS", 6)
    assert len(expand_sweep(source, ())[1]) == 2 + 1
    monkeypatch.setattr(axes, "MOST_COMBINATIONS", 5)
    with pytest.raises(ConfigError, match=r"tune\.methods\.Row: found 6 combinations, allowed: at most 5; make"):
        expand_sweep(source, ())


def test_the_difference_of_two_configs_is_what_changes_results(cells_of: Cells) -> None:
    def config(**keys: object) -> Any:
        return load(cells_of({"seed": [0]})[0].config, {key.replace("__", "."): value for key, value in keys.items()})

    assert describe_difference(config(), config(resources__clients_per_actor=2, logging__tensorboard=True)) is None
    assert describe_difference(config(), config(dataset__download=False)) is None
    assert describe_difference(config(seed=1), config(seed=2)) == "seed: 1 there, 2 here"
    assert describe_difference(config(), config(methods={"er": {"sample_size": 4}})) == (
        "methods.er.sample_size: nothing there, 4 here (and 1 more)"
    )
    one, other = config(methods={"er": {}, "fedprox": {}}), config(methods={"fedprox": {}, "er": {}})
    assert describe_difference(one, other) == "methods: ['er', 'fedprox'] there, ['fedprox', 'er'] here"
