"""What a sweep finds where its runs go: done runs stay, unfinished ones go on, all else is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from raysim.config import load
from raysim.config.comparison import describe_difference
from raysim.records import result
from raysim.sweeps.grid import Cell
from raysim.system.errors import ConfigError
from raysim.system.files import is_part

Standing = Literal["new", "done", "interrupted", "failed", "unfinished"]

FILES_OF_A_RUN = ("config.yaml", "summary.json", "rounds.jsonl", "model.pt", "clients_at_tasks.png", "events.out.*")
FOLDERS_OF_A_RUN = ("checkpoints",)
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
    held = sorted(path for path in directory.iterdir() if not is_part(path)) if directory.is_dir() else []
    if not held:
        return "new"
    if directory / "config.yaml" not in held:
        raise ConfigError(f"{directory}: found {held[0].name} and no config.yaml, so this is no run's; {INSTEAD}")
    status = result.load(directory).status if directory / "summary.json" in held else "unfinished"
    unlike = describe_difference(load(directory / "config.yaml"), cell.config)
    if unlike is not None:
        raise ConfigError(f"{directory}: a run ({status}) of another config is there: {unlike}; {INSTEAD}")
    if status == "done":
        return "done"
    foreign = next((path for path in held if not _of_a_run(path)), None)
    if foreign is not None:
        raise ConfigError(f"{directory}: found {foreign.name}, which no run writes, in a run to do again; {INSTEAD}")
    return "failed" if status == "failed" else "interrupted" if status == "interrupted" else "unfinished"


def _of_a_run(path: Path) -> bool:
    if path.is_dir():
        return path.name in FOLDERS_OF_A_RUN and not path.is_symlink()
    return any(path.match(pattern) for pattern in FILES_OF_A_RUN)


def _between(out: Path, directory: Path) -> list[Path]:
    """Return the directories above a run's, below the sweep's, from the outside in."""
    return [above for above in reversed(directory.parents) if out in above.parents]
