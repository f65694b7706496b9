"""The pages that are made from the schema are of the schema of now, and say something of every key."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge, doc
from config_reference import CLOSES, OPENS, insert_keys, render_keys, render_reference, write_reference
from pages import ROOT

from raysim.config import build_json_schema, lookup
from raysim.config.reference import describe_block
from raysim.config.signature import keys_of

METHODS = [*lookup.table("method")]
OUT_OF_DATE = "run `make docs`"


def test_the_reference_is_that_of_now() -> None:
    assert (ROOT / "docs" / "config.md").read_text(encoding="utf-8") == render_reference(), OUT_OF_DATE


def test_the_readme_counts_the_methods() -> None:
    assert f"[{len(METHODS)} methods](docs/methods/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page_with_its_keys_of_now(name: str) -> None:
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert page.count(OPENS) == page.count(CLOSES) == 1
    assert page == insert_keys(page, name), OUT_OF_DATE


def test_every_row_says_what_its_key_is() -> None:
    rows = [line for line in render_reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 120
    for row in rows:
        key, words, allowed, default = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1])
        assert default, key
        assert allowed, key
        assert words, key


def test_every_key_of_the_schema_is_there() -> None:
    page = render_reference() + "".join(render_keys(lookup.resolve("method", name)) for name in METHODS)
    assert set(_keys(build_json_schema())) <= set(re.findall(r"^\| `(?:[\w.]+\.)?(\w+)`", page, re.MULTILINE))


def test_every_method_has_its_page_and_the_names_of_its_keys() -> None:
    """The formula of FedProx has bars, which end a cell unless a backslash is before them."""
    part = render_reference().partition("\n## methods\n")[2].partition("\n## ")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in part.splitlines() if line.startswith("| [`")]
    assert {len(row) for row in rows} == {3}
    linked = [re.fullmatch(r" \[`(\w+)`\]\(methods/(\w+)\.md#keys\) ", row[0]) for row in rows]
    assert [found and found.groups() for found in linked] == [(name, name) for name in METHODS]
    keys = {name: row[2].strip() for name, row in zip(METHODS, rows, strict=True)}
    assert (
        keys.items()
        >= {
            "fedprox": "`mu`",
            "der": "`alpha`, `beta`, `sample_size`",
            "joint": "none",
        }.items()
    )


def _keys(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        properties = part.get("properties", {})
        if part.get("title") not in ("Methods", "Callbacks"):
            yield from (key for key in properties if key not in METHODS)
        for inner in part.values():
            yield from _keys(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _keys(inner)


def test_the_schema_for_editors_has_the_descriptions_too() -> None:
    methods = build_json_schema()["properties"]["methods"]["properties"]
    assert methods["fedprox"]["anyOf"][0]["properties"]["mu"]["description"].startswith("strength of the pull")


def test_writing_puts_both_in_place(tmp_path: Path) -> None:
    (tmp_path / "methods").mkdir()
    for name in METHODS:
        (tmp_path / "methods" / f"{name}.md").write_text(f"before\n{OPENS}\nold\n{CLOSES}\nafter\n")
    write_reference(tmp_path)
    assert (tmp_path / "config.md").read_text(encoding="utf-8") == render_reference()
    fedprox = (tmp_path / "methods" / "fedprox.md").read_text(encoding="utf-8")
    assert fedprox.startswith("before\n")
    assert fedprox.endswith("after\n")
    assert "| a number >= 0 | `0.01` |" in fedprox
    assert "old" not in fedprox


def plain(root: str, *, size: int = 1, rate: Annotated[float, Ge(0)] = 0.5) -> None:
    """No descriptions."""


def told(
    root: str,
    *,
    size: Annotated[int, doc("how many")],
    rate: Annotated[float, Ge(0), doc("how fast, in #/s")] = 0.5,
    parts: Annotated[Sequence[int] | None, doc("how large each is")] = None,
    name: str = "#",
) -> None:
    """Three descriptions."""


@dataclass(kw_only=True)
class First:
    size: Annotated[int, doc("how many")] = 1
    rate: Annotated[float, doc("how fast")] = 0.5
    name = "x"  # no field


@dataclass(kw_only=True)
class Second(First):
    size: Annotated[int, doc("how many more")] = 2
    colour: str = "red"


def descriptions(component: Callable[..., Any]) -> dict[str, str]:
    return {key: text for key, _, _, text in describe_block(keys_of(component)) if text}


def test_a_description_is_the_doc_of_a_keys_annotation() -> None:
    assert descriptions(plain) == {}
    assert descriptions(told) == {"size": "how many", "rate": "how fast, in #/s", "parts": "how large each is"}
    assert descriptions(First) == {"size": "how many", "rate": "how fast"}
    assert descriptions(Second) == {"size": "how many more", "rate": "how fast"}
    assert descriptions(partial(told, "here")) == descriptions(told)


def test_no_source_is_needed() -> None:
    space: dict[str, Any] = {"Annotated": Annotated, "doc": doc}
    exec('def unseen(*, size: Annotated[int, doc("how many")] = 1): ...', space)
    assert descriptions(space["unseen"]) == {"size": "how many"}
