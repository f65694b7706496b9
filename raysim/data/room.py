"""Whether arrays whose sizes a config sets fit into this machine's memory: asked before they are made."""

import psutil

from raysim.system.capacity import GIB, MOST_FOR_DATA
from raysim.system.errors import ConfigError


def check_room(nbytes: int, key: str, found: object) -> None:
    """Refuse what would take more than half of the memory that there is; `key` and `found` say what asks for it.

    Raises:
        ConfigError: it would.
    """
    most = MOST_FOR_DATA * psutil.virtual_memory().total
    if nbytes > most:
        raise ConfigError(
            f"{key}: found {found}, which takes {nbytes / GIB:,.1f} GiB, allowed: what fits into {most / GIB:.1f} "
            "GiB, half of this machine's memory"
        )
