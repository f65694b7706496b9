"""What the kept files become after runs were computed, on this machine and for the others."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from golden.kept import Hashes, KeptFile, Move
from golden.running import Outcome
from golden.tolerance import differences

Computed = Mapping[str, Mapping[str, Hashes]]
"""The stem of a file -> run -> its hashes."""


def names_moved(kept: Mapping[str, KeptFile], computed: Computed) -> set[str]:
    """Return the runs that have other hashes than those kept for the same machine."""
    return {
        name
        for stem, hashes in computed.items()
        if stem in kept
        for name, value in hashes.items()
        if kept[stem].hashes.get(name) not in (None, value)
    }


def files_after(kept: Mapping[str, KeptFile], computed: Computed) -> dict[str, KeptFile]:
    """Return all files by stem, with the computed hashes.

    A run that moved here moves on other machines, too. Their hashes of it are None until they are computed there.
    """
    moved = names_moved(kept, computed)
    found = {}
    for stem in sorted({*kept, *computed}):
        file = kept.get(stem, KeptFile(stem))
        unknown = dict.fromkeys(sorted(moved & {*file.hashes}))
        found[stem] = file.moved(computed.get(stem, unknown))
    return found


def new_moves(kept: Mapping[str, KeptFile], now: Mapping[str, KeptFile]) -> dict[str, dict[str, Move]]:
    """Return the moves that files have more than before, by stem and token. Files without any are left out."""
    begin = {stem: len(kept[stem].moves) if stem in kept else 0 for stem in now}
    found = {stem: dict(zip(file.tokens, file.moves, strict=True)) for stem, file in now.items()}
    new = {stem: dict([*moves.items()][begin[stem] :]) for stem, moves in found.items()}
    return {stem: moves for stem, moves in new.items() if moves}


def accuracies_after(
    kept: Mapping[str, Mapping[str, Any]], found: Mapping[str, Outcome], moved: Collection[str]
) -> dict[str, Mapping[str, Any]]:
    """Return the accuracies to keep: the earlier ones of a run that did not move, and is within its tolerance.

    Another machine therefore leaves them as they are.
    """
    new = {name: {"accuracy": one.accuracy, "samples": one.samples} for name, one in found.items()}
    stays = {
        name
        for name in found
        if name in kept and name not in moved and not differences(kept[name], found[name].accuracy)
    }
    return {name: kept[name] if name in stays else new[name] for name in found}
