"""All uses of Ray's private interface, in one place. Importing this module does not import Ray.

Each entry has up to four parts:

- What: the name, variable, or text that Ray does not document as stable.
- Buys: the advantage for raysim.
- Works with: the versions of Ray in which it works, if they differ from TESTED.
- Without: the consequence if Ray changes it.

There are two kinds of entries. Entries for safety (loopback, the token, the private folder) are always on, and
`starting.check_loopback` checks the addresses after the start. Entries that only save time or memory are off in the
plain mode; see `why_plain`.
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

import psutil

from raysim.system.home import find_home
from raysim.system.processes import find_children

LOOPBACK = "127.0.0.1"
TESTED = ("2.56", "2.60")
"""The oldest and the newest minor version of Ray that the whole suite was run with."""

# --- The plain mode: Ray's public interface alone


def why_plain() -> str | None:
    """Return why this process is in the plain mode, or None if it is not.

    In the plain mode, raysim uses none of the entries that only save time or memory. Ray spawns all workers and uses
    its own defaults. The results have the same bits.
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
"""What: Ray's documented variable. With 0, Ray uses the loopback address as this machine's address.

Buys: safety. The GCS, the raylet, its agents, the driver, and the workers listen on the loopback interface alone.
Without: `starting.check_loopback` notices, and the run is refused.
"""
MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
"""What: Ray's documented variables for its token.

Buys: safety. Other users of this machine see the ports, but cannot use them.
Works with: all of TESTED. Before 2.60, Ray uses a token only if the mode is "token", which raysim sets.
Without: nothing protects the ports from other users of this machine.
"""
QUIET = (
    "A worker died or was killed while executing",
    "Raylet is terminated",
    r"The node .* and address: 127\.0\.0\.1 ",
    r"WARNING: \d+ PYTHON worker processes have been started",
)
"""What: beginnings of Ray's messages, for its undocumented RAY_DEDUP_LOGS_SKIP_REGEX.

Buys: a loss appears as one message from raysim. `--quiet` could not suppress Ray's longer messages.
Without: Ray prints these messages.
"""
UV_VARIABLE, HOOK_VARIABLE = "RAY_ENABLE_UV_RUN_RUNTIME_ENV", "RAY_RUNTIME_ENV_HOOK"
"""What: Ray's documented variables. With 0, Ray does not look for `uv run` among this process's ancestors.

Without: Ray needs pyproject.toml in the current folder and uploads all of it, and fails with hidepid.
"""
TLS = "RAY_USE_TLS"
"""What: Ray's documented variable. If it is set, `joining._greet` only connects, and does not test for HTTP/2."""
_own_token = secrets.token_hex(32)  # one for each process: Ray's C++ code keeps the first token that it reads
_modes: dict[str, str] = {}  # the value of MODE when Ray was imported; Ray's processes need the same value


def import_ray(loopback: bool) -> None:
    """Import Ray, with the variables that it reads when it is imported. Do nothing if it is imported already.

    Args:
        loopback: whether this process starts a cluster. False if it joins one.
    """
    if "ray" in sys.modules:
        return
    wanted = {"RAY_DEDUP_LOGS_SKIP_REGEX": f"^({'|'.join(QUIET)})", UV_VARIABLE: "0"}
    if loopback:
        wanted |= {CLUSTER_VARIABLE: "0"}
    if loopback or _has_token():  # `joining` can change the mode later
        _modes[MODE] = "token"
    with variables(wanted | _modes):
        import_module("ray")


@contextmanager
def variables(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set these variables, except those that the user has set. At the end, remove them and Ray's own."""
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
    """Return Ray's variables in this process. A forked worker needs the same ones as the raylet."""
    return {name: value for name, value in os.environ.items() if name.startswith("RAY_")}


def joining_modes() -> Sequence[str]:
    """Return the modes of authentication to try, in this order, when joining a cluster.

    Ray tries only one mode. If a driver with a token joins a cluster without a token, every actor of the driver fails.
    """
    if MODE in os.environ:
        return (os.environ[MODE],)
    return ("disabled", "token") if _has_token() else ("disabled",)


@contextmanager
def joining(mode: str, loopback: bool) -> Iterator[None]:
    """Set the variables for joining a cluster; see `joining_modes` and `rays_address`.

    RAY_gcs_server_port_wait_time_s is undocumented. Without it, Ray tries for 20 s to reach a cluster, instead of 2 s.
    """
    with variables({MODE: mode, "RAY_gcs_server_port_wait_time_s": "2"}), rays_address(loopback):
        _reread_token()
        yield


def _reread_token() -> None:
    """Have Ray's C++ code read the token's variables again, before a cluster is started and after it has ended.

    What: the classes with which Ray reads the variables.
    Buys: a process that imported Ray earlier uses the token, and can later join a cluster with another token or none.
    Without: joining another cluster in the same process may fail.
    """
    import ray

    internals: Any = ray._raylet
    with suppress(AttributeError):
        internals.AuthenticationTokenLoader.instance().reset_cache()
        internals.Config.initialize("")


def _has_token() -> bool:
    named = bool(os.environ.get(TOKEN) or os.environ.get(TOKEN_FILE))
    return named or ((home := find_home()) is not None and (home / ".ray" / "auth_token").is_file())


# --- Starting and joining

WORKER_VARIABLES = {
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "OPENBLAS_NUM_THREADS": "1",  # NumPy's linear algebra, whose last bits depend on its threads
    # The last two are glibc's, and make it keep freed memory. Otherwise some processes return a step's activations to
    # the kernel after every step. Getting them back took up to a fifth of a host's time (MNIST CNN, batches of 32).
    "MALLOC_TRIM_THRESHOLD_": str(512 * 2**20),
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),  # the largest value that glibc accepts
}
"""What: variables of the workers. RAY_IGNORE_UNHANDLED_ERRORS is named in Ray's messages only.

Buys: a coordinator prints no useless error when its hosts end.
Without: Ray prints such errors after a loss.
"""


def own_options(folder: Path, dashboard: bool, memory: int | None = None) -> dict[str, Any]:
    """Return the undocumented options of `ray.init`.

    `memory` is the number of bytes for all but the object store. None leaves the number to Ray.

    What: the options below. Ray calls `_system_config` "testing only".
    Buys: `_node_ip_address` and `_temp_dir` are safety: the loopback interface and the private folder. `_memory` tells
    Ray the job's memory limit, because Ray (2.60) does not read nested control groups. `_system_config` halves the time
    of replies of up to 1 MiB, and saves 14 KiB of the GCS's memory per round.
    Without: Ray does not start. The plain mode leaves `_system_config` empty.
    """
    saving = {"max_direct_call_object_size": 2**20} | ({} if dashboard else {"task_events_report_interval_ms": 0})
    return {
        "_node_ip_address": LOOPBACK,
        "_temp_dir": str(folder),
        "_system_config": saving if why_plain() is None else {},
        **({} if memory is None else {"_memory": memory}),
    }


@contextmanager
def own_settings(dashboard: bool) -> Iterator[None]:
    """Set the variables for starting a cluster. At the end, remove them, and have Ray forget the token.

    Args:
        dashboard: whether the cluster has a dashboard, which asks its user for the token. Ray then keeps the token in
            the home folder, and `ray get-auth-token` prints it.
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
    """Have Ray use the loopback address as this machine's address, or not.

    What: the constant that Ray sets from CLUSTER_VARIABLE when it is imported.
    Buys: safety, in a process that imported Ray before raysim did, or that starts one cluster and joins another.
    Without: `starting.check_loopback` notices, and the run is refused.
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
"""What: the maximum length of TMPDIR in bytes. With a longer one, the paths of Ray's sockets exceed the system's limit.

macOS allows 103 bytes. Of these, /raysim-12345678/r/session_DATE_TIME_MICROSECONDS_PID/sockets/plasma_store takes 82.
Buys: raysim uses /tmp if TMPDIR is too long, or names TMPDIR in an error message.
Without: Ray does not start under a long TMPDIR.
"""

# --- Ray's own processes


def vital_processes(children: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that the cluster cannot run without, given this process's children.

    What: the names of Ray's processes. The agents are vital: the raylet ends if an agent ends.
    Buys: raysim notices the loss of the cluster at once, and the run continues on a new cluster.
    Without: Ray notices the loss after a minute and ends this process; `raysim run --resume` continues the run.
    """
    vital = []
    for child in children:
        with suppress(psutil.Error):
            if child.name() in ("gcs_server", "raylet"):
                vital.append(child)
            if child.name() == "raylet":
                agents = (["ray::DashboardAgent"], ["ray::RuntimeEnvAgent"])
                vital += [agent for agent in find_children(child.pid) if agent.cmdline()[:1] in agents]
    return vital


def raylet_of(processes: Iterable[psutil.Process]) -> int | None:
    """Return the process id of the raylet among these processes, or None. See `vital_processes`."""
    return next((process.pid for process in processes if process.name() == "raylet"), None)


def end_monitors(folder: Path) -> None:
    """Kill the autoscaler and the log monitor of a cluster that was started in this folder, before `ray.shutdown`.

    What: the names of their scripts.
    Buys: up to two seconds at the end of a run: each process may take a second to react to a signal.
    Without: `ray.shutdown` waits for them. The plain mode omits this.
    """
    for child in children_of(folder):
        with suppress(psutil.Error):
            if {"monitor.py", "log_monitor.py"} & {os.path.basename(part) for part in child.cmdline()}:
                child.kill()


def children_of(folder: Path) -> Iterator[psutil.Process]:
    """Yield this process's children that have the folder in their arguments, as Ray's processes do."""
    for child in find_children():
        with suppress(psutil.Error):
            if any(str(folder) in part for part in child.cmdline()):
                yield child


# --- Forked workers

RAYLET_VARIABLE, JOB_VARIABLE = "RAY_RAYLET_PID", "RAY_JOB_ID"
"""What: the variables that tell a worker its raylet and its job.

Buys: forked workers, see `forked_start`.
Without: a forked worker does not register, and the run fails after a minute; the plain mode has no forked workers.
"""
WORKER_MODULE = "ray._private.workers.default_worker"
"""What: the script that Ray runs as a worker, imported before the fork, so that forked workers share its memory.

Without: the fork server ends, and Ray spawns the workers.
"""


def forked_start(command: str) -> dict[str, Any]:
    """Return the options with which a fork server starts an actor's process.

    What: `py_executable` of the runtime environment. The command asks the fork server to start the worker, and exits.
    Ray accepts this, because workers report their own process id.
    Buys: 36 MB instead of 335 for each actor, and a start that is three times as fast.
    Without: in the plain mode, Ray spawns the workers.
    """
    return {"runtime_env": {"py_executable": command}}


# --- Texts of Ray's errors

LOST_NODE, LOW_MEMORY = "its node has died", "low on memory"  # in an actor's error
UNKNOWN_OPTION, OTHER_VERSION = "Unknown keyword argument", "ersion mismatch"  # in an error of `ray.init`
"""What: parts of the texts of Ray's errors. Without: raysim's error messages say less, as in `refused_token`."""


def refused_token(error: BaseException) -> bool:
    """Return whether joining a cluster failed because of the token.

    What: the name of Ray's error, or a part of its text.
    Buys: an error message that says where the token is.
    Without: the error message says that no cluster answers, with Ray's text.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    return type(error).__name__ == "AuthenticationError" or "InvalidAuthToken" in str(error)


def draining_nodes() -> Iterable[str]:
    """Return the ids of the nodes that are drained or preempted.

    What: a table that `ray.nodes()` omits. `ray.util.state` needs the dashboard.
    Buys: a checkpoint before a node leaves.
    Without, or in the plain mode: the run repeats the rounds since the last checkpoint.
    """
    import ray

    return () if why_plain() else getattr(ray._private.state.state, "get_draining_nodes", tuple)()


# --- For tests and benchmarks


def alive_actors() -> list[dict[str, Any]]:
    """Return what Ray knows of all actors that are alive, with their process and their node.

    What: the table behind `ray.util.state.list_actors`, which itself needs Ray's dashboard.
    """
    import ray

    return [actor for actor in ray._private.state.actors().values() if actor["State"] == "ALIVE"]


def stored_bytes(node: Mapping[str, Any]) -> int:
    """Return the number of bytes in a node's object store.

    What: a node's statistics, for which Ray has no documented function.
    """
    from ray._private import internal_api

    stats = internal_api.node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False)
    return int(stats.store_stats.object_store_bytes_used)


FAST_HEALTH_CHECKS = {"_system_config": {"health_check_initial_delay_ms": 300, "health_check_period_ms": 300}}
"""Options of a head node that checks the other nodes often. By default, Ray checks them every 3 s."""


def own_references() -> Sequence[str]:
    """Return the ids of the objects to which this process has references.

    What: the reference counts of Ray's core worker, for which Ray has no documented function.
    """
    import ray

    worker: Any = ray._private.worker.global_worker
    return [reference.decode() for reference in worker.core_worker.get_all_reference_counts()]
