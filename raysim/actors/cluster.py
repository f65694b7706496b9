"""Starting a Ray cluster on this machine or joining a running one, and cleaning up afterwards."""

import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import ray

from raysim.actors import authentication, joining
from raysim.actors.joining import LOOPBACK, on_loopback
from raysim.config import Config
from raysim.config.own_code import find_own_code
from raysim.config.schema import RAYS_OWN
from raysim.system import interrupts
from raysim.system.capacity import Capacity
from raysim.system.errors import ConfigError

PREFIX = "raysim-"
LONGEST_PARENT = 25  # /raysim-12345678, /session_DATE_TIME_MICROSECONDS_PID and /sockets/plasma_store take 82 of 107
YOUNG = 60.0  # seconds; another process may not have locked a folder yet that it has just made


def cluster_of(configs: Sequence[Config], machine: Capacity) -> AbstractContextManager[Capacity]:
    """Join the cluster that the configs name, or start one on this machine; yield the cluster's capacity.

    Args:
        configs: the configs of the runs, which all name the same address.
        machine: the resources given to a cluster started on this machine.
    """
    address = configs[0].resources.address
    if address is None:
        return own_cluster(machine, any(config.resources.dashboard for config in configs))
    return joined_cluster(address, sorted({str(path) for config in configs for path in find_own_code(config)}))


@contextmanager
def own_cluster(capacity: Capacity, dashboard: bool = False) -> Iterator[Capacity]:
    """Start Ray on this machine's loopback interface; stop it and delete its files at the end.

    A Ray that this Python process has already started is used as it is and left running; its capacity is yielded.

    Raises:
        ConfigError: a dashboard is requested but not installed.
    """
    if ray.is_initialized():
        yield present()
        return
    if dashboard and find_spec("aiohttp") is None:
        raise ConfigError("resources.dashboard: found true, but it is not installed; pip install 'ray[default]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if not dashboard:  # a dashboard asks the user for the token, so Ray keeps it where `ray get-auth-token` finds it
        authentication.have_one()
    with session_folder() as files:
        try:
            with interrupts.delay_interrupts(), on_loopback():
                ray.init(
                    "local",
                    num_cpus=int(capacity.cpus),
                    num_gpus=int(capacity.gpus),
                    include_dashboard=dashboard,
                    dashboard_host=LOOPBACK,
                    log_to_driver=False,
                    configure_logging=True,
                    logging_level=logging.ERROR,
                    _node_ip_address=LOOPBACK,
                    _temp_dir=files,
                )
            yield capacity
        finally:
            with interrupts.delay_interrupts():
                ray.shutdown()
                shutil.rmtree(files, ignore_errors=True)


@contextmanager
def joined_cluster(address: str, code: Sequence[str] = ()) -> Iterator[Capacity]:
    """Join a running cluster and yield its capacity.

    Args:
        address: HOST:PORT, or auto for the cluster on this machine.
        code: folders and files of the user's own modules, which are sent to its workers.

    Raises:
        ConfigError: the cluster cannot be joined.
    """
    joined = not ray.is_initialized()
    if joined:
        joining.join(address, code)
    try:
        yield present()
    finally:
        if joined:
            with interrupts.delay_interrupts():
                ray.shutdown()


@contextmanager
def session_folder() -> Iterator[str]:
    """Make a folder for Ray's session, locked while it is in use, and delete such folders that are no longer in use.

    It contains Ray's sockets, and a socket's path has at most 107 bytes.
    """
    temporary = tempfile.gettempdir()
    parent = Path(temporary if len(os.fsencode(temporary)) <= LONGEST_PARENT else "/tmp")
    for left in parent.glob(f"{PREFIX}????????"):
        _delete_unused(left)
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _delete_unused(folder: Path) -> None:
    """Delete a folder whose lock, released when its process ends, is free, and which holds only Ray's sessions."""
    with suppress(OSError):  # it was deleted meanwhile, belongs to another user, or is in use
        rays = {path.name.startswith("session_") for path in folder.iterdir()}
        if rays != {True} or time.time() - folder.stat().st_mtime < YOUNG:
            return
        lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def present() -> Capacity:
    """Return the present capacity of the cluster that this process has joined; its nodes may change."""
    nodes = [_node(node["Resources"]) for node in ray.nodes() if node["Alive"]]
    custom: Counter[str] = Counter()
    for node in nodes:
        custom.update(node.custom)
    return Capacity(sum(node.cpus for node in nodes), sum(node.gpus for node in nodes), None, dict(custom), nodes)


def _node(has: Mapping[str, float]) -> Capacity:
    custom = {name: amount for name, amount in has.items() if name not in RAYS_OWN}
    memory = int(has["memory"]) if "memory" in has else None
    return Capacity(has.get("CPU", 0.0), has.get("GPU", 0.0), memory, custom)
