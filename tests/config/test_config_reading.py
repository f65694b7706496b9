"""YAML 1.2: what scalars mean, and where keys stand."""

import math
from pathlib import Path

import pytest

from raysim.config import ConfigError
from raysim.config.document import Line
from raysim.config.yaml_text import parse_value, read_yaml

# The YAML 1.2.2 specification, example 10.9 (core tag resolution) with the table of section 10.3.2 around it.
SCALARS = {
    "null": None,
    "Null": None,
    "NULL": None,
    "~": None,
    "": None,
    "nULL": "nULL",
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "FALSE": False,
    "tRUE": "tRUE",
    "yes": "yes",
    "no": "no",
    "on": "on",
    "Off": "Off",
    "y": "y",
    "0": 0,
    "0o7": 7,
    "0o14": 12,
    "0x3A": 58,
    "0x1F": 31,
    "-19": -19,
    "+12": 12,
    "012": 12,
    "0b1": "0b1",
    "0o8": "0o8",
    "0xG": "0xG",
    "-0x1": "-0x1",
    "1_000": "1_000",
    "190:20:30": "190:20:30",
    "2001-12-14": "2001-12-14",
    "0.": 0.0,
    "-0.0": -0.0,
    ".5": 0.5,
    "+12e03": 12000.0,
    "-2E+05": -200000.0,
    "1e-3": 0.001,
    "1e3": 1000.0,
    "6.02e23": 6.02e23,
    ".": ".",
    "e3": "e3",
    "1e": "1e",
    "1.2.3": "1.2.3",
    ".inf": math.inf,
    "-.Inf": -math.inf,
    "+.INF": math.inf,
    "inf": "inf",
    "nan": "nan",
    "'1'": "1",
    '"true"': "true",
    '"~"': "~",
    "!!str 1": "1",
    "!!float 1": 1.0,
    "!!int 1": 1,
    "!!null ''": None,
    "!!bool true": True,
    "[1, no]": [1, "no"],
    "{a: 1e-3}": {"a": 0.001},
    "!!map {a: !!seq [1]}": {"a": [1]},
    "{der: {alpha: 1}}": {"der": {"alpha": 1}},
    "{'<<': 1}": {"<<": 1},
    "<<: 1": {"<<": 1},  # merge keys are not part of YAML 1.2
    "{on: 1}": {"on": 1},
    "# nothing": None,
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
def test_a_scalar_means_what_yaml_1_2_says(text: str, value: object) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("text", [".nan", ".NaN", ".NAN"])
def test_not_a_number(text: str) -> None:
    found = parse_value(text)
    assert isinstance(found, float)
    assert math.isnan(found)


def test_minus_zero_keeps_its_sign() -> None:
    assert math.copysign(1, parse_value("-0.0")) == -1


@pytest.mark.parametrize("text", ["{1: a}", "{a: 1, a: 2}", "!!set {a}", "!x 1", "&a [*a]", "a: b: c", "'"])
def test_what_is_no_value_is_one_line(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_value(text)
    assert str(caught.value).startswith(text + ": ")


def test_every_key_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("# a comment\na:\n  b: [1,\n    2]\n\nc: {d: &x {e: 1}}\nf: *x\n")
    document = read_yaml(path)
    assert document.values == {"a": {"b": [1, 2]}, "c": {"d": {"e": 1}}, "f": {"e": 1}}
    assert {keys: line.number for keys, line in document.origins.items() if isinstance(line, Line)} == {
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "b", 0): 3,
        ("a", "b", 1): 4,
        ("c",): 6,
        ("c", "d"): 6,
        ("c", "d", "e"): 6,
        ("f",): 7,
        ("f", "e"): 6,
    }


def test_values_of_an_alias_are_not_shared(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: &x {e: 1}\nb: *x\n")
    values = read_yaml(path).values
    assert values["a"] is not values["b"]


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b"%YAML 1.2\n---\n"])
def test_a_byte_order_mark_and_a_directive_are_read(tmp_path: Path, start: bytes) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(start + "name: é\r\nseed: 1\r\n".encode())
    assert read_yaml(path).values == {"name": "é", "seed": 1}
