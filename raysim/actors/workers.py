"""Choose how the processes of actors start: forked by a server on their node, or spawned by Ray."""

import fcntl
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raysim.actors import compat, liveness, session
from raysim.actors.fork_server import ForkServer, answers, python_command
from raysim.config.schema import Resources
from raysim.system.capacity import CAN_FORK
from raysim.system.errors import ConfigError, RunError, single_line

PATIENCE = 60  # seconds to wait for a node's answer
FOLDERS: dict[tuple[str, str], str] = {}  # (job, node) -> the fork server's folder, on a joined cluster


def choose_start(wanted: Resources, nodes: Sequence[str]) -> tuple[list[dict[str, Any]], str | None]:
    """Choose how the processes of actors start.

    Args:
        wanted: the config's block `resources`.
        nodes: the id of each actor's node.

    Returns:
        the options of each actor, and a line for the user if some are not forked.

    Raises:
        ConfigError: the config requires forked workers, and a node cannot have them.
    """
    if not wanted.forks or compat.why_plain() is not None:  # `cluster_of` has reported the reason
        return [{} for _ in nodes], None
    refused: Mapping[str, str] = {}
    if server := liveness.CURRENT.forks:
        server.keep()
        commands: Mapping[str, str] = dict.fromkeys(nodes, server.command)
    else:
        commands, refused = _serve_nodes(nodes)
    lacking = ", ".join(f"{node[:8]} ({reason})" for node, reason in refused.items())
    if lacking and wanted.workers == "forked":
        raise ConfigError(
            f"resources.workers: found forked, but these nodes cannot fork workers: {lacking}; allowed: auto or spawned"
        )
    line = f"Ray spawns the workers, and each imports torch, on these nodes: {lacking}" if lacking else None
    return [compat.forked_start(commands[node]) if node in commands else {} for node in nodes], line


def start_here(wanted: Resources) -> dict[str, Any]:
    """Return the options of an actor that is forked if this process has started the cluster, and spawned otherwise."""
    return choose_start(wanted, [""])[0][0] if liveness.CURRENT.forks else {}


def _serve_nodes(nodes: Sequence[str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Start a fork server on each node. Return the nodes' commands, and why other nodes have none, by node."""
    job = ray.get_runtime_context().get_job_id()
    served, refused = ask_nodes(serve_this_node, {node: (FOLDERS.get((job, node)),) for node in dict.fromkeys(nodes)})
    FOLDERS.update({(job, node): folder for node, (folder, _) in served.items()})
    return {node: command for node, (_, command) in served.items()}, refused


def ask_nodes(
    function: Callable[..., Any], arguments: Mapping[str, Sequence[Any]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Call a function on some nodes, given its arguments by node id.

    Returns:
        the answers, and why other nodes have not answered, by node.
    """
    task: Any = ray.remote(function)
    asked = {
        node: task.options(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
        ).remote(*own)
        for node, own in arguments.items()
    }
    waiting, limit = list(asked.values()), time.monotonic() + PATIENCE
    while waiting and time.monotonic() < limit:
        liveness.CURRENT.check()
        _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=1)
    answers, refused = {}, {}
    for node, answer in asked.items():
        try:
            answers[node] = ray.get(answer, timeout=0)
        except GetTimeoutError:
            refused[node] = f"no answer in {PATIENCE} s"
        except RayError as error:
            refused[node] = last_line(error.cause if isinstance(error, RayTaskError) else error)
    return answers, refused


def prepare_actor(gpus: float) -> None:
    """Hide all GPUs from an actor that requested none: Ray would leave them visible. Refuse breakpoints."""
    if not gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.breakpointhook = _refuse_breakpoint


def _refuse_breakpoint(*_: object, **__: object) -> None:
    """Raise RunError at a breakpoint(): an actor has no terminal, and would wait for a debugger without end."""
    place = traceback.extract_stack(limit=2)[0]
    raise RunError(
        f"{place.filename}:{place.lineno}: breakpoint() needs a terminal, which Ray's processes do not have; "
        "use raysim run --local"
    )


def last_line(error: BaseException) -> str:
    """Return the last line of an error's message, or the error's name if it has no message."""
    return single_line((str(error).strip().splitlines() or [type(error).__name__])[-1])


def serve_this_node(folder: str | None) -> tuple[str, str]:
    """Start a fork server on the node of this Ray worker. The server ends with the run.

    Args:
        folder: the folder of an earlier server, which is used if it still runs.

    Returns:
        the server's folder, and the command that Ray uses in place of Python.

    Raises:
        ConfigError: there is no place for the folder, or workers cannot be forked on this node.
    """
    if not CAN_FORK:
        raise ConfigError(f"found {sys.platform}, allowed: linux")
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
