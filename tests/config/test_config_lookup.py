"""Named components: where they are found, and the keys that their signatures give them."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import doc
from named_components import Colour, Der, FedProx, Plain, archive, digits, net, picky

from raysim.config import ConfigError, lookup
from raysim.config.error_text import find_nearest
from raysim.config.lookup import only_named_by, resolve
from raysim.config.reference import describe_block
from raysim.config.signature import keys_of, own_values, positional_parameters, takes_keys_of


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


@dataclass(kw_only=True)
class Shared:
    first: Annotated[int, doc("how many")]
    last: float = 0.5


@takes_keys_of(Shared)
def without_own(root: str, **keys: Any) -> Shared:
    return Shared(**keys)


@takes_keys_of(Shared, before="last")
def with_own(root: str, *, middle: bool = False, **keys: Any) -> tuple[bool, Shared]:
    return middle, Shared(**keys)


def test_two_components_have_the_keys_of_one_owner() -> None:
    assert list(describe_block(keys_of(without_own))) == [
        ("first", "required", "a whole number", "how many"),
        ("last", "0.5", "a number", ""),
    ]
    assert defaults(with_own, first=2) == {"first": 2, "middle": False, "last": 0.5}
    assert [*defaults(with_own, first=2)] == ["first", "middle", "last"]
    assert positional_parameters(with_own) == (["root"], 1)
    assert with_own("", **defaults(with_own, first=2, middle=True)) == (True, Shared(first=2))


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
    (tmp_path / "own_things" / "thing.py").write_text("def grow(shape, classes, *, by: int = 2): ...\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    grow = resolve("model", "own_things.thing:grow")
    assert defaults(grow) == {"by": 2}


SIGNATURES = """
import shutil
from pathlib import Path
from shutil import rmtree

def data(root, download, *, size: int = 1): ...
def model(shape, classes, width=3, *, depth: int = 1): ...
def sampler(server, count, draws): ...
def stream(_client, start): ...
def scenario(dataset, tasks, draws, *, by: int = 1): ...
def partition(labels, clients, rng): ...
def augmentation(images, numbers): ...
class optimizer:
    default_lr = 0.1
def schedule(lr, progress): ...
def other(path, ignore_errors=False): ...
def more(shape, classes, width): ...
def fewer(root): ...
root = root_too = lambda *, key=1: Path("called").touch()

class Model:
    def __init__(self, path, ignore_errors):
        Path("called").touch()

class Callable:
    def __call__(self, root, download): ...

instance = Callable()
"""
ALL_KINDS = [*lookup.KINDS]


@pytest.fixture
def signatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of the user's own in the working directory."""
    (tmp_path / "signatures.py").write_text(SIGNATURES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("signatures", None)


@pytest.mark.usefixtures("signatures")
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("dataset", "data"),
        ("dataset", "instance"),
        ("task scenario", "scenario"),
        ("rate schedule", "schedule"),
        *((kind, kind) for kind in ("model", "sampler", "stream", "partition", "augmentation", "optimizer")),
    ],
)
def test_ones_own_has_the_signature_of_its_kind(kind: str, name: str) -> None:
    assert callable(resolve(kind, f"signatures:{name}"))


def test_a_near_name_is_found_whatever_its_capitals() -> None:
    assert find_nearest("FedDin", ["Method", "FedDyn"]) == "FedDyn"
    assert find_nearest("feddyn", ["FedDyn"]) == "FedDyn"
    assert find_nearest("other", ["FedDyn"]) is None


def test_a_method_with_fields_is_a_dataclass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        "from raysim.api import Method",
        "class Plain(Method):",
        "    alpha: float = 0.1",
        "class Bare(Method): ...",
    ]
    (tmp_path / "undecorated.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    assert callable(resolve("method", "undecorated:Bare"))
    with pytest.raises(ConfigError, match=r"found a class with alpha that is no dataclass, .*, allowed: @dataclass\("):
        resolve("method", "undecorated:Plain")


@pytest.mark.usefixtures("signatures")
@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("name", ["other", "more", "fewer", "root", "Model", "rmtree"])
def test_what_has_another_signature_is_refused_and_not_called(kind: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{kind} 'signatures:{name}': .*, allowed: "):
        resolve(kind, f"signatures:{name}")
    assert not Path("called").exists()


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("name", ["shutil:rmtree", "os.path:join", "builtins:print", "subprocess:Popen"])
def test_pythons_own_modules_have_no_components(kind: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{kind} '{name}': the module [\w.]+ is Python's own, allowed: "):
        resolve(kind, name)


def test_nothing_of_pythons_own_is_imported() -> None:
    sys.modules.pop("antigravity", None)  # it opens a browser
    with pytest.raises(ConfigError, match="Python's own"):
        resolve("model", "antigravity:fly")
    assert "antigravity" not in sys.modules


@pytest.mark.usefixtures("signatures")
def test_what_another_config_names_is_not_imported_unless_it_is_trusted() -> None:
    name = "signatures:model"
    with only_named_by({"model": {"name": "other:model"}}):
        with pytest.raises(ConfigError, match=r"^the model 'signatures:model' is code of .*; add --trust"):
            resolve("model", name)
        assert "signatures" not in sys.modules
        assert resolve("model", "raysim.models.mlp:mlp") is resolve("model", "mlp")
    with only_named_by({"model": {"name": name}}):
        assert resolve("model", name)
    with only_named_by(trust=True):
        assert resolve("model", name)
    assert resolve("model", name)


@pytest.mark.parametrize("name", ["a:", ":b", "a:b:c", "a b:c", "../a:b", "a:b()", "1a:b"])
def test_what_is_no_name_is_not_imported(name: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed: a model of your own as package\.module:name$"):
        resolve("model", name)


def test_what_has_no_signature_is_one_line() -> None:
    with pytest.raises(ConfigError, match=r"^the keys of type cannot be read from its signature: "):
        keys_of(type)


@pytest.mark.parametrize("kind", [kind for kind in lookup.KINDS if kind != "stream"])
def test_raysims_own_tables_have_readable_keys(kind: str) -> None:
    names = lookup.table(kind)
    assert names
    for name in names:
        assert keys_of(resolve(kind, name)).model_json_schema()["type"] == "object"
