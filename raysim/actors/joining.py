"""Joining a running Ray cluster: is it there, does it speak Ray, and is this process welcome."""

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil
import ray
from ray.exceptions import AuthenticationError

from raysim.actors import compat, liveness
from raysim.actors.node_capacity import present
from raysim.system import interrupts
from raysim.system.capacity import Capacity
from raysim.system.errors import ConfigError, Unreachable
from raysim.system.output import buffer_stderr

ANSWER = 5  # seconds for a port to accept a connection, and for its first answer
FRAME, SETTINGS = 9, 4  # HTTP/2: the bytes of a frame's head, and the kind of the first frame
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])


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
