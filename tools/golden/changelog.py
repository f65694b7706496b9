"""Lines of CHANGELOG.md that name the golden runs that moved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from bits.trees import TOOLS

from golden.kept import KeptFile

CHANGELOG = TOOLS.parent / "CHANGELOG.md"
TOKENS = re.compile(r"\(golden:((?: [0-9a-f]{8})+)\)")


def entries(text: str) -> list[str]:
    """Return the entries of a changelog's lists, each as one line."""
    found = re.findall(r"^- .*(?:\n {2,}\S.*)*", text, re.MULTILINE)
    return [" ".join(entry.split()) for entry in found]


def problems(kept: Iterable[KeptFile], text: str) -> list[str]:
    """Return what a changelog lacks, one line each.

    - Every move needs its token in an entry that names all of its runs. The first move of a file is its beginning: its
      runs need not be named.
    - Every token needs a move: a file cannot be written anew under an entry that stays as it is.
    """
    written = entries(text)
    found, wanted = [], set()
    for file in kept:
        for place, (move, token) in enumerate(zip(file.moves, file.tokens, strict=True)):
            wanted.add(token)
            where = [entry for entry in written if token in tokens_of(entry)]
            if not where:
                what = f"says why these moved: {listed([*move])}" if place else "says that they are kept"
                found.append(f"{file.stem}: no entry has (golden: {token}) and {what}")
            elif place and (missing := [name for name in move if f"`{name}`" not in where[0]]):
                found.append(f"{file.stem}: the entry with (golden: {token}) does not name {listed(missing)}")
    unknown = [token for entry in written for token in tokens_of(entry) if token not in wanted]
    found += [f"CHANGELOG.md has (golden: {token}), which is of no kept file" for token in unknown]
    return found


def tokens_of(entry: str) -> list[str]:
    """Return the tokens in an entry."""
    return [token for group in TOKENS.findall(entry) for token in group.split()]


def entry_for(moves: Mapping[str, Sequence[str]]) -> str:
    """Return an entry to be completed with the reason.

    Args:
        moves: by token of each new move, the runs that it has to name.
    """
    names = dict.fromkeys(name for runs in moves.values() for name in runs)
    what = f"moved, as REASON: {listed([*names])}" if names else "are kept for MACHINES"
    return f"- Golden runs {what} (golden: {' '.join(moves)})."


def listed(names: Sequence[str]) -> str:
    """Return names as an entry has them."""
    return ", ".join(f"`{name}`" for name in names)
