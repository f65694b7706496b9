"""Versions of the software that a run's results depend on."""

import platform
import subprocess
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def find_versions() -> dict[str, str | None]:
    """Return the versions of python, torch, ray and raysim, and raysim's git commit; None for an unknown one."""
    found = {"python": platform.python_version(), "torch": None, "ray": None, "raysim": None, "git": _find_commit()}
    for package in ("torch", "ray", "raysim"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def _find_commit() -> str | None:
    git = partial(subprocess.run, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5)
    try:
        known = git(["git", "ls-files", "--error-unmatch", __file__])
        head = git(["git", "rev-parse", "HEAD"])
    except (OSError, subprocess.TimeoutExpired):
        return None
    return head.stdout.strip() or None if known.returncode == 0 else None
