"""The cluster of some runs: the one that their configs name, or one of this machine's own."""

import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from raysim.actors import compat
from raysim.actors.joining import joined_cluster
from raysim.actors.session import Session
from raysim.actors.starting import own_cluster
from raysim.config import Config
from raysim.config.lookup import names_for_actors
from raysim.estimate.memory import COMPILER, shares_compiler
from raysim.system.capacity import Capacity
from raysim.system.custom_code import find_custom_code, refuse_main
from raysim.system.errors import ConfigError

PRETRAINED = re.compile(r"transformers\.models\.\w+\.modeling_\w+")


def cluster_of(
    configs: Sequence[Config],
    machine: Capacity,
    say: Callable[[str], None],
    session: Session | None = None,
) -> AbstractContextManager[Capacity]:
    """Join the cluster that the configs name, or start one on this machine. Yield the cluster's capacity.

    Args:
        configs: the configs of the runs, which all name the same address.
        machine: the resources of a cluster started on this machine.
        say: shows a line to the user.
        session: an open session, for a cluster started on this machine.

    Raises:
        ConfigError: a config names code that actors cannot import, or requires forked workers in the plain mode of
            `compat.why_plain`. Or this process is connected to another cluster than the configs name.
    """
    for config in configs:
        refuse_main(names_for_actors(config))
    forked = any(config.resources.forks for config in configs)
    if forked and (why := compat.why_plain()):
        if any(config.resources.workers == "forked" for config in configs):
            raise ConfigError(f"resources.workers: found forked, but {why}; allowed: auto or spawned")
        say(f"Ray spawns the workers, and each imports torch: {why}")
    address = configs[0].resources.address
    if address is None:
        dashboard = any(config.resources.dashboard for config in configs)
        modules = _slow_modules() if all(map(shares_compiler, configs)) else []
        return own_cluster(machine, dashboard, say, session, forked, modules)
    code = sorted({str(path) for config in configs for path in find_custom_code(names_for_actors(config))})
    return joined_cluster(address, code)


def _slow_modules() -> list[str]:
    """Return what this process has imported to build models and every host would import again, 60 MiB and more each."""
    return [name for name in sys.modules if name == COMPILER or PRETRAINED.fullmatch(name)]
