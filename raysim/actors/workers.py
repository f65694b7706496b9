"""Choose how the processes of actors start: forked by a server on their node, or spawned by Ray."""

import fcntl
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysim.actors import compat, session
from raysim.actors.forking.starting import ForkServer, answers, python_command
from raysim.config.schema import Resources
from raysim.system.capacity import CAN_FORK
from raysim.system.errors import ConfigError, single_line

PATIENCE = 60  # seconds in which a node starts its server, or has none
OWN: list[ForkServer] = []  # of the cluster that this process has started
FOLDERS: dict[tuple[str, str], str] = {}  # of servers on a cluster that this process has joined, by job and node


def choose_start(wanted: Resources, nodes: Sequence[str]) -> tuple[list[dict[str, Any]], str | None]:
    """Choose how actors start.

    Args:
        wanted: what the config says of resources.
        nodes: the id of each actor's node.

    Returns:
        the options of each actor, and if some do not start as wanted a line that says so.

    Raises:
        ConfigError: forked workers are wanted, and a node cannot have them.
    """
    if not wanted.forks or compat.why_plain() is not None:  # `cluster_of` has reported the latter
        return [{} for _ in nodes], None
    if OWN:
        OWN[0].keep()
    commands, refused = (dict.fromkeys(nodes, OWN[0].command), {}) if OWN else _serve_nodes(nodes)
    lacking = [f"{node[:8]} ({reason})" for node, reason in refused.items()]
    if lacking and wanted.workers == "forked":
        raise ConfigError(
            f"resources.workers: found forked, which {', '.join(lacking)} of the cluster's nodes cannot have; "
            "allowed: auto or spawned"
        )
    line = f"workers start by themselves, each with torch of its own, on {', '.join(lacking)}" if lacking else None
    environments = [compat.forked_start(commands[node]) if node in commands else {} for node in nodes]
    return environments, line


def start_here(wanted: Resources) -> dict[str, Any]:
    """Return the options of an actor that is forked on a cluster of this process's own, and not elsewhere."""
    return choose_start(wanted, [""])[0][0] if OWN else {}


def _serve_nodes(nodes: Sequence[str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Have a fork server on each of these nodes; return the commands of those that do, and why the others do not."""
    job = ray.get_runtime_context().get_job_id()
    task: Any = ray.remote(serve_this_node)
    asked = {
        node: task.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(FOLDERS.get((job, node)))
        for node in dict.fromkeys(nodes)
    }
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=PATIENCE)
    commands, refused = {}, {}
    for node, answer in asked.items():
        try:
            FOLDERS[job, node], commands[node] = ray.get(answer, timeout=0)
        except (RayError, GetTimeoutError) as error:
            refused[node] = last_line(error.cause if isinstance(error, RayTaskError) else error)
    return commands, refused


def hide_gpus(gpus: float) -> None:
    """Hide all GPUs from this actor if it requested none; Ray leaves them visible."""
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def last_line(error: BaseException) -> str:
    """Return the last line of an error's message, or the error's name if it has no message."""
    return single_line((str(error).strip().splitlines() or [type(error).__name__])[-1])


def serve_this_node(folder: str | None) -> tuple[str, str]:
    """Start a fork server on the node of this Ray worker. It ends when it has had nothing to do for a while.

    Args:
        folder: the folder of a server that was started earlier, which is used if it still runs.

    Returns:
        its folder, and the command that starts Python there.

    Raises:
        ConfigError: there is no place for its folder, or workers cannot be forked on this node.
    """
    if not CAN_FORK:
        raise ConfigError(f"{sys.platform}, Python {sys.version.split()[0]}")
    if folder is not None and answers(Path(folder)):
        return folder, python_command(Path(folder))
    folder = session.private_folder()
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        started = ForkServer(Path(folder), lock)
        started.serve(int(os.environ[compat.RAYLET_VARIABLE]), ray.get_runtime_context().get_job_id())
    finally:
        os.close(lock)
    return folder, started.command
