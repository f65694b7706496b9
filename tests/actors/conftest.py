import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from raysim.records.result import Result
from raysim.system.capacity import Capacity

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
CPUS = 3  # not what the machine has: runs must go by the cluster

SMALL = {
    "name": "small",
    "dataset": {"name": "synthetic", "classes": 4, "shape": [6], "train": 200, "test": 120},
    "scenario": {"kind": "class_incremental", "tasks": 2},
    "clients": {"count": 4},
    "model": {"name": "mlp", "hidden": [12]},
    "training": {"rounds_per_task": 3, "batch_size": 8, "optimizer": {"lr": 0.1, "momentum": 0.9}},
    "logging": {"tensorboard": False},  # its images take longer than the run
}


FIRST = ("contract_grid", "lost_nodes", "cleanup", "nodes", "plain_ray", "recovery", "workers", "joining", "check")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, so that no worker is left with one of them at the end."""
    places = {f"test_{name}.py": place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))


@pytest.fixture(scope="session")
def started() -> Iterator[ExitStack]:
    """The Ray of `cluster`, once a module has needed it."""
    with ExitStack() as started:
        yield started


@pytest.fixture(scope="module")
def cluster_in_mode(no_cluster: None) -> Callable[[str], AbstractContextManager[None]]:
    """Start a Ray of its own: with its internals, or plain (RAYSIM_PLAIN_RAY=1)."""

    @contextmanager
    def start(mode: str) -> Iterator[None]:
        from raysim.actors.starting import own_cluster

        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(HERE)
            patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (HERE.parent, ROOT))), prepend=os.pathsep)
            patch.setenv("RAYSIM_PLAIN_RAY", str(int(mode == "plain")))
            with own_cluster(Capacity(CPUS, 0, None)):
                yield

    return start


@pytest.fixture(scope="module")
def cluster(started: ExitStack) -> Iterator[None]:
    """One Ray for all runs of a module, and of those before and after it."""
    import ray

    from raysim.actors.starting import own_cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(HERE)  # where the hosts look for `misbehaving`
        patch.syspath_prepend(ROOT)
        found = os.pathsep.join(map(str, (HERE.parent, ROOT)))  # and for `probes` and `examples`
        patch.setenv("PYTHONPATH", found, prepend=os.pathsep)
        if not ray.is_initialized():
            started.enter_context(own_cluster(Capacity(CPUS, 0, None)))
        yield


@pytest.fixture(scope="module")
def no_cluster(started: ExitStack) -> None:
    """No Ray of this process's own, for a module that joins others."""
    started.close()


@pytest.fixture(scope="session")
def small() -> dict[str, Any]:
    """A config: 4 clients, 2 tasks of 2 classes, 6 rounds."""
    return SMALL


@pytest.fixture(scope="session")
def facts() -> Callable[[Result], Mapping[str, Any]]:
    """A function that gives all that the determinism law speaks of: everything in a run's directory but its times."""

    def of(result: Result) -> Mapping[str, Any]:
        lines = [json.loads(line) for line in (result.directory / "rounds.jsonl").read_text().splitlines()]
        assert lines
        for line in lines:
            del line["seconds"]
        recorded = result.directory / "callbacks.jsonl"
        return {
            "recorded": recorded.read_text() if recorded.exists() else None,
            "model_sha256": result.model_sha256,
            "evaluation": result.evaluation,
            "per_client": result.per_client,
            "bytes": (result.bytes_up, result.bytes_down),
            "updates": result.updates,
            "rounds": lines,
            "pictures": {path.parent.name: path.read_bytes() for path in result.directory.glob("images/*/noise.png")},
        }

    return of
