"""Starting a Ray of one's own, or joining one that runs; and leaving nothing behind."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import ray

from raysim.errors import ConfigError
from raysim.resources import Capacity

LOOPBACK = "127.0.0.1"


@contextmanager
def own_cluster(capacity: Capacity) -> Iterator[None]:
    """Start Ray on this machine's loopback interface, without a dashboard; stop it and delete its files at the end.

    A Ray that this Python process has started already is used as it is, and left running.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    files = tempfile.mkdtemp(prefix="raysim-")  # a short path: Ray's sockets lie in it
    try:
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
        yield
    finally:
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
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            raise ConfigError(
                f"resources.address: no cluster answers at {address} ({error}); start one with `ray start --head`, "
                "or leave address out"
            ) from error
    try:
        have = ray.cluster_resources()
        yield Capacity(have.get("CPU", 0.0), have.get("GPU", 0.0), None)
    finally:
        if joined:
            ray.shutdown()
