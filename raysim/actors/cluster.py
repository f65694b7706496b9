"""Starting a Ray cluster on this machine or joining a running one, and cleaning up afterwards."""

import logging
import os
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Timer

import psutil
import ray
from ray.exceptions import AuthenticationError

from raysim.actors import compat, liveness
from raysim.actors.session import Session, open_session
from raysim.config import Config
from raysim.config.lookup import names_for_actors
from raysim.config.schema import RAYS_OWN
from raysim.estimate.memory import COMPILER, shares_compiler
from raysim.system import interrupts
from raysim.system.capacity import CAN_FORK, Capacity, job_memory
from raysim.system.custom_code import find_custom_code, refuse_main
from raysim.system.errors import ConfigError, RunError, Unreachable

TRIES = 2  # the number of tries to start Ray
LONGEST_START = 120  # seconds after which a try to start Ray is ended
STORE = 0.3  # the object store's fraction of the memory, as in Ray (2.60)
# An object store above SMALL_STORE bytes takes at most this fraction of free shared memory, as in Ray.
MOST_SHARED = 0.95
SMALL_STORE = 10**10
SHARED_MEMORY = "/dev/shm"
ANSWER = 5  # seconds for a port to accept a connection, and for its first answer
FRAME, SETTINGS = 9, 4  # HTTP/2: the bytes of a frame's head, and the kind of the first frame
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])


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
        modules = [COMPILER] if COMPILER in sys.modules and all(map(shares_compiler, configs)) else []
        return own_cluster(machine, dashboard, say, session, forked, modules)
    code = sorted({str(path) for config in configs for path in find_custom_code(names_for_actors(config))})
    return joined_cluster(address, code)


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
                    with suppress(psutil.NoSuchProcess):
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
    """Start Ray with its files in this folder, and return its vital processes. If a try fails, try again."""
    store, rest = divide_memory(job_memory())
    for tries in range(1, TRIES + 1):
        try:
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
            processes = compat.vital_processes(psutil.Process().children())
            if compat.raylet_of(processes) is None:
                raise RuntimeError("one of its processes ended")
            return processes
        except Exception as error:  # Ray raises all kinds
            if tries == TRIES or _is_unsupported(error):
                raise RunError(f"Ray could not start ({error}); {_start_advice(error)}") from error
            _kill(folder)
            ray.shutdown()
    raise AssertionError


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


def _start_advice(error: Exception) -> str:
    """Return what to do after Ray could not start."""
    if _is_unsupported(error):
        oldest, newest = compat.TESTED
        return f"raysim was tested with Ray {oldest} to {newest}, and this is {version('ray')}: install one of those"
    return "see whether memory, /dev/shm or processes (ulimit -u) are short, then start the run again"


def _processes_of(folder: Path) -> Sequence[psutil.Process]:
    """Return the processes of a cluster that was started in this folder, with their descendants."""
    started = []
    for child in compat.children_of(folder):
        with suppress(psutil.Error):
            started += [child, *child.children(recursive=True)]
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


@contextmanager
def joined_cluster(address: str, code: Sequence[str] = ()) -> Iterator[Capacity]:
    """Join a running cluster and yield its capacity.

    Args:
        address: HOST:PORT as `ray start --head` printed it, or auto for the cluster on this machine.
        code: the folders and files of the user's modules, which Ray sends to the workers.

    Raises:
        ConfigError: this process is connected to another cluster.
        Unreachable: nothing answers at the address, the cluster requires another token, or its version differs.
    """
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address != "auto" and not _is_same(address, connected):
            raise ConfigError(
                f"resources.address: found {address}, but this process is connected to the cluster at {connected}, "
                f"allowed: {connected} or auto; or call ray.shutdown() first"
            )
        yield present()
        return
    with compat.variables(compat.WORKER_VARIABLES):
        join(address, code)
        liveness.CURRENT = liveness.JoinedCluster(ray.get_runtime_context().gcs_address)
        try:
            yield present()
        finally:
            left, liveness.CURRENT = liveness.CURRENT, liveness.Cluster()
            with interrupts.delay_interrupts():
                # If the cluster is cut off, `ray.shutdown` would wait for it. Ray also calls `ray.shutdown` when Python
                # ends: the wait then comes after the error message.
                if not left.silent:
                    ray.shutdown()


def _is_same(one: str, other: str) -> bool:
    """Return whether two addresses, HOST:PORT, are of the same machine and port."""
    (host, _, port), (other_host, _, other_port) = one.rpartition(":"), other.rpartition(":")
    return port == other_port and bool(_find_addresses(host) & _find_addresses(other_host))


def _find_addresses(host: str) -> set[str]:
    """Return the addresses of a host, by name or address; for this machine, those of all its network interfaces."""
    try:
        found = {str(answer[4][0]) for answer in socket.getaddrinfo(host.strip("[]"), None)}
    except OSError:
        return {host}
    own = {address.address for interface in psutil.net_if_addrs().values() for address in interface}
    return found | own if found & own else found


def join(address: str, code: Sequence[str]) -> None:
    """Connect this process to a cluster, or raise Unreachable within seconds. Arguments as in `joined_cluster`."""
    host, _, text = address.rpartition(":")
    port = int(text) if host else None
    if port is not None:
        try:  # Ray itself would try for minutes, and not react to signals
            _greet(host.strip("[]"), port)
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, str(error)) from error
    for_workers = {"env_vars": compat.WORKER_VARIABLES} | ({"py_modules": list(code)} if code else {})
    only_here = _only_here(host, port)
    modes = compat.joining_modes()
    for mode in modes:
        try:
            with interrupts.keep_termination(), buffer_stderr(), compat.joining(mode, only_here):
                ray.init(address=address, runtime_env=for_workers, log_to_driver=False, logging_level=logging.ERROR)
            return
        except (OSError, ValueError, RuntimeError, AuthenticationError) as error:
            if mode == modes[-1] or not compat.refused_token(error):
                raise _explained(address, error) from error


def _greet(host: str, port: int) -> None:
    """Raise OSError if the program that listens on a port does not speak HTTP/2, Ray's protocol."""
    with socket.create_connection((host, port), timeout=ANSWER) as there:
        if os.environ.get(compat.TLS, "0") not in ("", "0"):
            return
        head = b""
        with suppress(OSError), there.makefile("rb") as answer:
            there.sendall(GREETING)
            head = answer.read(FRAME)
    if len(head) < FRAME or head[3] != SETTINGS:
        raise OSError("the program that listens there does not answer like Ray")


def _only_here(host: str, port: int | None) -> bool:
    """Return whether a cluster with a loopback address listens on this address alone.

    If so, this process must use the loopback address too. By default, Ray uses the machine's network address.
    """
    if port is None or host not in ("localhost", compat.LOOPBACK, "[::1]"):
        return False
    try:
        with compat.rays_address(loopback=False):
            socket.create_connection((ray.util.get_node_ip_address(), port), timeout=10).close()
    except OSError:
        return True
    return False


def _explained(address: str, error: BaseException) -> Unreachable:
    text = " ".join(str(error).split())
    if compat.refused_token(error):
        return Unreachable(
            f"resources.address: the cluster at {address} requires a token: set {compat.MODE}=token, and copy "
            f"~/.ray/auth_token from the machine where the cluster was started, or set {compat.TOKEN}"
        )
    if compat.OTHER_VERSION in text:
        return Unreachable(f"resources.address: the cluster at {address} has another version: {text}")
    return _no_cluster(address, text)


def _no_cluster(address: str, reason: str) -> Unreachable:
    return Unreachable(
        f"resources.address: no cluster answers at {address} ({reason}); start one with `ray start --head`, "
        "or omit address"
    )


@contextmanager
def buffer_stderr() -> Iterator[None]:
    """Buffer the standard error of Ray's C++ code. Drop it if an error is raised: the error explains the failure."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield
            kept.seek(0)
            os.write(before, kept.read())
        finally:
            os.dup2(before, 2)
            os.close(before)


def present() -> Capacity:
    """Return the current capacity of this process's cluster. Its nodes may change."""
    return combine(present_nodes().values())


def present_nodes() -> dict[str, Capacity]:
    """Return the capacity of each node that is alive, by its id."""
    here = ray.get_runtime_context().get_node_id()
    return {node["NodeID"]: _node(node["Resources"], node["NodeID"] == here) for node in ray.nodes() if node["Alive"]}


def combine(nodes: Iterable[Capacity]) -> Capacity:
    """Return the capacity of a cluster with these nodes."""
    each, custom = [*nodes], Counter[str]()
    for node in each:
        custom.update(node.custom)
    return Capacity(sum(node.cpus for node in each), sum(node.gpus for node in each), None, dict(custom), each)


def _node(has: Mapping[str, float], has_driver: bool) -> Capacity:
    custom = {name: amount for name, amount in has.items() if name not in RAYS_OWN}
    memory = int(has["memory"]) if "memory" in has else None
    return Capacity(has.get("CPU", 0.0), has.get("GPU", 0.0), memory, custom, has_driver=has_driver)
