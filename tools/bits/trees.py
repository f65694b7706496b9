"""The two trees, a commit's and the working tree, and processes that carry out runs with their code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bits.run import Run

TOOLS = Path(__file__).resolve().parents[1]
LONGEST = 3600.0  # seconds that a process may take for its runs
PATIENCE = 20.0  # seconds that it has to end tidily


def git(*given: str) -> str:
    """Return what git prints in the working tree. Raises RuntimeError with its error."""
    ended = subprocess.run(["git", *given], cwd=TOOLS.parent, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"git {given[0]}: {ended.stderr.strip()}")
    return ended.stdout.strip()


@contextmanager
def tree_of(commit: str, place: Path) -> Iterator[Path]:
    """Check a commit out as a worktree at a place, and remove it at the end."""
    try:
        git("worktree", "add", "--detach", "--quiet", str(place), commit)
        yield place
    finally:
        with suppress(RuntimeError):
            git("worktree", "remove", "--force", str(place))


def copied(package: Path, place: Path) -> Path:
    """Copy a package of the working tree, so that you may edit it during the runs."""
    shutil.copytree(package, place / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    return place


class Carrying:
    """A process that carries out runs with the code of a tree.

    Args:
        tree: the folder that holds raysim.
        tools: the folder that holds this package.
        runs: what is run, by name.
        folder: a new folder for this process.
    """

    def __init__(self, tree: Path, tools: Path, runs: Mapping[str, Run], folder: Path) -> None:
        self._runs = runs
        self._began = time.monotonic()
        self._said, self._results = folder / "said", folder / "results.jsonl"
        folder.mkdir(parents=True)
        asked = folder / "runs.json"
        asked.write_text(json.dumps({name: asdict(run) for name, run in runs.items()}), encoding="utf-8")
        own = {"PYTHONPATH": f"{tree}{os.pathsep}{tools}", "RAYSIM_BITS_TREE": str(tree)}
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bits.child", str(asked), str(self._results), str(folder / "work")],
                cwd=tree,
                env={**os.environ, **own},
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this process, which then ends that one
            )

    def under_way(self) -> bool:
        """Return whether the process runs. One that takes too long is ended."""
        if time.monotonic() - self._began > LONGEST:
            self.end()
        return self._process.poll() is None

    def end(self) -> None:
        """End the process and all that it started."""
        if self._process.poll() is None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def found(self) -> dict[str, Any]:
        """Return the result of each run. Runs without a result failed."""
        found: dict[str, Any] = {}
        if self._results.exists():
            for line in self._results.read_text(encoding="utf-8").splitlines():
                found |= json.loads(line)
        said = self._said.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        why = f"the process ended with status {self._process.returncode}: {said[-1] if said else 'it said nothing'}"
        return {name: found.get(name, {"error": why}) for name in self._runs}


def carried_out(waiting: Sequence[tuple[str, Path, Mapping[str, Run]]], folder: Path) -> dict[str, dict[str, Any]]:
    """Carry out runs in two processes at a time, and return the results by side.

    Args:
        waiting: a side's name, its tree, and the runs of one process; a side may have several.
        folder: the folder of their files.
    """
    found: dict[str, dict[str, Any]] = {side: {} for side, _, _ in waiting}
    tools = copied(TOOLS / "bits", folder / "tools")
    left = list(enumerate(waiting))
    at_work: list[tuple[str, Carrying]] = []
    try:
        while left or at_work:
            while left and len(at_work) < 2:
                number, (side, tree, runs) = left.pop(0)
                at_work.append((side, Carrying(tree, tools, runs, folder / str(number))))
            time.sleep(0.1)
            for side, carrying in [one for one in at_work if not one[1].under_way()]:
                found[side] |= carrying.found()
                at_work.remove((side, carrying))
    finally:
        for _, carrying in at_work:
            carrying.end()
    return found
