"""Starting a Ray cluster on this machine's loopback interface, and cleaning up afterwards."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Timer

import psutil
import ray

from raysim.actors import compat, liveness
from raysim.actors.node_capacity import present
from raysim.actors.session import Session, open_session
from raysim.system import interrupts
from raysim.system.capacity import CAN_FORK, Capacity, job_memory
from raysim.system.errors import ConfigError, RunError
from raysim.system.output import buffer_stderr
from raysim.system.processes import find_children

LONGEST_START = 120  # seconds after which a try to start Ray is ended
TRIES, TRIES_IF_BUSY = 2, 5  # Ray (2.60) gives its processes 30 s to start, whatever the load
BUSY = 3  # processes that wait for each CPU, on average over a minute
STORE = 0.3  # the object store's fraction of the memory, as in Ray (2.60)
# An object store above SMALL_STORE bytes takes at most this fraction of free shared memory, as in Ray.
MOST_SHARED = 0.95
SMALL_STORE = 10**10
SHARED_MEMORY = "/dev/shm"


@contextmanager
def own_cluster(
    capacity: Capacity,
    dashboard: bool = False,
    say: Callable[[str], None] = lambda text: None,
    session: Session | None = None,
    forked: bool = CAN_FORK,
    modules: Sequence[str] = (),
) -> Iterator[Capacity]:
    """Start Ray on this machine's loopback interface. Stop it and delete its files at the end.

    If this process has already initialized Ray, use that cluster, yield its capacity, and leave it running.

    Args:
        capacity: the resources of the cluster.
        dashboard: whether it has a dashboard.
        say: shows a line to the user.
        session: an open session; None opens one here, with a fork server if `forked`.
        modules: what the fork server imports, in addition to what all actors need.

    Raises:
        ConfigError: a dashboard is requested but not installed, or there is no place for Ray's files.
        RunError: Ray could not start, or other machines might reach it.
    """
    if ray.is_initialized():
        liveness.CURRENT.check()
        yield present()
        return
    if dashboard and find_spec("aiohttp") is None:
        raise ConfigError("resources.dashboard: found true, but it is not installed; pip install 'ray[default]'")
    opened = nullcontext(session) if session else open_session(forked)
    with opened as used, compat.own_settings(dashboard):
        try:
            delayed = interrupts.delay_interrupts(lambda: say("leaving as soon as Ray has started"))
            with delayed, interrupts.block_hangups():
                _start(capacity, dashboard, used, modules)
            yield capacity
        finally:
            with interrupts.delay_interrupts():
                # Kill the remaining processes of an ended cluster. Otherwise Ray might end this process, too.
                for process in liveness.CURRENT.processes if liveness.CURRENT.ended else ():
                    with suppress(psutil.Error):
                        process.kill()
                if compat.why_plain() is None:
                    compat.end_monitors(used.rays)
                ray.shutdown()
                liveness.CURRENT = liveness.Cluster()


def _start(capacity: Capacity, dashboard: bool, session: Session, modules: Sequence[str]) -> None:
    processes = _start_ray(capacity, dashboard, session.rays)
    if wrong := check_loopback(session.rays):
        raise RunError(f"Ray was stopped: other machines might reach it ({wrong}); allowed: {compat.LOOPBACK} alone")
    raylet = compat.raylet_of(processes)
    if session.forks is not None and raylet is not None:
        session.forks.serve(raylet, ray.get_runtime_context().get_job_id(), modules)
    liveness.CURRENT = liveness.Cluster(processes, session.forks)


def _start_ray(capacity: Capacity, dashboard: bool, folder: Path) -> Sequence[psutil.Process]:
    """Start Ray with its files in this folder, and return its vital processes. Try again if that fails.

    On a busy machine there are more tries.
    """
    memory = divide_memory(job_memory())
    tried = 0
    while True:
        try:
            return _try_ray(capacity, dashboard, folder, memory)
        except Exception as error:  # Ray raises all kinds
            tried += 1
            if _is_unsupported(error) or tried >= (TRIES_IF_BUSY if describe_load() else TRIES):
                raise _failed(error) from error
            _kill(folder)
            ray.shutdown()


def _try_ray(
    capacity: Capacity, dashboard: bool, folder: Path, memory: tuple[int | None, int | None]
) -> Sequence[psutil.Process]:
    """Start Ray with memory as from `divide_memory`, and return its vital processes. Raises all kinds of errors."""
    store, rest = memory
    # If a signal makes the start fail, `buffer_stderr` also drops what Ray's autoscaler prints about it.
    with (
        _limit_start(folder),
        interrupts.keep_termination(),
        buffer_stderr(),
        compat.rays_address(loopback=True),
    ):
        ray.init(
            "local",
            num_cpus=int(capacity.cpus),
            num_gpus=int(capacity.gpus),
            include_dashboard=dashboard,
            dashboard_host=compat.LOOPBACK,
            log_to_driver=False,
            configure_logging=True,
            logging_level=logging.ERROR,
            object_store_memory=store,
            **compat.own_options(folder, dashboard, rest),
        )
    processes = compat.vital_processes(find_children())
    if compat.raylet_of(processes) is None:
        raise RuntimeError("one of its processes ended")
    return processes


@contextmanager
def _limit_start(folder: Path) -> Iterator[None]:
    """Kill this folder's Ray processes if the start takes too long. Ray (2.60) waits forever for a suspended one."""
    watch = Timer(LONGEST_START, _kill, [folder])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _kill(folder: Path) -> None:
    for process in _processes_of(folder):
        with suppress(psutil.Error):
            process.kill()


def divide_memory(limit: int | None) -> tuple[int | None, int | None]:
    """Return the bytes of a job's memory for Ray's object store, and for all else. None is no limit."""
    if limit is None:
        return None, None
    shared = os.statvfs(SHARED_MEMORY)
    store = int(min(STORE * limit, max(SMALL_STORE, MOST_SHARED * shared.f_bavail * shared.f_frsize)))
    return store, limit - store


def _is_unsupported(error: Exception) -> bool:
    return isinstance(error, TypeError) or compat.UNKNOWN_OPTION in str(error)


def _failed(error: Exception) -> RunError:
    return RunError(f"Ray could not start ({error}); {_start_advice(error)}")


def _start_advice(error: Exception) -> str:
    """Return what to do after Ray could not start."""
    if _is_unsupported(error):
        oldest, newest = compat.TESTED
        return f"raysim was tested with Ray {oldest} to {newest}, and this is {version('ray')}: install one of those"
    if "working_dir" in str(error) or "untime env" in str(error):
        variables = f"{compat.HOOK_VARIABLE} and {compat.UV_VARIABLE}"
        return f"raysim needs no runtime environment: unset {variables}, then start the run again"
    short = f"{describe_load()}, or " if describe_load() else ""
    return f"see whether {short}memory, /dev/shm or processes (ulimit -u) are short, then start the run again"


def describe_load() -> str | None:
    """Return a phrase on the machine's load if it is busy: more processes than CPUs wait to compute."""
    cpus = os.cpu_count() or 1
    waiting = os.getloadavg()[0]
    return f"CPUs (the load average is {waiting:.0f} on {cpus} CPUs)" if waiting >= BUSY * cpus else None


def _processes_of(folder: Path) -> Sequence[psutil.Process]:
    """Return the processes of a cluster that was started in this folder, with their descendants."""
    started = []
    for child in compat.children_of(folder):
        with suppress(psutil.Error):
            started += [child, *find_children(child.pid, recursive=True)]
    return started


def check_loopback(folder: Path) -> str | None:
    """Return what is wrong with the addresses of a cluster that was started in this folder, or None.

    The checked addresses are the address that Ray reports, and the addresses on which Ray's processes listen.
    """
    addresses = {node["NodeManagerAddress"] for node in ray.nodes()}
    found = 0
    for process in _processes_of(folder):
        with suppress(psutil.Error):
            listening = {each.laddr.ip for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN}
            addresses |= {address.removeprefix("::ffff:") for address in listening}
            found += bool(listening)
    open_ones = addresses - {compat.LOOPBACK, "::1"}
    if open_ones:
        return f"it uses {', '.join(sorted(open_ones))}"
    return None if found else "the addresses of its processes could not be read"
