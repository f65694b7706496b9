"""Versions of the software that a run's results depend on."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def find_versions() -> dict[str, str | None]:
    """Return the versions of python, torch, ray and raysim, and raysim's git commit; None for what has none."""
    return {
        "python": platform.python_version(),
        **{package: _find_version(package) for package in ("torch", "ray", "raysim")},
        "git": _find_commit(),
    }


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _find_commit() -> str | None:
    here = Path(__file__).parent
    try:
        known = subprocess.run(
            ["git", "ls-files", "--error-unmatch", __file__], cwd=here, capture_output=True, timeout=5
        )
        head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=here, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() or None if known.returncode == 0 else None
