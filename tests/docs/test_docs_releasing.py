"""The oldest versions on the page of releases are those that pyproject.toml allows."""

import re
import tomllib

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INSTALLED = ("vision", "detection", "transformers", "timm")  # what the extra dev has of what users install
BETWEEN = {"torchvision": "goes with torch", "pyparsing": "of matplotlib", "pytest": "goes with typing-extensions"}


def test_the_oldest_versions_are_the_lowest_allowed() -> None:
    page = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
    block = re.search(r"^```\n((?:[\w-]+==[\d.]+\n)+)```$", page, re.MULTILINE)
    assert block is not None
    pinned = {name: Version(version) for name, version in re.findall(r"([\w-]+)==([\d.]+)", block[1])}
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in INSTALLED for line in extras[extra])]
    lines += [line for line in extras["dev"] if line.startswith("peft")]
    lowest = {}
    for required in map(Requirement, lines):
        for bound in required.specifier:
            assert bound.operator == ">="
            lowest[canonicalize_name(required.name)] = Version(bound.version)
    assert {name: version for name, version in pinned.items() if name not in BETWEEN} == lowest
