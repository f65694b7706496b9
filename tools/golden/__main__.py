"""The command: python -m golden, with tools/ on PYTHONPATH. It writes tests/golden/ anew, and says what moved."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence

from golden.changelog import CHANGELOG, entry_for, listed, problems
from golden.choice import GOLDEN, PRECISIONS
from golden.kept import Hashes, KeptFile, read_kept, write_accuracies, write_kept
from golden.machine import Machine
from golden.running import AVX2, Outcome, carry_out


def main(given: Sequence[str] | None = None) -> int:
    """Carry the runs out and write what moved. Return 1 if CHANGELOG.md does not name it yet."""
    argparse.ArgumentParser(prog="golden", description=__doc__, allow_abbrev=False).parse_args(given)
    kept = read_kept()
    machine, found = carry_out(GOLDEN)
    computed = {**by_file(machine, found)}
    write_accuracies(found)
    if machine.capability == "AVX512":
        computed |= by_file(*carry_out(GOLDEN, variables=AVX2))
    now = {file.stem: file for file in moved(kept, computed)}
    for file in now.values():
        write_kept(file)
    new = {stem: range(len(kept[stem].moves) if stem in kept else 0, len(file.moves)) for stem, file in now.items()}
    changed = {stem: now[stem].moves[place] for stem, places in new.items() for place in places}
    print(*(f"{stem}: {listed([*runs])}" for stem, runs in changed.items()), sep="\n")
    print(f"{len(changed)} kept files changed")
    if changed:
        tokens = {
            now[stem].tokens[place]: [*now[stem].moves[place]] * bool(place) for stem in new for place in new[stem]
        }
        print(f"CHANGELOG.md needs this entry, or its tokens in one that you wrote:\n\n{entry_for(tokens)}")
    return int(bool(problems(now.values(), CHANGELOG.read_text(encoding="utf-8"))))


def by_file(machine: Machine, found: Mapping[str, Outcome]) -> dict[str, dict[str, Hashes]]:
    """Return the hashes of runs by the stem of their kept file."""
    files: dict[str, dict[str, Hashes]] = {}
    for name, one in found.items():
        files.setdefault(machine.stem(PRECISIONS[name]), {})[name] = one.hashes
    return files


def moved(kept: Mapping[str, KeptFile], computed: Mapping[str, Mapping[str, Hashes]]) -> Iterator[KeptFile]:
    """Yield all files after the computed hashes.

    A run that moved here moves on other machines, too. Their hashes of it are None until they are computed there.
    """
    elsewhere = {
        name
        for stem, hashes in computed.items()
        if stem in kept
        for name, value in hashes.items()
        if kept[stem].hashes.get(name) not in (None, value)
    }
    for stem in sorted({*kept, *computed}):
        file = kept.get(stem, KeptFile(stem))
        stale = dict.fromkeys(sorted(elsewhere & {*file.hashes}))
        yield file.moved(computed.get(stem, stale))


if __name__ == "__main__":
    sys.exit(main())
