"""Imports of before the folders: each is answered with the place where the name is now, and the name is there."""

import importlib

import pytest

from raysim import moved


@pytest.mark.parametrize(("old", "new"), moved.MODULES.items())
def test_a_module_that_moved_says_where_it_is(old: str, new: str) -> None:
    with pytest.raises(ImportError, match=f"^{old} has moved: import from {new} instead$"):
        importlib.import_module(old)
    assert importlib.import_module(new)


@pytest.mark.parametrize("name", moved.NAMES)
def test_a_name_of_the_package_that_moved_says_where_it_is(name: str) -> None:
    with pytest.raises(ImportError, match=f"^raysim.{name} has moved: import from raysim.api instead$"):
        exec(f"from raysim import {name}")
    assert getattr(importlib.import_module("raysim.api"), name)


@pytest.mark.parametrize(
    ("old", "names"),
    [
        ("client", ["Client"]),
        ("messages", ["Ask", "Delta", "Post", "Term", "Terms"]),
        ("method", ["ClientHalf", "Method", "Plan", "ServerHalf"]),
        ("server", ["Server"]),
        ("training", ["Step"]),
    ],
)
def test_what_the_documentation_imported_is_there(old: str, names: list[str]) -> None:
    new = importlib.import_module(moved.MODULES[f"raysim.{old}"])
    assert all(hasattr(new, name) for name in names)


def test_what_never_was_is_no_module() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("raysim.nowhere")
