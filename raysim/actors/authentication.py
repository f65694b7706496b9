"""Ray's token: a cluster that was started with one wants to see it. Imports no Ray, which reads this when imported."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def show_what_there_is() -> None:
    """Have Ray show this machine's token to the clusters that are joined.

    Where a machine has a token, `ray start` (2.60) makes a cluster that wants it, but a process that is given the
    cluster's address shows none. A cluster that wants none takes any.
    """
    if "ray" not in sys.modules and _there_is_one():
        os.environ.setdefault(MODE, "token")


def have_one() -> None:
    """Make a token for the clusters that this process starts, if there is none: Ray would write one to ~/.ray."""
    if not _there_is_one():
        os.environ[TOKEN] = secrets.token_hex(32)


def refused(error: BaseException) -> bool:
    """Return whether a failure to join was for the token."""
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__ == "AuthenticationError" or "InvalidAuthToken" in str(error)


def _there_is_one() -> bool:
    named = bool(os.environ.get(TOKEN) or os.environ.get(TOKEN_FILE))
    return named or (Path.home() / ".ray" / "auth_token").is_file()
