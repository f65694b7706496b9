"""All that raysim uses of Ray beyond its public interface, in one place. Importing this module does not import Ray.

Each entry says four things:

- What: the name, variable, or text that Ray does not document as stable.
- Buys: what raysim gains by it.
- Works with: the Ray versions that it is known to work with; those in TESTED, unless the entry says otherwise.
- Without: what a run does if Ray changes it.

Two kinds of entries exist. Safety (loopback, the token, the private folder) is on in every mode, and `check_loopback`
verifies it after the start. What only saves time or memory is off together in the plain mode; see `why_plain`.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

LOOPBACK = "127.0.0.1"
TESTED = ("2.56", "2.60")
"""The oldest and the newest minor version of Ray that the whole suite was run with."""

# --- The plain mode: Ray's public interface alone


def why_plain() -> str | None:
    """Return why this process uses nothing of Ray that only saves time or memory, or None if it does use it.

    In the plain mode Ray spawns all workers and has its own defaults. The results have the same bits.
    """
    if os.environ.get("RAYSIM_PLAIN_RAY", "0") not in ("", "0"):
        return "RAYSIM_PLAIN_RAY is set"
    installed = version("ray")
    oldest, newest = map(_minor, TESTED)
    if oldest <= _minor(installed) <= newest:
        return None
    return f"Ray {installed} is outside the tested range {TESTED[0]} to {TESTED[1]}"


def _minor(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())


# --- Variables that Ray reads once, when it is imported

CLUSTER_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""What: Ray's documented variable; 0 makes Ray take the loopback address for the address of this machine.

Buys: safety. The GCS, the raylet, its agents, the driver, and the workers listen on the loopback interface alone.
Without: `check_loopback` finds out and the run is refused.
"""
MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""What: Ray's documented variables for its token.

Buys: safety. Other users of this machine see the ports, but cannot use them.
Works with: before 2.60 Ray uses no token unless the mode says so.
Without: nothing protects the ports from other users of this machine.
"""
QUIET = (
    "A worker died or was killed while executing",
    "Raylet is terminated",
    r"The node .* and address: 127\.0\.0\.1 ",
    r"WARNING: \d+ PYTHON worker processes have been started",
)
"""What: beginnings of Ray's messages, for its undocumented RAY_DEDUP_LOGS_SKIP_REGEX.

Buys: raysim reports a loss in one line; Ray does not add paragraphs, which `--quiet` cannot suppress.
Without: Ray prints these messages.
"""
_own_token = secrets.token_hex(32)  # one for each process: Ray's C++ code keeps the first that it reads
_modes: dict[str, str] = {}  # with which this module has imported Ray, whose own processes need the same


def import_ray(loopback: bool) -> None:
    """Import Ray, if it is not imported yet, with the variables that it reads at that moment.

    Args:
        loopback: whether this process starts a cluster, and does not join one.
    """
    if "ray" in sys.modules:
        return
    wanted = {"RAY_DEDUP_LOGS_SKIP_REGEX": f"^({'|'.join(QUIET)})"}
    if loopback:
        wanted |= {CLUSTER_VARIABLE: "0"}
    if loopback or _has_token():  # joining presents the token of this machine; a cluster without one accepts any
        _modes[MODE] = "token"
    with variables(wanted | _modes):
        import_module("ray")


@contextmanager
def variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set those of these variables that the user has not set. Remove them at the end, with what Ray has set itself."""
    before = {name: value for name, value in os.environ.items() if name in wanted or _is_rays(name)}
    os.environ.update({name: value for name, value in wanted.items() if name not in before})
    try:
        yield
    finally:
        for name in [name for name in os.environ if (name in wanted or _is_rays(name)) and name not in before]:
            del os.environ[name]


def _is_rays(name: str) -> bool:
    return name.startswith("RAY_") or name == "PYTHONBREAKPOINT"  # which ray.init sets


def rays_variables() -> dict[str, str]:
    """Return this process's variables of Ray, which a forked worker needs as the raylet has them."""
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_")}


def drop_rays_variables() -> None:
    """Remove all variables of Ray from this process."""
    for name in rays_variables():
        del os.environ[name]


def joining_modes() -> Sequence[str]:
    """Return the modes of authentication in which to try to join a cluster, one after the other.

    Ray itself tries one. A driver with a token that joins a cluster without one then loses every actor it creates.
    """
    if MODE in os.environ:
        return (os.environ[MODE],)
    return ("disabled", "token") if _has_token() else ("disabled",)


@contextmanager
def joining(mode: str, loopback: bool) -> Iterator[None]:
    """Set what this process joins a cluster with; see `joining_modes` and `rays_address`.

    One is undocumented: without it, Ray tries for 20 seconds, not 2, to reach a cluster that does not answer.
    """
    with variables({MODE: mode, "RAY_gcs_server_port_wait_time_s": "2"}), rays_address(loopback):
        _reread_token()
        yield


def _reread_token() -> None:
    """Have Ray's C++ code read the variables of the token again, before a cluster is started and after it has ended.

    What: the classes with which Ray itself reads them again.
    Buys: a process that imported Ray before uses the token, and can later join a cluster with another or without one.
    Without: joining another cluster in the same process may fail.
    """
    import ray

    internals: Any = ray._raylet
    with suppress(AttributeError):
        internals.AuthenticationTokenLoader.instance().reset_cache()
        internals.Config.initialize("")


def _has_token() -> bool:
    named = bool(os.environ.get(TOKEN) or os.environ.get(TOKEN_FILE))
    return named or (Path.home() / ".ray" / "auth_token").is_file()


# --- Starting and joining

WORKER_VARIABLES = {
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # glibc's own: keep freed memory. Otherwise some processes return a step's activations to the kernel after every
    # step and fault them in again, which took up to a fifth of a host's time (MNIST CNN, batches of 32).
    "MALLOC_TRIM_THRESHOLD_": str(512 * 2**20),
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),  # the largest value that glibc accepts
}
"""What: variables of the workers. RAY_IGNORE_UNHANDLED_ERRORS is named in Ray's messages only.

Buys: a coordinator whose hosts end prints no useless error.
Without: Ray prints such errors after a loss.
"""


def own_options(folder: Path, dashboard: bool) -> dict[str, Any]:
    """Return the options of `ray.init` that are not documented.

    What: `_node_ip_address` and `_temp_dir`, which begin with an underscore, and `_system_config`, which Ray calls
    "testing only".
    Buys: the first two are safety: the loopback interface and the private folder. The last saves 14 KiB of the GCS's
    memory each round (what every call did, for a dashboard), and half the time of replies of up to 1 MiB.
    Without: the first two are needed, and Ray does not start. The last is left out in the plain mode.
    """
    saving = {"max_direct_call_object_size": 2**20} | ({} if dashboard else {"task_events_report_interval_ms": 0})
    return {
        "_node_ip_address": LOOPBACK,
        "_temp_dir": str(folder),
        "_system_config": saving if why_plain() is None else {},
    }


@contextmanager
def own_settings(dashboard: bool) -> Iterator[None]:
    """Set the variables with which this process starts a cluster. At the end remove them, and have Ray forget them.

    Args:
        dashboard: whether the cluster has one. Its user is asked for the token, which Ray then keeps in the home
            folder, where `ray get-auth-token` finds it.
    """
    wanted = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", CLUSTER_VARIABLE: "0"}
    if not dashboard and not _has_token():
        wanted |= {TOKEN: _own_token}
    try:
        with variables(WORKER_VARIABLES | wanted | _modes):
            _reread_token()
            yield
    finally:
        _reread_token()


@contextmanager
def rays_address(loopback: bool) -> Iterator[None]:
    """Make Ray take the loopback address for this machine's, or not, where its import has not settled that already.

    What: the constant that Ray sets from CLUSTER_VARIABLE when it is imported.
    Buys: safety, in a process that imported Ray before raysim did, or that starts a cluster and joins another.
    Without: `check_loopback` finds out and the run is refused.
    """
    import ray

    constants = ray._private.ray_constants
    before = getattr(constants, "ENABLE_RAY_CLUSTER", None)
    if before is (not loopback):
        yield
        return
    constants.ENABLE_RAY_CLUSTER = not loopback
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


LONGEST_PARENT = 21
"""What: the longest path of a folder in which Ray's sockets have room.

Of the 103 bytes that macOS has for a socket's path (Linux: 107), 16 are /raysim-12345678, 2 are /r, 43 are
/session_DATE_TIME_MICROSECONDS_PID, and 21 are /sockets/plasma_store.
Buys: an error message that names TMPDIR, and /tmp in place of a TMPDIR that is too long.
Without: Ray does not start under a long TMPDIR.
"""

# --- Ray's own processes


def vital_processes(children: Iterable[Any]) -> list[Any]:
    """Return those of this process's children (psutil) without which the cluster has ended.

    What: the names of Ray's processes. The agents count, as the raylet ends if one of them does.
    Buys: the loss of the cluster is noticed at once, and the run continues on a new cluster.
    Without: Ray notices the loss after a minute and ends this process; `raysim run --resume` continues the run.
    """
    import psutil

    vital = []
    for child in children:
        with suppress(psutil.NoSuchProcess):
            if child.name() in ("gcs_server", "raylet"):
                vital.append(child)
            if child.name() == "raylet":
                agents = (["ray::DashboardAgent"], ["ray::RuntimeEnvAgent"])
                vital += [agent for agent in child.children() if agent.cmdline()[:1] in agents]
    return vital


def raylet_of(processes: Iterable[Any]) -> int | None:
    """Return the process id of the raylet among these processes, or None. See `vital_processes`."""
    return next((process.pid for process in processes if process.name() == "raylet"), None)


def check_loopback(folder: Path) -> str | None:
    """Return what is wrong with the addresses of a cluster that was started in this folder, or None.

    It needs nothing private: the address that Ray reports, and the sockets of the processes that name the folder in
    their arguments, which the GCS and the raylet do, and of their children.
    """
    import psutil
    import ray

    addresses = {node["NodeManagerAddress"] for node in ray.nodes()}
    started = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if any(str(folder) in part for part in child.cmdline()):
                started += [child, *child.children(recursive=True)]
    found = 0
    for process in started:
        with suppress(psutil.Error):
            listening = {each.laddr.ip for each in process.net_connections("inet") if each.status == psutil.CONN_LISTEN}
            addresses |= {address.removeprefix("::ffff:") for address in listening}
            found += bool(listening)
    open_ones = addresses - {LOOPBACK, "::1"}
    if open_ones:
        return f"it uses {', '.join(sorted(open_ones))}"
    return None if found else "the addresses of its processes could not be read"


# --- Forked workers

RAYLET_VARIABLE, JOB_VARIABLE = "RAY_RAYLET_PID", "RAY_JOB_ID"
"""What: the variables by which the raylet tells a worker whose child it is and for which job it works.

Buys: forked workers, see `forked_start`.
Without: a forked worker does not register, and the run fails after a minute; the plain mode has no forked workers.
"""
WORKER_MODULE = "ray._private.workers.default_worker"
"""What: the script that Ray runs as a worker, imported before the fork.

Buys: its memory is shared by all forked workers.
Without: the fork server ends, and workers start by themselves.
"""


def forked_start(command: str) -> dict[str, Any]:
    """Return the options of an actor whose process a fork server starts.

    What: `py_executable` of the runtime environment, with a command that hands the start over to another process and
    ends. Ray learns the process id of a worker from the worker itself.
    Buys: 36 MB in place of 335 for each actor, and a start that is three times as fast.
    Without: the plain mode has Ray spawn workers.
    """
    return {"runtime_env": {"py_executable": command}}


# --- Texts of Ray's errors


def refused_token(error: BaseException) -> bool:
    """Return whether joining a cluster failed because of the token.

    What: the name of Ray's error, or a part of its text.
    Buys: a line that says where the token is.
    Without: the line says that no cluster answers, with Ray's text.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__ == "AuthenticationError" or "InvalidAuthToken" in str(error)


def other_version(text: str) -> bool:
    """Return whether the text of an error says that a cluster is of another version. As `refused_token`."""
    return "ersion mismatch" in text


def lost_node(error: BaseException) -> bool:
    """Return whether the loss of an actor is the loss of its node. As `refused_token`: only the words depend on it."""
    return "its node has died" in str(error)


def low_memory(error: BaseException) -> bool:
    """Return whether Ray ended an actor for lack of memory. As `refused_token`: only the words depend on it."""
    return "low on memory" in str(error)


# --- For tests and benchmarks


def alive_actors() -> list[dict[str, Any]]:
    """Return Ray's records of all actors that are alive, with their process and their node.

    What: the table behind `ray.util.state.list_actors`, which itself needs Ray's dashboard.
    """
    import ray

    return [actor for actor in ray._private.state.actors().values() if actor["State"] == "ALIVE"]


def stored_bytes(node: Mapping[str, Any]) -> int:
    """Return the number of bytes in a node's object store; as `alive_actors`."""
    from ray._private import internal_api

    stats = internal_api.node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False)
    return int(stats.store_stats.object_store_bytes_used)


FAST_HEALTH_CHECKS = {"_system_config": {"health_check_initial_delay_ms": 300, "health_check_period_ms": 300}}
"""Options of a head node that soon notices the loss of another node; as `alive_actors`. Ray asks every 3 s."""


def own_references() -> Sequence[str]:
    """Return the names of the objects to which this process has references; as `alive_actors`."""
    import ray

    worker: Any = ray._private.worker.global_worker
    return [reference.decode() for reference in worker.core_worker.get_all_reference_counts()]
