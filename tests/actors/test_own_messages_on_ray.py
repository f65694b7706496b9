"""Each client's own message, and totals, on Ray: the right clients and the same bits as in one process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import raysim

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]


def test_each_host_is_sent_the_messages_of_its_clients_and_totals_are_the_same(
    small: dict[str, Any], facts: Callable[[raysim.Result], Mapping[str, Any]], tmp_path: Path
) -> None:
    """Client k of 4 receives k + 1 numbers of value k; with two clients per actor, a host has two messages.

    No client trains. `NoModel` collects totals in each round's phase, and `Grams` at the task's end.
    """
    methods = {"letters:Letters": {"tells_process": True}, "grams:Grams": {}, "grams:NoModel": {}}
    keys = {"methods": methods, "training.rounds_per_task": 1}
    local = raysim.run(small, keys, out=tmp_path / "local", local=True)
    on_ray = raysim.run(small, keys | {"resources.clients_per_actor": 2}, out=tmp_path / "ray")
    expected, found = (facts(run)["rounds"] for run in (local, on_ray))
    for one, other in zip(expected, found, strict=True):
        for k in range(4):
            assert other["records"][f"answer of {k}"] == k * (k + 1)
            assert one["records"].pop(f"beside {k}") == one["records"].pop(f"in its process {k}") == 4
        beside = [other["records"].pop(f"beside {k}") for k in range(4)]
        # A slow host may have given clients away, so how many a host has is not fixed.
        assert beside == [other["records"].pop(f"in its process {k}") for k in range(4)]
        # An answer names the messages of its process.
        assert one.pop("bytes_up") - other.pop("bytes_up") == 8 * (4 * 4 - sum(beside))
        assert {"digest", "digest of third", "digest of integers"} <= one["records"].keys()
    assert found == expected
