"""Every method is in one group, which is true of it, and the pages and the navigation show the groups."""

from collections.abc import Callable
from typing import Any

import method_table
import pytest
from pages import ROOT

from raysim.algorithms import GROUPS, METHODS
from raysim.api import ClientHalf, Method
from raysim.config.lookup import resolve


def test_every_method_is_in_one_group() -> None:
    """A name in two groups would count twice here and once in the table of all methods."""
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(METHODS)
    assert all(GROUPS.values())


def keeps_samples(method: type[Method]) -> bool:
    return method.memory is not None


def encodes(method: type[Method]) -> bool:
    return getattr(method, "Client", ClientHalf).encode is not ClientHalf.encode


@pytest.mark.parametrize(("group", "fact"), [("Stored samples", keeps_samples), ("Compression", encodes)])
def test_a_group_has_the_methods_that_declare_it(group: str, fact: Callable[[Any], bool]) -> None:
    assert set(GROUPS[group]) == {name for name in METHODS if fact(resolve("method", name))}


def test_the_table_on_the_methods_page_is_that_of_now() -> None:
    page = (ROOT / "docs" / "methods" / "README.md").read_text(encoding="utf-8")
    assert page == method_table.insert_methods(page), "run `make docs`"


def test_the_navigation_has_each_methods_page_in_its_group() -> None:
    pages = pytest.importorskip("site_pages", reason="no MkDocs: pip install '.[docs]'")
    found = pages.group_methods(["methods/README.md", "methods/er.md", "methods/gpm.md", "methods/brand_new.md"])
    assert found == [
        "methods/README.md",
        "methods/brand_new.md",
        {"Stored samples": ["methods/er.md"]},
        {"Projections": ["methods/gpm.md"]},
    ]
