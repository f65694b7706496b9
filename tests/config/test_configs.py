"""Every config under configs/ is one: it loads, its methods go together, and it says what it needs."""

from pathlib import Path

import pytest

from raysim.config import load
from raysim.engine.compatibility import check_methods

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = sorted(path for path in CONFIGS.rglob("*.yaml") if "sweeps" not in path.parts)


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(CONFIGS)) for path in FILES])
def test_it_loads_and_its_methods_go_together(path: Path) -> None:
    check_methods(load(path))


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(CONFIGS)) for path in FILES])
def test_it_begins_by_saying_what_it_is_and_what_it_needs(path: Path) -> None:
    comment = [line for line in path.read_text().splitlines() if line.startswith("#")]
    assert path.read_text().startswith("# ")
    assert any(word in " ".join(comment) for word in ("Needs", "No download"))
    assert all(len(line) <= 120 for line in path.read_text().splitlines())
