"""Joining a running cluster; if it does not answer or refuses the connection, one line says so within seconds."""

import logging
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import ray
from ray.exceptions import AuthenticationError

from raysim.actors import compat
from raysim.system.errors import Unreachable
from raysim.system.interrupts import keep_termination


def join(address: str, code: Sequence[str]) -> None:
    """Connect this process to the cluster at an address.

    Args:
        address: HOST:PORT as `ray start --head` printed it, or auto for the cluster on this machine.
        code: folders and files of the user's own modules; sent to all workers of this job.

    Raises:
        Unreachable: nothing answers there, the cluster requires another token, or its version differs.
    """
    host, port = _parts(address)
    if port is not None:
        try:  # check first whether anything listens there: Ray itself would try for minutes
            socket.create_connection((host, port), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, str(error)) from error
    for_workers = {"env_vars": compat.WORKER_VARIABLES} | ({"py_modules": list(code)} if code else {})
    here = compat.rays_address(_only_here(host, port))
    with compat.few_attempts(), keep_termination(), without_warnings(), here:
        try:
            ray.init(address=address, runtime_env=for_workers, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, ValueError, RuntimeError, AuthenticationError) as error:
            raise _explained(address, error) from error


def _parts(address: str) -> tuple[str, int | None]:
    host, _, port = address.rpartition(":")
    return host, int(port) if host and "/" not in address and port.isdigit() else None


def _only_here(host: str, port: int | None) -> bool:
    """Return whether a cluster at a loopback address listens only there; Ray looks for it at the machine's address."""
    if port is None or host not in ("localhost", compat.LOOPBACK, "[::1]"):
        return False
    try:
        with compat.rays_address(loopback=False):
            socket.create_connection((ray.util.get_node_ip_address(), port), timeout=10).close()
    except OSError:
        return True
    return False


def _explained(address: str, error: BaseException) -> Unreachable:
    told = " ".join(str(error).split())
    if compat.refused_token(error):
        return Unreachable(
            f"resources.address: the cluster at {address} wants its token: copy ~/.ray/auth_token from the machine "
            "where it was started, or set {compat.TOKEN}; and {compat.MODE}=token"
        )
    if compat.other_version(told):
        return Unreachable(f"resources.address: the cluster at {address} is of another version: {told}")
    return _no_cluster(address, told)


def _no_cluster(address: str, told: str) -> Unreachable:
    return Unreachable(
        f"resources.address: no cluster answers at {address} ({told}); start one with `ray start --head`, "
        "or leave address out"
    )


@contextmanager
def without_warnings() -> Iterator[None]:
    """Hold back what Ray's C++ code writes to standard error (a line per attempt); show it if the attempts succeed."""
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
