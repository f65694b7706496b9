"""Config keys as keyword arguments: `raysim.run("quickstart", methods="er")`, and like it all that takes overrides."""

import inspect
import warnings
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from small_configs import SMALL

import raysim
from raysim.config import Config, load
from raysim.config.block import blocks_in
from raysim.config.bundled import find_config
from raysim.config.component import ByName, Component
from raysim.config.error_text import show
from raysim.config.keywords import OPTIONS, CallbackKeys, SweepKeys, add_keywords
from raysim.sweeps.grid import OWN_KEYS
from raysim.system.errors import ConfigError

SWEEP = {"name": "few", "base": SMALL, "grid": {"seed": [0]}}


def config_of(result: raysim.Result) -> Config:
    return load(result.directory / "config.yaml")


def test_a_run_has_what_its_keywords_say(tmp_path: Path) -> None:
    result = raysim.run(SMALL, out=tmp_path / "run", local=True, methods="er", seed=3, clients={"count": 3})
    config = config_of(result)
    assert (result.methods, result.seed, config.clients.count) == (["er"], 3, 3)


@pytest.mark.parametrize("overrides", [["seed=1", "methods=lwf"], {"seed": 1, "methods": "lwf"}])
def test_keywords_come_after_overrides_and_replace_whole_blocks(overrides: Any) -> None:
    config = load(SMALL, add_keywords("check", overrides, {"methods": "er", "scenario.tasks": 1}))
    assert (config.seed, [*config.methods], config.scenario.tasks) == (1, ["er"], 1)


def test_a_directory_is_named_after_keywords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = raysim.run(SMALL, ["training.batch_size=8"], local=True, methods={"er": {"sample_size": 2}})
    assert "batch_size=8" in result.directory.name
    assert "er" in result.directory.name
    assert "sample_size=2" in result.directory.name


def test_every_function_that_takes_overrides_takes_keywords(tmp_path: Path) -> None:
    (done,) = raysim.sweep(
        SWEEP, out=tmp_path / "sweep", local=True, training={"rounds_per_task": 1}, grid={"seed": [4]}
    )
    assert (done.seed, done.rounds) == (4, 2)
    assert raysim.check(SMALL, clients={"count": 4})["clients"].startswith("4,")
    assert "4 clients" in raysim.draw_stream(SMALL, clients={"count": 4}).caption
    evaluated = raysim.evaluate(done.directory, evaluation={"top_k": 2})
    assert (evaluated.top_k, evaluated.evaluation["task_il"]["average_accuracy"]) == (2, 1.0)  # of 2 classes


@pytest.mark.parametrize("config", [None, "quickstart"])
def test_a_mapping_as_overrides_takes_a_bare_name(config: str | None) -> None:
    assert [*load(config or SMALL, {"methods": "er"}).methods] == ["er"]


WRONG: dict[str, tuple[str, dict[str, object], str]] = {
    "a slip": ("check", {"trainng": {}}, "unknown key 'trainng'; did you mean 'training'?"),
    "Mammoth's": ("run", {"buffer_size": 3}, "unknown key 'buffer_size'; did you mean 'memory.capacity'?"),
    "Flower's": ("check", {"num_clients": 3}, "unknown key 'num_clients'; did you mean 'clients.count'?"),
    "below a block": ("run", {"local_steps": 3}, "unknown key 'local_steps'; did you mean 'training.local_steps'?"),
    "a number": ("run", {"clients": 3}, "found 3, allowed: a block with the keys count, arrive, leave, forget"),
    "a list": ("run", {"methods": ["er", "lwf"]}, "found ['er', 'lwf'], allowed: a block of method names, each with"),
    "an option": ("run", {"lokal": True}, "raysim.run has no parameter 'lokal'; did you mean 'local'?"),
    "Lightning's": ("run", {"save_dir": "x"}, "raysim.run has no parameter 'save_dir'; did you mean 'out'?"),
    "run's": ("check", {"out": "x"}, "raysim.check has no parameter 'out', which is one of raysim.run or raysim.sweep"),
    "not a model's": ("evaluate", {"clients": {}}, "found a key of clients, which the trained model cannot change"),
    "a sweep's": ("sweep", {"jobbs": 2}, "raysim.sweep has no parameter 'jobbs'; did you mean 'jobs'?"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_keyword_is_one_line_that_says_what_is_meant(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, keys, words = WRONG[case]
    monkeypatch.chdir(tmp_path)
    for file in ("config.yaml", "model.pt"):
        (tmp_path / file).touch()
    source = {"sweep": SWEEP, "evaluate": tmp_path}.get(name, SMALL)
    with pytest.raises(ConfigError) as refused:
        getattr(raysim, name)(source, **keys)
    ((key, value),) = keys.items()
    assert str(refused.value).startswith(f"{key}={show(value)}: {words}")
    assert "\n" not in str(refused.value)


def test_editors_know_every_key_of_the_config() -> None:
    """A key of the config that is also a parameter is in no types but those of functions without it."""
    hints = get_type_hints(CallbackKeys)
    assert list(hints) == list(Config.model_fields)
    assert get_type_hints(SweepKeys).keys() == {*hints, *OWN_KEYS}
    for name, field in Config.model_fields.items():
        by_name = any(isinstance(item, ByName) for item in field.metadata)
        bare = by_name or any(issubclass(block, Component) for block in blocks_in(field.annotation))
        assert hints[name] is field.annotation or (str in get_args(hints[name])) == bare, name


def test_a_parameter_is_no_key_of_the_config() -> None:
    """Except callbacks, whose value tells a list of further ones from the block."""
    for function, options in OPTIONS.items():
        parameters = inspect.signature(getattr(raysim, function)).parameters.values()
        named = [one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
        assert named[2:] == [*options]
        assert {*named} & Config.model_fields.keys() <= {"callbacks"}


HIDDEN = {
    "quickstart": "quickstart is the file ./quickstart, which hides the config of this name that raysim comes with",
    "quickstart.yaml": "quickstart is the config that raysim comes with, and not the file ./quickstart.yaml; "
    "for this, give quickstart.yaml",
}


@pytest.mark.parametrize("file", HIDDEN)
def test_a_config_in_the_folder_with_a_bundled_name_is_told(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Python by a warning, whose place is the line that called raysim."""
    monkeypatch.chdir(tmp_path)
    text = find_config("quickstart").read_text()
    Path("quickstart.yaml").write_text(text)
    with warnings.catch_warnings(action="error"), pytest.raises(ConfigError, match="lokal"):
        raysim.run("quickstart", lokal=True)  # the same config: it does not matter which is taken
    Path("quickstart.yaml").unlink()
    Path(file).write_text(text.replace("count: 5", "count: 4"))
    for name in ("run", "check", "sweep", "draw_stream"):
        with pytest.warns(UserWarning, match=f"^{HIDDEN[file]}$") as found, pytest.raises(ConfigError):
            getattr(raysim, name)("quickstart", local_="x", lokal=True, seed="no")
        assert [one.filename for one in found] == [__file__]
