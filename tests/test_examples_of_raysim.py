"""Every public function, class and method of `raysim` has an example in its help, and the examples run."""

import doctest
import functools
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raysim
from raysim.reports import write


def members_of(name: str) -> list[str]:
    """Return the public methods and properties of a class that it defines itself, as CLASS.NAME."""
    own = vars(getattr(raysim, name)).items() if inspect.isclass(getattr(raysim, name)) else ()
    public = [key for key, part in own if inspect.isfunction(part) or isinstance(part, property | classmethod)]
    return [f"{name}.{key}" for key in public if not key.startswith("_")]


PUBLIC = [*raysim.__all__, *(member for name in raysim.__all__ for member in members_of(name))]


def part_of(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), raysim)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working directory of all examples. A run that several examples repeat is carried out once."""
    done: dict[str, raysim.Result] = {}
    run = raysim.run

    @functools.wraps(run)
    def run_once(*given: Any, **keys: Any) -> raysim.Result:
        what = repr((given, keys))
        if what not in done:
            done[what] = run(*given, **keys)
        return done[what]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("raysim.run", run_once)
        yield tmp_path_factory.mktemp("examples")


def test_the_public_names_are_found() -> None:
    assert {"run", "check", "Result", "Result.accuracy", "Result.matrix", "StreamPicture.save"} <= {*PUBLIC}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    assert ">>> " in (part_of(name).__doc__ or ""), f"raysim.{name} has no example"


@pytest.mark.parametrize("name", PUBLIC)
def test_every_example_runs(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "frame":
        pytest.importorskip("pandas", reason="frame returns a data frame: pip install '.[pandas]'")
    monkeypatch.chdir(folder)
    drawn = () if name == "report" else ("plots by task",)  # to draw the others, or to write any, takes seconds
    monkeypatch.setattr(write, "PLOTS", {kind: write.PLOTS[kind] for kind in drawn})
    names = {"raysim": raysim, "RunError": raysim.RunError}  # raysim.api has this error, too
    test = doctest.DocTestParser().get_doctest(part_of(name).__doc__, names, name, None, None)
    failures: list[str] = []
    assert not doctest.DocTestRunner().run(test, out=failures.append).failed, "".join(failures)
