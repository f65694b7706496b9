"""Warnings of the line outside raysim that called it, for calls from Python."""

import inspect
import warnings


class DeprecatedKey(FutureWarning):
    """A config has a key that has another name now."""


def warn_caller(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn, with the place of the line outside raysim."""
    level, frame = 0, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "raysim":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level + 1)
