"""The golden runs: their bits where these are kept, their accuracies everywhere, and engines that move them."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from bits.trees import TOOLS, copied
from golden.choice import GOLDEN, PRECISIONS, other_versions
from golden.kept import read_accuracies, read_kept
from golden.machine import Machine
from golden.running import Outcome, carry_out
from golden.tolerance import differences
from mutants.mutant import Mutant, read_list

MUTANTS = {mutant.id: mutant for mutant in read_list(TOOLS / "golden" / "mutants.json")}
SEEN_BY = {
    "sums in float32": "fedadam",
    "another stream": "arrivals",
    "replay with replacement": "er",
    "optimizer anew": "kept momentum, bf16",
    "chunk without its last sample": "table",
}
"""A golden run that each mutant moves; the page on what stays the same has all of them."""

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def computed() -> tuple[Machine, dict[str, Outcome]]:
    """All golden runs with the working tree's code."""
    return carry_out(GOLDEN)


def test_no_bit_moved(computed: tuple[Machine, Mapping[str, Outcome]]) -> None:
    machine, found = computed
    kept = read_kept()
    known = {name: kept[stem].hashes.get(name) for name in found if (stem := machine.stem(PRECISIONS[name])) in kept}
    others = other_versions()
    compared = {name: hashes for name, hashes in known.items() if hashes is not None and name not in others}
    moved = {name: found[name].hashes for name, hashes in compared.items() if found[name].hashes != hashes}
    assert not moved, f"golden runs moved; if that is meant, `make golden` and name them in CHANGELOG.md: {[*moved]}"
    if missing := {name: others.get(name) or machine.stem(PRECISIONS[name]) for name in found if name not in compared}:
        pytest.skip(f"only accuracies are compared where no bits are kept for this machine: {missing}")


def test_accuracies_are_within_rounding(computed: tuple[Machine, Mapping[str, Outcome]]) -> None:
    kept = read_accuracies()
    moved = {name: differences(kept[name], found.accuracy) for name, found in computed[1].items()}
    assert {name: lines for name, lines in moved.items() if lines} == {}


@pytest.mark.parametrize("name", [*SEEN_BY])
def test_a_changed_engine_moves_them(
    name: str, computed: tuple[Machine, Mapping[str, Outcome]], tmp_path: Path
) -> None:
    """With the run alone: it is the same in company, or it would not be equal in two processes."""
    mutant, run = MUTANTS[name], SEEN_BY[name]
    _, found = carry_out({run: GOLDEN[run]}, applied(mutant, tmp_path))
    assert found[run].hashes != computed[1][run].hashes


def test_the_same_engine_elsewhere_moves_none(computed: tuple[Machine, Mapping[str, Outcome]], tmp_path: Path) -> None:
    """The check of the check above: it is not the folder that makes a difference, nor the runs before."""
    copied(TOOLS.parent / "raysim", tmp_path)
    machine, found = carry_out({name: GOLDEN[name] for name in SEEN_BY.values()}, tmp_path)
    assert machine == computed[0]
    assert found == {name: computed[1][name] for name in SEEN_BY.values()}


def applied(mutant: Mutant, folder: Path) -> Path:
    """Return a folder with a copy of raysim in which a line is changed."""
    copied(TOOLS.parent / "raysim", folder)
    path = folder / mutant.file
    path.write_text(mutant.apply(path.read_text(encoding="utf-8")), encoding="utf-8")
    return folder


def test_every_mutant_is_tried() -> None:
    assert {*SEEN_BY} == {*MUTANTS}
    assert len({json.dumps(vars(mutant)) for mutant in MUTANTS.values()}) == 5
