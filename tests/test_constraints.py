"""constraints.txt, the versions that `make install` takes: a pin for each requirement, which the requirement allows."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
STATED = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
LINES = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"]


def test_it_pins_each_package_once_and_leaves_cuda_to_torch() -> None:
    names = [canonicalize_name(line.partition("==")[0]) for line in LINES]
    assert all(line.count("==") == 1 for line in LINES)
    assert len(names) == len({*names})
    assert not [name for name in names if name.startswith(("nvidia-", "cuda-", "triton", "raysim"))]


@pytest.mark.parametrize("stated", [one for one in STATED if not one.startswith("raysim")])
def test_what_is_required_is_pinned_to_a_version_that_it_allows(stated: str) -> None:
    pins = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LINES)}
    required = Requirement(stated)
    assert required.specifier.contains(pins[canonicalize_name(required.name)])
