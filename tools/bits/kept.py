"""Kept results of commits. They stay the same on the same machine with the same packages."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bits.run import Run
from bits.trees import TOOLS

WHAT_RUNS = ("child.py", "own.py", "run.py")  # the tool's own code that a result depends on
PACKAGES = ("torch", "torchvision", "numpy", "pillow", "ray")


class Kept:
    """The results of a commit in one file, each with its run.

    Args:
        commit: in full.
        folder: the folder of the files.
    """

    def __init__(self, commit: str, folder: Path = TOOLS.parent / ".bits") -> None:
        self._path = folder / f"{commit[:12]}-{surroundings()}.json"
        self._known: dict[str, Any] = {}
        if self._path.exists():
            self._known = json.loads(self._path.read_text(encoding="utf-8"))

    def of(self, runs: Mapping[str, Run]) -> dict[str, Any]:
        """Return the results of those runs that were carried out before, exactly as they are."""
        entries = {name: self._known.get(name) for name in runs}
        return {name: entry["found"] for name, entry in entries.items() if entry and entry["run"] == _plain(runs[name])}

    def keep(self, runs: Mapping[str, Run], found: Mapping[str, Any]) -> None:
        """Keep the results of the runs that did not fail."""
        done = {name: result for name, result in found.items() if "error" not in result}
        self._known |= {name: {"run": _plain(runs[name]), "found": result} for name, result in done.items()}
        self._path.parent.mkdir(exist_ok=True)
        part = self._path.with_suffix(".part")
        part.write_text(json.dumps(self._known), encoding="utf-8")
        part.replace(self._path)


def surroundings() -> str:
    """Return a digest of what else decides on bits: Python, packages, the processor, and how runs are carried out."""
    code = [(TOOLS / "bits" / name).read_text(encoding="utf-8") for name in WHAT_RUNS]
    packages = [version(package) for package in PACKAGES]
    whole = [platform.python_version(), *packages, platform.machine(), str(os.cpu_count()), _processor(), *code]
    return hashlib.sha256("\0".join(whole).encode()).hexdigest()[:12]


def _processor() -> str:
    """Return the processor's name and features, by which torch chooses its kernels."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _plain(run: Run) -> Any:
    return json.loads(json.dumps(asdict(run)))
