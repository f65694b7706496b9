"""Named components: where they are found, and the keys that their signatures give them."""

import sys
from pathlib import Path

import pytest
from named_components import Colour, Der, FedProx, Plain, archive, digits, net, picky

from raysim.config import ConfigError, lookup
from raysim.config.lookup import resolve
from raysim.config.signature import keys_of, own_values


def defaults(component: object, **given: object) -> dict[str, object]:
    return own_values(keys_of(component).model_validate(given))


def test_keyword_only_parameters_are_the_keys() -> None:
    assert defaults(digits) == {}
    assert defaults(archive, path="x") == {"path": "x", "scale": 1.0}
    assert type(defaults(archive, path="x")["scale"]) is float  # its default is written 1
    assert defaults(FedProx) == {"mu": 1e-05}
    assert defaults(Der) == {"alpha": 0.5, "sizes": [1, 2], "share": 1.0}
    assert defaults(picky, pairs=2) == {"pairs": 2, "fixed": 2}
    assert defaults(Plain) == {"depth": 2}


def test_lists_and_strings_become_what_the_annotation_says() -> None:
    found = defaults(net, hidden=[3], kernel=[1, 2], colour="blue", file="a/b")
    assert found["hidden"] == (3,)
    assert found["kernel"] == (1, 2.0)
    assert found["colour"] is Colour.BLUE
    assert found["file"] == Path("a/b")
    assert defaults(net)["hidden"] == (200, 100)


def test_a_default_factory_is_called_each_time() -> None:
    assert defaults(Der)["sizes"] is not defaults(Der)["sizes"]


def test_ones_own_is_found_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_things").mkdir()
    (tmp_path / "own_things" / "thing.py").write_text("def grow(shape, *, by: int = 2): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    grow = resolve("model", "own_things.thing:grow", {})
    assert defaults(grow) == {"by": 2}


@pytest.mark.parametrize("name", ["a:", ":b", "a:b:c", "a b:c", "../a:b", "a:b()", "1a:b"])
def test_what_is_no_name_is_not_imported(name: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed: a model of your own as package\.module:name$"):
        resolve("model", name, {})


def test_what_has_no_signature_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^the keys of type cannot be read from its signature: "):
        keys_of(type)


@pytest.mark.parametrize("kind", ["data set", "model", "method"])
def test_raysims_own_tables_have_readable_keys(kind: str) -> None:
    names = lookup.table(kind)
    assert names
    for name in names:
        assert keys_of(resolve(kind, name)).model_json_schema()["type"] == "object"
