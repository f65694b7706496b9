"""The command: python -m golden, with tools/ on PYTHONPATH. It writes tests/golden/ anew, and says what moved."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

from golden.changelog import CHANGELOG, entry_for, listed, problems
from golden.choice import GOLDEN, PRECISIONS, other_versions
from golden.kept import KeptFile, read_accuracies, read_kept, write_accuracies, write_kept
from golden.machine import Machine
from golden.moving import accuracies_after, files_after, names_moved, new_moves
from golden.running import AVX2, Outcome, carry_out


def main(given: Sequence[str] | None = None) -> int:
    """Carry the runs out and write what moved. Return 1 if CHANGELOG.md lacks something, 2 if a run cannot be kept."""
    argparse.ArgumentParser(prog="golden", description=__doc__, allow_abbrev=False).parse_args(given)
    if others := other_versions():
        print(*(f"`{name}`: {why}: install that of constraints.txt" for name, why in others.items()), file=sys.stderr)
        return 2
    try:
        machine, found = carry_out(GOLDEN)
        computed = by_file(machine, found)
        if machine.capability == "AVX512":
            computed |= by_file(*carry_out(GOLDEN, variables=AVX2))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    kept = read_kept()
    now = files_after(kept, computed)
    for file in now.values():
        write_kept(file)
    write_accuracies(accuracies_after(read_accuracies(), found, names_moved(kept, computed)))
    return told(kept, now)


def told(kept: Mapping[str, KeptFile], now: Mapping[str, KeptFile]) -> int:
    """Print what moved and what CHANGELOG.md lacks, and return 1 if it lacks something."""
    new = new_moves(kept, now)
    for stem, moves in new.items():
        print(*(f"{stem}: {listed([*move])}" for move in moves.values()), sep="\n")
    if not new:
        print("no golden run moved")
    lacking = problems(now.values(), CHANGELOG.read_text(encoding="utf-8"))
    if lacking:
        begun = {token for file in now.values() for token in file.tokens[:1]}
        named = {token: [] if token in begun else [*move] for moves in new.values() for token, move in moves.items()}
        print("", "CHANGELOG.md lacks:", *lacking, sep="\n")
        if named:
            print("", "It needs this entry, or the tokens in one that you wrote:", entry_for(named), sep="\n")
    return int(bool(lacking))


def by_file(machine: Machine, found: Mapping[str, Outcome]) -> dict[str, dict[str, Mapping[str, str]]]:
    """Return the hashes of runs by the stem of their kept file."""
    files: dict[str, dict[str, Mapping[str, str]]] = {}
    for name, one in found.items():
        files.setdefault(machine.stem(PRECISIONS[name]), {})[name] = one.hashes
    return files


if __name__ == "__main__":
    sys.exit(main())
