"""The start of a cluster: what Ray receives, and what is done where it fails."""

from types import SimpleNamespace

import pytest

from raysim.actors import cluster
from raysim.actors.cluster import divide_memory
from raysim.system.capacity import GIB


@pytest.mark.parametrize(
    ("limit", "shared", "store"),
    [
        (3 * GIB, 2**34, int(0.3 * 3 * GIB)),
        (3 * GIB, 2**20, int(0.3 * 3 * GIB)),  # Ray puts it elsewhere
        (100 * GIB, 2**34, int(0.95 * 2**34)),
        (100 * GIB, 2**20, 10**10),  # Ray refuses more than this with so little shared memory
    ],
)
def test_the_object_store_is_a_part_of_the_jobs_memory(
    limit: int, shared: int, store: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster.os, "statvfs", lambda path: SimpleNamespace(f_bavail=shared // 4096, f_frsize=4096))
    assert divide_memory(limit) == (store, limit - store)
    assert divide_memory(None) == (None, None)
