"""A limit on the arrays whose size a config sets, asked before they are made."""

import psutil

from raysim.system.capacity import GIB, MOST_FOR_DATA
from raysim.system.errors import ConfigError


def require_memory(nbytes: int, key: str, found: object) -> None:
    """Refuse arrays of more than half of this machine's memory; `key` and `found` name the setting that asks for them.

    Raises:
        ConfigError: `nbytes` is more than that.
    """
    most = MOST_FOR_DATA * psutil.virtual_memory().total
    if nbytes > most:
        raise ConfigError(
            f"{key}: found {found}, which takes {nbytes / GIB:,.1f} GiB, allowed: what fits into {most / GIB:.1f} "
            "GiB, half of this machine's memory"
        )
