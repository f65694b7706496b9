"""Starting a Ray cluster on this machine or joining a running one, and cleaning up afterwards."""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec

import psutil
import ray

from raysim.actors import authentication, contact, joining, searching, workers
from raysim.actors.joining import LOOPBACK, on_loopback
from raysim.actors.session import Session, open_session
from raysim.config import Config
from raysim.config.own_code import find_own_code, refuse_main
from raysim.config.schema import RAYS_OWN
from raysim.system import interrupts
from raysim.system.capacity import CAN_FORK, Capacity
from raysim.system.errors import ConfigError, RunError
from raysim.system.last_words import LastWords

VITAL = ("gcs_server", "raylet")
AGENTS = (["ray::DashboardAgent"], ["ray::RuntimeEnvAgent"])  # the raylet ends if one of them does
UNREAD = ("/autoscaler/_private/monitor.py", "/_private/log_monitor.py")


def cluster_of(
    configs: Sequence[Config],
    machine: Capacity,
    say: Callable[[str], None],
    words: LastWords,
    session: Session | None = None,
) -> AbstractContextManager[Capacity]:
    """Join the cluster that the configs name, or start one on this machine; yield the cluster's capacity.

    Args:
        configs: the configs of the runs, which all name the same address.
        machine: the resources given to a cluster started on this machine.
        say: shows a line to the user.
        words: what is left if this process is killed.
        session: opened before, for a cluster started on this machine.

    Raises:
        ConfigError: a config names code that actors cannot import.
    """
    for config in configs:
        refuse_main(config)
    address = configs[0].resources.address
    if address is None:
        dashboard = any(config.resources.dashboard for config in configs)
        forked = any(config.resources.forks for config in configs)
        return own_cluster(machine, dashboard, say, words, session, forked)
    code = sorted({str(path) for config in configs for path in find_own_code(config)})
    return joined_cluster(address, code, words)


@contextmanager
def own_cluster(
    capacity: Capacity,
    dashboard: bool = False,
    say: Callable[[str], None] = lambda text: None,
    words: LastWords | None = None,
    session: Session | None = None,
    forked: bool = CAN_FORK,
) -> Iterator[Capacity]:
    """Start Ray on this machine's loopback interface; stop it and delete its files at the end.

    A Ray that this Python process has already started is used as it is and left running; its capacity is yielded.

    Args:
        capacity, dashboard, say, words: see `cluster_of`.
        session: opened before; by default one is opened here, with a fork server if `forked`.

    Raises:
        ConfigError: a dashboard is requested but not installed, or there is no place for Ray's files.
        RunError: Ray could not start.
    """
    if ray.is_initialized():
        contact.check()
        yield present()
        return
    if dashboard and find_spec("aiohttp") is None:
        raise ConfigError("resources.dashboard: found true, but it is not installed; pip install 'ray[default]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if not dashboard:  # a dashboard asks the user for the token, so Ray keeps it where `ray get-auth-token` finds it
        authentication.have_one()
    with nullcontext(session) if session else open_session(forked) as used:
        if words is not None:
            used.keep(words)
        try:
            delayed = interrupts.delay_interrupts(lambda: say("leaving as soon as Ray has started"))
            with delayed, interrupts.block_hangups(), on_loopback():
                _start(capacity, dashboard, used)
            yield capacity
        finally:
            with interrupts.delay_interrupts():
                # else what is left of a cluster that has ended might end this process
                for process in contact.OWN if contact.own_has_ended() else ():
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                _end_unread()
                ray.shutdown()
                contact.OWN.clear()
                workers.OWN.clear()


def _end_unread() -> None:
    """Kill what serves a dashboard and drivers that show their workers' output: Ray's autoscaler and its log monitor.

    The first does not hear SIGTERM, so Ray (2.60) would wait a second for it; the second looks at the files of all
    workers ten times a second.
    """
    for process in psutil.Process().children() if ray.is_initialized() else ():
        with suppress(psutil.Error):  # it has ended
            if any(part.endswith(UNREAD) for part in process.cmdline()):
                process.kill()
                process.wait()  # else it is a zombie among this process's children until Ray is shut down


def _start(capacity: Capacity, dashboard: bool, session: Session) -> None:
    try:
        # without warnings, and without the last words of Ray's autoscaler when it is sent a signal
        with interrupts.keep_termination(), joining.without_warnings():
            ray.init(
                "local",
                job_config=searching.job(),
                num_cpus=int(capacity.cpus),
                num_gpus=int(capacity.gpus),
                include_dashboard=dashboard,
                dashboard_host=LOOPBACK,
                log_to_driver=False,
                configure_logging=True,
                logging_level=logging.ERROR,
                _node_ip_address=LOOPBACK,
                _temp_dir=str(session.rays),
                # what every call did, which the GCS would keep (14 KiB of each round) for the dashboard alone
                _system_config={} if dashboard else {"task_events_report_interval_ms": 0},
            )
    except Exception as error:  # Ray raises all kinds
        raise RunError(f"Ray could not start ({error}); start the run again") from error
    if not dashboard:
        _end_unread()
    for process in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):  # a child of the user's own
            if process.name() in VITAL:
                contact.OWN.append(process)
            if process.name() == "raylet":
                contact.OWN.extend(child for child in process.children() if child.cmdline()[:1] in AGENTS)
                if session.forks is not None:
                    session.forks.serve(process.pid, ray.get_runtime_context().get_job_id(), searching.folders())
                    workers.OWN.append(session.forks)


@contextmanager
def joined_cluster(address: str, code: Sequence[str] = (), words: LastWords | None = None) -> Iterator[Capacity]:
    """Join a running cluster and yield its capacity.

    Args:
        address: HOST:PORT, or auto for the cluster on this machine.
        code: folders and files of the user's own modules, which are sent to its workers.
        words: see `cluster_of`.

    Raises:
        ConfigError: the cluster cannot be joined.
    """
    if ray.is_initialized():
        yield present()
        return
    with open_session(forked=False) if words else nullcontext() as session:  # only for them
        if session and words:
            session.keep(words)
        joining.join(address, code)
        contact.JOINED.append(contact.Contact(ray.get_runtime_context().gcs_address))
        try:
            yield present()
        finally:
            waits = (
                contact.cut_off()
            )  # Ray's farewell then waits until the network is back: it is said when Python ends
            contact.JOINED.clear()
            with interrupts.delay_interrupts():
                if not waits:
                    ray.shutdown()


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
