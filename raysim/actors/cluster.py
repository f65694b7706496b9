"""Starting a Ray of one's own, or joining one that runs; and leaving nothing behind."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGINT, SIGTERM

import ray

from raysim.errors import ConfigError
from raysim.resources import Capacity

LOOPBACK = "127.0.0.1"
LONGEST_FOLDER = 25  # /raysim-12345678, /session_DATE_TIME_MICROSECONDS_PID and /sockets/plasma_store take 82 of 107


@contextmanager
def own_cluster(capacity: Capacity) -> Iterator[Capacity]:
    """Start Ray on this machine's loopback interface, without a dashboard; stop it and delete its files at the end.

    A Ray that this Python process has started already is used as it is, and left running; so give what there is.
    """
    if ray.is_initialized():
        yield present()
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    files = _folder()
    try:
        with _interrupts_later():
            ray.init(
                num_cpus=int(capacity.cpus),
                num_gpus=int(capacity.gpus),
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=True,
                logging_level=logging.ERROR,
                _node_ip_address=LOOPBACK,
                _temp_dir=files,
            )
        yield capacity
    finally:
        with _interrupts_later():
            ray.shutdown()
            shutil.rmtree(files, ignore_errors=True)


@contextmanager
def joined_cluster(address: str) -> Iterator[Capacity]:
    """Join a running cluster and give what it has.

    Raises:
        ConfigError: nothing answers there.
    """
    joined = not ray.is_initialized()
    if joined:
        _somebody_listens(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            raise _no_cluster(address, error) from error
    try:
        yield present()
    finally:
        if joined:
            ray.shutdown()


def _somebody_listens(address: str) -> None:
    """Try HOST:PORT first: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in address and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except (OSError, OverflowError) as error:
            raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"resources.address: no cluster answers at {address} ({error}); start one with `ray start --head`, "
        "or leave address out"
    )


def present() -> Capacity:
    """Return what a cluster that this process has joined has now; nodes come and go."""
    have = ray.cluster_resources()
    return Capacity(have.get("CPU", 0.0), have.get("GPU", 0.0), None)


def _folder() -> str:
    """Make the folder of Ray's session. Its sockets lie in it, and a socket's path has at most 107 bytes."""
    short = len(os.fsencode(tempfile.gettempdir())) <= LONGEST_FOLDER
    return tempfile.mkdtemp(prefix="raysim-", dir=None if short else "/tmp")


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM wait: a Ray half started or half stopped would leave processes and files behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = []
    previous = {number: signal.signal(number, lambda *_: pressed.append(True)) for number in (SIGINT, SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)  # none: what was there did not come from Python
    if pressed:
        raise KeyboardInterrupt
