"""What a sweep finds where its runs go: done runs stay, unfinished ones are run again, all else is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal

from raysim import result
from raysim.config import load
from raysim.errors import ConfigError
from raysim.sweeps.grid import Cell, difference

Standing = Literal["new", "done", "interrupted", "failed", "unfinished"]

OF_A_RUN = ("config.yaml", "summary.json", "rounds.jsonl", "model.pt", "events.out.*", "checkpoints")
INSTEAD = "allowed: another --out, or this directory moved out of the way"


def standing(cell: Cell, out: Path) -> Standing:
    """Return how far a run of a sweep has come: new, done, or how it ended before its end.

    Args:
        cell: the run.
        out: the sweep's directory.

    Raises:
        ConfigError: its directory holds something else, another config's run, or a run that cannot be read.
    """
    directory = out / cell.folder
    for above in (out, *_between(out, directory)):
        if above.exists() and not above.is_dir():
            raise ConfigError(f"{above}: this is a file, allowed: a directory of this sweep")
        if any((above / name).is_file() for name in ("config.yaml", "rounds.jsonl")):
            raise ConfigError(f"{above}: this is a run's directory, and '{cell.folder}' would lie in it; {INSTEAD}")
    if directory.exists() and not directory.is_dir():
        raise ConfigError(f"{directory}: this is a file, allowed: a directory of this sweep")
    held = sorted(directory.iterdir()) if directory.is_dir() else []
    if not held:
        return "new"
    foreign = next((path for path in held if not any(path.match(pattern) for pattern in OF_A_RUN)), None)
    if foreign is not None or directory / "config.yaml" not in held:
        what = f"found {foreign.name}, which no run writes" if foreign else "found no config.yaml"
        raise ConfigError(f"{directory}: {what}; {INSTEAD}")
    status = result.load(directory).status if directory / "summary.json" in held else "unfinished"
    unlike = difference(load(directory / "config.yaml"), cell.config)
    if unlike is not None:
        raise ConfigError(f"{directory}: a run ({status}) of another config is there: {unlike}; {INSTEAD}")
    known: dict[str, Standing] = {"done": "done", "interrupted": "interrupted", "failed": "failed"}
    return known.get(status, "unfinished")


def clear(cell: Cell, out: Path) -> None:
    """Delete what an earlier start of this very run left unfinished.

    Raises:
        ConfigError: as `standing` does; and where the run is done.
    """
    directory = out / cell.folder
    if standing(cell, out) == "done":
        raise ConfigError(f"{directory}: this run is done, and is not run again")
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _between(out: Path, directory: Path) -> list[Path]:
    """Return the directories above a run's, below the sweep's, from the outside in."""
    return [above for above in reversed(directory.parents) if out in above.parents]
