"""The determinism law for clients in time: asynchronous schedules and boundaries, drop-outs, arrivals, slow hosts."""

from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import raysim

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("cluster")]

CPUS = 3  # of `cluster`

Facts = Callable[[raysim.Result], Mapping[str, Any]]

FEDBUFF = {
    "schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, "speeds": {"kind": "log_normal"}},
    "methods": {"der": {}, "fed_a_gem": {"reference": "with_update"}, "probes:Drawing": {}},
}
TIMES = {
    "fedbuff": FEDBUFF | {"model.dropout": 0.3, "clients.dropout": 0.2},
    "fedasync": {
        "schedule": {
            "kind": "asynchronous", "concurrency": 4, "buffer_size": 1, "mixing": "models", "rate": 0.6,
            "max_staleness": 2, "speeds": {"kind": "pareto"},
        },
        "aggregation.weights": "samples",
        "methods": {"er": {}},
    },
    "windows": {
        "scenario.boundaries": {"asynchronous": {"window": 20, "rounds_per_window": 2}},
        "training.rounds_per_task": None,
        "partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3},
        "participation": {"count": 2, "sampler": "by_size"},
        "methods": {"a_gem": {}, "fed_a_gem": {}},
    },
    "windows under fedbuff": FEDBUFF | {
        "scenario.boundaries": {"asynchronous": {"window": 20, "rounds_per_window": 2}},
        "training.rounds_per_task": None,
    },
    "jitter, arrivals and own orders": {
        "scenario.boundaries": {"jittered": {"rounds": 1}},
        "scenario.order": "per_client",
        "clients.arrive": {"at": [{"round": 3, "clients": [3]}]},
        "clients.leave": [{"round": 6, "clients": [0]}],
        "clients.dropout": 0.2,
        "methods": {"re_fed": {"epochs": 2}},
        "memory.capacity": 5,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "per_actor"),
    [
        pytest.param("fedbuff", 1, marks=pytest.mark.soak),
        pytest.param("fedbuff", 2, marks=pytest.mark.soak),
        ("fedasync", "auto"),
        pytest.param("windows", 2, marks=pytest.mark.soak),
        pytest.param("windows under fedbuff", 1, marks=pytest.mark.soak),
        pytest.param("jitter, arrivals and own orders", "auto", marks=pytest.mark.soak),
    ],
)
def test_ray_gives_the_bits_of_the_local_run(
    name: str, per_actor: int | str, small: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    silent = TIMES[name] | {"logging": {"tensorboard": False, "dispatches": True, "memory": True}}
    here = facts(raysim.run(small, silent, out=tmp_path / "local", local=True))
    way = silent | {"resources.clients_per_actor": per_actor}
    assert facts(raysim.run(small, way, out=tmp_path / "ray")) == here


def phases(log: Path) -> list[tuple[str, float, float]]:
    """Return the process of each phase of a run, and when it began and ended."""
    lines = [line.split() for line in log.read_text().splitlines()]
    return [(process, float(began), float(ended)) for _, process, began, ended in lines]


@pytest.mark.parametrize("name", ["fedbuff", pytest.param("windows", marks=pytest.mark.soak)])
def test_a_slow_host_changes_nothing_and_hosts_work_at_the_same_time(
    name: str, small: dict[str, Any], facts: Facts, tmp_path: Path
) -> None:
    """A phase sleeps 0.1 s, client 1's 0.15 s, each on a host, which writes it down: phases of two hosts overlap."""

    def run(local: bool, **slow: object) -> Mapping[str, Any]:
        way = TIMES[name] | {"methods": {**TIMES[name]["methods"], "misbehaving:Slow": slow}}
        return facts(raysim.run(small, way, out=tmp_path / str(local), local=local))

    log = tmp_path / "phases"
    assert run(False, client=1, seconds=0.15, others=0.1, log=str(log)) == run(True)
    spans = phases(log)
    overlaps = sum(
        min(one[2], other[2]) - max(one[1], other[1]) > 0.05
        for one, other in combinations(spans, 2)
        if one[0] != other[0]
    )
    assert overlaps >= len(spans) / 3


@pytest.mark.parametrize("workers", ["forked", pytest.param("spawned", marks=pytest.mark.soak)])
def test_as_many_hosts_work_at_a_time_as_there_are_cpus(workers: str, small: dict[str, Any], tmp_path: Path) -> None:
    """Five hosts on three CPUs: all are sent a round's order at once, and no more than three are ever at work."""
    slow = {"misbehaving:Slow": {"client": -1, "seconds": 0.1, "log": str(tmp_path / "phases")}}
    way = {"clients.count": 5, "resources": {"workers": workers}, "methods": slow}
    raysim.run(small, way, out=tmp_path / "run")
    spans = phases(tmp_path / "phases")
    assert len({process for process, _, _ in spans}) == 5
    at_work = [sum(began <= when < ended for _, began, ended in spans) for _, when, _ in spans]
    assert max(at_work) == CPUS
