"""What workers on other machines must be sent: the files of what a config names as package.module:name."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysim.config import ConfigError, load
from raysim.config.lookup import names_for_actors
from raysim.system import custom_code
from raysim.system.custom_code import find_custom_code, refuse_main

CONFIG = {
    "name": "own",
    "dataset": {"name": "digits"},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 2},
    "model": {"name": "mlp"},
    "training": {"rounds_per_task": 1},
}
SOURCE = """
from raysim.api import Method

def model(shape, classes, *, note: str = "x"):
    ...

class Mine(Method):
    "A method."
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a package, a module, and a module that no config names."""
    (tmp_path / "own_package" / "inner").mkdir(parents=True)
    for name in ("own_package/__init__.py", "own_package/inner/__init__.py"):
        (tmp_path / name).write_text("")
    for name in ("own_package/inner/deep.py", "own_module.py", "not_named.py"):
        (tmp_path / name).write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.split(".")[0] in ("own_package", "own_module")]:
        del sys.modules[name]


def found(named: dict[str, Any]) -> list[Path]:
    return find_custom_code(names_for_actors(load(CONFIG, named)))


def test_raysims_own_names_need_nothing() -> None:
    assert found({"methods": {"fedprox": {}, "raysim.algorithms.er:Er": {}}}) == []


def test_packages_go_whole_and_modules_as_files(project: Path) -> None:
    """Of a package its top folder, once, however often it is named; text that only looks like a name is no matter."""
    named = {
        "model": {"name": "own_package.inner.deep:model", "note": "not_named:model"},
        "methods": {"own_module:Mine": {}, "own_package.inner.deep:Mine": {}},
    }
    assert found(named) == [project / "own_module.py", project / "own_package"]


def test_what_is_installed_is_not_sent(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_code, "INSTALLED", [project])
    assert found({"model": {"name": "own_module:model"}}) == []


def mine(labels: Any, clients: int, generator: Any) -> Any:
    """What a script would define."""


def test_code_of_the_script_itself_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "mine", mine, raising=False)
    config = load(CONFIG, {"partition": "__main__:mine"})  # as in a run in this process
    with pytest.raises(ConfigError) as refused:
        refuse_main(names_for_actors(config))
    assert str(refused.value) == (
        "found '__main__:mine', which actors cannot import, allowed: package.module:mine; move it into a module of its "
        "own, or run in this process (local=True, --local)"
    )
    refuse_main(names_for_actors(load(CONFIG)))
