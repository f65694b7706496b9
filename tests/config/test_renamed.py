"""Keys that were renamed still work, with a warning that names the present key."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from small_configs import TINY

from raysim.cli import main
from raysim.config import ConfigError, load, renamed
from raysim.system.caller import DeprecatedKey
from raysim.system.messages import plain_warnings

OLD, NEW = "training.rate", "training.optimizer.lr"
SAID = f"this key is called {NEW} since raysim 1.1, and the old name will be removed; write {NEW}"


@pytest.fixture(autouse=True)
def rows(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = {OLD: (NEW, "1.1"), "fraction": ("participation.fraction", "1.2"), "rounds": ("training.optimizer", "1.2")}
    monkeypatch.setattr(renamed, "RENAMED", moved)


def config(**training: Any) -> dict[str, Any]:
    return TINY | {"training": {"rounds_per_task": 2, **training}}


def load_warned(*given: Any) -> Any:
    with pytest.warns(DeprecatedKey) as said:
        loaded = load(*given)
    return loaded, [str(one.message) for one in said]


def test_the_value_goes_to_the_present_key() -> None:
    loaded, said = load_warned(config(rate=0.25))
    assert loaded == load(config(optimizer={"lr": 0.25}))
    assert said == [f"{OLD}: {SAID}"]


def test_a_key_of_another_block_is_moved_into_one_that_is_absent() -> None:
    loaded, _ = load_warned(TINY | {"fraction": 0.5})
    assert loaded.participation.fraction == 0.5


def test_a_file_and_its_line_are_named(tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(json.dumps(TINY)[:-1] + ',\n"fraction": 0.5}')
    _, said = load_warned(file)
    assert said[0].startswith(f"{file}:2: fraction: this key is called participation.fraction since raysim 1.2")
    file.write_text(json.dumps(TINY)[:-1] + ',\n"fraction": 5}')
    with pytest.warns(DeprecatedKey), pytest.raises(ConfigError, match=r"old\.yaml:2: participation\.fraction: "):
        load(file)


def test_an_override_counts() -> None:
    """Whether it has the old name or the present one, as it does without a renamed key."""
    both = config(optimizer={"lr": 0.125})
    assert load_warned(both, [f"{OLD}=0.25"])[0].training.optimizer.lr == 0.25
    assert load_warned(config(rate=0.25), [f"{NEW}=0.125"])[0].training.optimizer.lr == 0.125


def test_both_names_are_refused() -> None:
    words = f"found {OLD} and {NEW}, which is its name now, allowed: {NEW} alone"
    for given in ((config(rate=0.25, optimizer={"lr": 0.25}),), (config(), [f"{OLD}=0.25", f"{NEW}=0.5"])):
        with pytest.warns(DeprecatedKey), pytest.raises(ConfigError, match=words):
            load(*given)


def test_a_whole_block_is_moved() -> None:
    loaded, _ = load_warned(TINY | {"training": {"rounds_per_task": 2}, "rounds": {"lr": 0.5}})
    assert loaded.training.optimizer.lr == 0.5


def test_present_keys_are_not_warned_of() -> None:
    with warnings.catch_warnings(action="error"):
        assert load(config(optimizer={"lr": 0.25})).training.optimizer.lr == 0.25


def test_the_command_line_warns_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tiny.yaml").write_text(json.dumps(TINY))
    command = ["run", str(tmp_path / "tiny.yaml"), f"{OLD}=0.25", "--local", "--quiet", "--out", str(tmp_path / "run")]
    with warnings.catch_warnings(action="default"):  # as outside of tests
        warnings.showwarning = (
            lambda message, category, *place: print(  # pytest's own records instead
                warnings.formatwarning(message, category, *place[:2]), end=""
            )
        )
        assert main(command) == 0
    assert capsys.readouterr().out == f"{OLD}=0.25: {SAID}\n"
    assert f"{OLD}" not in (tmp_path / "run" / "config.yaml").read_text()


def test_other_warnings_keep_their_form() -> None:
    usual = warnings.formatwarning
    with plain_warnings():
        assert warnings.formatwarning("a", UserWarning, "f.py", 1) == usual("a", UserWarning, "f.py", 1)
        assert warnings.formatwarning("a", DeprecatedKey, "f.py", 1) == "a\n"
    assert warnings.formatwarning is usual


def test_no_key_was_renamed_yet_that_the_schema_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's present key exists, and its old one does not."""
    monkeypatch.undo()
    flat = load(TINY).model_dump()
    for old, (new, _) in renamed.RENAMED.items():
        assert new.split(".")[0] in flat
        assert old not in flat
