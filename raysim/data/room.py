"""Whether arrays whose sizes a config sets fit into this machine's memory: asked before they are made."""

import psutil

from raysim.system.errors import ConfigError

MOST_OF_MEMORY = 0.5  # the driver's arrays cross to the object store once more


def check_room(nbytes: int, key: str, found: object) -> None:
    """Refuse what would take more than half of the memory that there is; `key` and `found` say what asks for it.

    Raises:
        ConfigError: it would.
    """
    most = MOST_OF_MEMORY * psutil.virtual_memory().total
    if nbytes > most:
        raise ConfigError(
            f"{key}: found {found}, which takes {nbytes / 2**30:,.1f} GiB, allowed: what fits into {most / 2**30:.1f} "
            "GiB, half of this machine's memory"
        )
