"""Ray's token, which a cluster started with one requires. Does not import Ray, which reads the settings at import."""

import os
import secrets
import sys
from pathlib import Path

MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def show_what_there_is() -> None:
    """Have Ray present this machine's token to the clusters that are joined.

    If a machine has a token, `ray start` (2.60) makes a cluster that requires it, but a process that is given the
    cluster's address presents none. A cluster that requires no token accepts any.
    """
    if "ray" not in sys.modules and _there_is_one():
        os.environ.setdefault(MODE, "token")


def have_one() -> None:
    """Make a token for the clusters that this process starts, if there is none; otherwise Ray writes one to ~/.ray."""
    if not _there_is_one():
        os.environ[TOKEN] = secrets.token_hex(32)


def refused(error: BaseException) -> bool:
    """Return whether joining a cluster failed because of the token."""
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__ == "AuthenticationError" or "InvalidAuthToken" in str(error)


def _there_is_one() -> bool:
    named = bool(os.environ.get(TOKEN) or os.environ.get(TOKEN_FILE))
    return named or (Path.home() / ".ray" / "auth_token").is_file()
